"""Runs on disk: the record, the state to resume from, the model, the tables."""

from bigfs.storage.runs.runs import Run

__all__ = ["Run"]
