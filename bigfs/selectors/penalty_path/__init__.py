"""Regressions with a row-sparse penalty, followed until enough features have a weight."""
