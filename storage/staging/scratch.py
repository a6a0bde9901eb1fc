"""Blocks of rows on scratch disk, twice: row by row (.npy), and sorted by column (one plain file).

A block is written by the worker that read it; `storage.staging.transpose` then reads slices of many
blocks. The column-sorted half lists only the columns that occur: d may be 16 million and a block a
few MB.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray
from storage import disk


class Labels(NamedTuple):
    """What the labels of one block are like.

    On scratch: `classes`, the distinct ones, as numbers or names, and `codes`, each row's index
    among them, −1 where unlabelled; of sets of labels `set_sizes`, with the sets in `codes` one
    after the other.
    """

    texts: bool
    whole: bool
    sets: bool


class Spill(NamedTuple):
    """One block of rows of one split: where it lies, its size, and whether its rows have labels and
    names (beside it).
    """

    path: str
    split: str | None
    rows: int
    nnz: int
    width: int
    present: int  # columns that occur
    labels: Labels | None = None
    named: bool = False


def save(path: str, **arrays: AnyArray) -> None:
    for name, values in arrays.items():
        disk.save(f"{path}.{name}.npy", values)


def save_names(path: str, names: Any) -> bool:
    """Names onto scratch, if there are any."""
    if names is not None:
        save(path, names=np.asarray(names, dtype=np.str_))
    return names is not None


def open_array(path: str, name: str) -> AnyArray:
    """Mapped, not read."""
    return disk.mapped(f"{path}.{name}.npy")


def spill(
    path: str, X: sp.csr_array, split: str | None, labels: Labels | None = None, named: bool = False
) -> Spill:
    """Write a block both ways; explicit zeros are dropped.

    Its labels and names lie there already.
    """
    if X.nnz and not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    data, indices = X.data.astype(np.float32, copy=False), X.indices.astype(np.int32, copy=False)
    width = int(indices.max()) + 1 if len(indices) else 0
    save(path, data=data, indices=indices, lengths=np.diff(X.indptr).astype(np.int32))
    columns, starts, rows, values = by_column(
        sp.csr_array((data, indices, X.indptr), shape=(X.shape[0], width))
    )
    with open(f"{path}.columns", "wb") as out:
        for part in (starts, columns, rows, values):
            out.write(np.ascontiguousarray(part).data)
    return Spill(path, split, X.shape[0], len(data), width, len(columns), labels, named)


def lengths_of(spills: Sequence[Spill]) -> Iterator[AnyArray]:
    """The non-zeros of each row, block after block."""
    return (open_array(s.path, "lengths") for s in spills if s.rows)


def open_columns(
    path: str, present: int, nnz: int
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """What `by_column` gave, mapped: one file, because a task opens that of every block."""
    raw = np.memmap(f"{path}.columns", mode="r")
    cuts = np.cumsum([0, 8 * (present + 1), 4 * present, 4 * nnz, 4 * nnz])
    starts, columns, rows, values = (raw[a:b] for a, b in itertools.pairwise(cuts.tolist()))
    return (
        columns.view(np.int32),
        starts.view(np.int64),
        rows.view(np.int32),
        values.view(np.float32),
    )


def by_column(X: sp.csr_array) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """The columns that occur, where each starts, then rows and values of all entries, column after
    column.
    """
    # far wider than full: sort the entries, don't count the columns
    if X.shape[1] > 8 * X.nnz + (1 << 16):
        keys = (X.indices.astype(np.int64) << 32) | np.arange(X.nnz)
        keys.sort()
        order = keys & 0xFFFFFFFF
        columns, first = np.unique(keys >> 32, return_index=True)
        rows = np.repeat(np.arange(X.shape[0], dtype=np.int32), np.diff(X.indptr))[order]
        return (
            columns.astype(np.int32),
            np.append(first, X.nnz).astype(np.int64),
            rows,
            X.data[order],
        )
    C = X.tocsc()
    columns = np.flatnonzero(np.diff(C.indptr))
    starts = np.append(C.indptr[columns], C.nnz).astype(np.int64)
    return columns.astype(np.int32), starts, C.indices.astype(np.int32, copy=False), C.data
