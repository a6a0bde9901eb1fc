"""Greedy searches: each feature by what it adds to those chosen."""
