"""Dictionaries that are learned batch by batch, and codes on them."""
