"""Counts of evaluations, next to their store: a set of features is scored once for all runs.

    news20.counts/<key>-<number>.npz      names of sets of features, and the counts of their models

The key identifies the samples, the split, the libraries and the program. Files are added and never
changed, so runs side by side do not disturb one another. One that is damaged is made again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bigfs.storage import atomic
from bigfs.storage.runs.checkpoints import reading_cache
from bigfs.types import FloatArray


class EvaluationCounts:
    """Counts of the sets of features that were scored on one split."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key

    def load(self) -> dict[str, FloatArray]:
        """Return the counts by the names of their sets."""
        counts: dict[str, FloatArray] = {}
        for file in atomic.paths_in(self.folder, f"{self.key}-*.npz"):
            with reading_cache(file):
                with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                    names, values = arrays["names"].tolist(), arrays["counts"]
                counts |= dict(zip(names, values, strict=True))
        return counts

    def save(self, counts: Mapping[str, FloatArray]) -> None:
        """Add counts, all of one shape, at least one array."""
        file = self.folder / f"{self.key}-{uuid.uuid4().hex[:16]}.npz"
        with atomic.explain_write_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
        with atomic.write(file) as part, part.open("wb") as opened:
            np.savez(opened, names=list(counts), counts=list(counts.values()))


def counts_of(store: str, key: str) -> EvaluationCounts | None:
    """Return the counts next to a store, or None if nothing can be kept there."""
    folder = Path(f"{store.removesuffix('.zarr')}.counts")
    if "://" in store or not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        return None
    return EvaluationCounts(folder, key)
