"""A piece of a matrix, read and divided by its splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bigfs.storage.sources import checks
from bigfs.storage.sources.base import MatrixSource, Rows, seen_by_workers, take_rows
from bigfs.storage.staging import labels
from bigfs.storage.staging.scratch import RowBlock, save_names, save_obs


def read_parts(piece: Any, path: str, source: MatrixSource) -> Iterator[tuple[RowBlock, Rows]]:
    """Yield the rows of each split of a piece, and their block with all but X on scratch."""
    with seen_by_workers(source.path):
        rows = source.read(piece)
    # our own formats refuse such values earlier and name the line
    checks.require_values(rows.X, lambda row: f"{source.path}: row {row} of the part {piece}")
    parts: list[tuple[str, str | None, Rows]] = [(path, None, rows)]
    if rows.split is not None:
        chosen = {split: np.flatnonzero(rows.split == split) for split in ("train", "test")}
        parts = [
            (f"{path}-{split}", split, take_rows(rows, index))
            for split, index in chosen.items()
            if len(index)
        ]
    for to, split, part in parts:
        save_obs(to, part.obs)
        kind, named = labels.save_labels(to, part.y), save_names(to, part.names)
        n, width = part.X.shape
        yield RowBlock(to, split, n, part.X.nnz, width, 0, kind, named), part
