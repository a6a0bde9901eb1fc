"""Weights that are zero in whole rows, by reweighted ridge regressions."""
