"""Staging: from the pieces of a source to scratch files, both layouts and one rename."""
