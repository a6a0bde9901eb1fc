"""Scores of one feature at a time, in closed form."""
