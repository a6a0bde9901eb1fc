"""A piece of a matrix, read and divided by its splits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import MatrixSource, Rows, seen_by_workers
from bigfs.storage.staging.scratch import RowBlock, save_samples
from bigfs.types import AnyArray


def read_parts(piece: Any, path: str, source: MatrixSource) -> Iterator[tuple[RowBlock, Rows]]:
    """Yield the rows of each split of a piece, and their block with all but X on scratch."""
    with seen_by_workers(source.path):
        rows = source.read(piece)
    # our own formats refuse such values earlier and name the line
    checks.require_values(rows.X, lambda row: f"{source.path}: row {row} of the part {piece}")
    columns = dict(rows.samples)
    splits = columns.pop("split", None)
    parts: list[tuple[str, str | None, AnyArray | None]] = [(path, None, None)]
    if splits is not None and splits.null_count < len(splits):
        codes, names = samples.as_codes(splits.dictionary_encode())
        halves = {name: np.flatnonzero(codes == i) for i, name in enumerate(names.to_pylist())}
        parts = [
            (f"{path}-{half}", half, halves[half]) for half in ("train", "test") if half in halves
        ]
    for to, split, index in parts:
        part, place = rows._replace(samples=columns), rows.place
        if index is not None:
            part = rows._replace(X=rows.X[index], samples=samples.take(columns, index))
            place = partial(_place_of, rows.place, index)
        n, width = part.X.shape
        told = save_samples(to, part.samples, n, place, source.labels_are_typed)
        yield RowBlock(to, split, n, part.X.nnz, width, 0, told), part


def _place_of(place: samples.Place, index: AnyArray, i: int) -> object:
    return place(int(index[i]))
