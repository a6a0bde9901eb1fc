"""The evaluation of a run: its selector, its samples, its curves, its number of features."""
