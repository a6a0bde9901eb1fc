"""Sparse regressions on columns that are gathered as they are needed, with a duality gap."""
