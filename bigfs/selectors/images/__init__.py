"""SMR: weights that are low-rank images."""
