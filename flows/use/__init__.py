"""The model and the columns of a run at work."""
