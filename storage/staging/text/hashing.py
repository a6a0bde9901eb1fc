"""Hashed columns: the hash of scikit-learn's vectorizers, and the first name of each column.

The first name comes from the first row with the column, training rows before test rows, and
within a row the first in the order of their bytes. So it does not depend on the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from bigfs.storage.staging.scratch import RowBlock, open_array, save
from bigfs.storage.staging.text.vocabularies import NEWLINE
from bigfs.types import AnyArray, IntArray

CHUNK = 1 << 16  # names that are put in order at a time


def hash_names(path: str, lines: AnyArray, X: sp.csr_array, hashing: int) -> sp.csr_array:
    """Return a block with a column per bucket that occurs. Save the buckets and first names."""
    buckets = buckets_of(lines, hashing)
    occurs = np.zeros(len(buckets), dtype=bool)
    occurs[X.indices] = True
    present = np.unique(buckets[occurs])
    indices = np.searchsorted(present, buckets).astype(np.int32)[X.indices]
    first = np.empty(len(present), dtype=np.int64)  # entry of each bucket
    first[indices[::-1]] = np.arange(len(indices))[::-1]  # the last one that is written stays
    ends = np.flatnonzero(lines == NEWLINE) + 1
    names, sizes = X.indices[first], np.diff(ends, prepend=0)
    save(path, hashed=present)
    with open(f"{path}.firsts", "wb") as out:
        for start in range(0, len(names), CHUNK):
            some = names[start : start + CHUNK]
            out.write(_take(lines, (ends - sizes)[some], sizes[some]).data)
    X = sp.csr_array((X.data, indices, X.indptr), shape=(X.shape[0], len(present)))
    X.sum_duplicates()
    return X


def buckets_of(lines: AnyArray, hashing: int) -> IntArray:
    """Return the column of the name in each line. Only some names are objects at a time."""
    from sklearn.utils import murmurhash3_32

    ends = np.flatnonzero(lines == NEWLINE) + 1
    buckets, start = np.empty(len(ends), dtype=np.int64), 0
    for first in range(0, len(ends), CHUNK):
        some = ends[first : first + CHUNK]
        names = lines[start : some[-1]].tobytes().split(b"\n")[:-1]
        hashes = (murmurhash3_32(name, positive=True) for name in names)
        buckets[first : first + CHUNK] = np.fromiter(hashes, np.int64, len(names))
        start = some[-1]
    return buckets % hashing


def name_buckets(
    blocks: Sequence[RowBlock], hashing: int, names: Path, known: Sequence[str] = ()
) -> None:
    """Write the first name of each bucket of blocks, its number where it is empty.

    Those that are known come first, and training rows before the others.
    """
    in_order = sorted(blocks, key=lambda block: block.split == "test")
    paths = [*known, *(block.path for block in in_order)]
    starts, lengths = np.full(hashing, -1), np.zeros(hashing, dtype=np.int64)
    found = names.with_suffix(".found")
    with open(found, "wb") as out:
        for path in paths:
            lines = np.fromfile(f"{path}.firsts", dtype=np.uint8)
            buckets, ends = open_array(path, "hashed"), np.flatnonzero(lines == NEWLINE) + 1
            is_new = np.flatnonzero(starts[buckets] < 0)
            begins, sizes = np.append(0, ends)[is_new], np.diff(ends, prepend=0)[is_new]
            new = buckets[is_new]
            starts[new], lengths[new] = out.tell() + np.cumsum(sizes) - sizes, sizes
            out.write(_take(lines, begins, sizes).data)
        for first in range(0, hashing, CHUNK):
            empty = first + np.flatnonzero(starts[first : first + CHUNK] < 0)
            texts = [b"%d\n" % bucket for bucket in empty.tolist()]
            sizes = np.fromiter(map(len, texts), np.int64, len(texts))
            starts[empty], lengths[empty] = out.tell() + np.cumsum(sizes) - sizes, sizes
            out.write(b"".join(texts))
    lines = np.memmap(found, dtype=np.uint8, mode="r")
    with open(names, "wb") as out:
        for first in range(0, hashing, CHUNK):
            some = slice(first, first + CHUNK)
            out.write(_take(lines, starts[some], lengths[some]).data)


def _take(lines: AnyArray, starts: IntArray, lengths: IntArray) -> AnyArray:
    """Return some lines, which begin at `starts`."""
    shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.asarray(lines[np.arange(len(shift)) + shift])
