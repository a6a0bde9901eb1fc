"""The page of a run, and the words on its scores and its status."""
