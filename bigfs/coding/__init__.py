"""Dictionaries that are learned chunk by chunk, and codes over them."""
