"""Compile the kernels of text before the workers need them, each kernel on one worker.

Numba compiles a kernel where it is called first, and keeps it on disk for later calls of any
process. Without this step, every worker would compile all kernels at the same time.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bigfs import engine
from storage.staging.scratch import RowBlock, save
from storage.staging.text import token_kernels
from storage.staging.text.tokenize import Documents, empty_slots, hash_keys
from storage.staging.text.vectorize import CountedBlock, learn_vocabulary, weigh_block
from storage.staging.text.weighting import Weighting
from storage.staging.transpose import (
    NO_LIMIT,
    BlockColumns,
    ColumnSpan,
    gather_columns,
    sum_columns,
)


@contextlib.contextmanager
def compiling_kernels(weighting: Weighting) -> Iterator[None]:
    """Compile the kernels of text on the workers while the block runs. It ends when they are."""
    if engine.client() is None:
        yield
        return
    words = [count_word, transpose_word]
    with engine.beside(lambda: engine.map_tiles(_call, words, weighting)) as compiled:
        yield
        compiled()


def _call(fn: Callable[[Weighting], object], weighting: Weighting) -> None:
    fn(weighting)


def count_word(weighting: Weighting) -> None:
    """Call the kernels that count terms."""
    documents = Documents(weighting.ngram_range)
    documents.add("word")
    documents.counted()


def transpose_word(weighting: Weighting) -> None:
    """Call the kernel of a growing table, and those that come after the count."""
    token_kernels.placed(empty_slots(1), empty_slots(2), hash_keys())
    with tempfile.TemporaryDirectory() as folder:
        spill = weigh_word(Path(folder), weighting)
        blocks = [BlockColumns(spill.path, spill.present, spill.nnz, 0)]
        span = ColumnSpan(0, 1, 0, NO_LIMIT)
        present, cursor = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
        gather_columns(span, blocks, present, cursor, 1)
        sum_columns(span, blocks, np.zeros(1, dtype=np.int8), 1)


def weigh_word(folder: Path, weighting: Weighting) -> RowBlock:
    """Return the weights of a document of one word, from its counts."""
    part = CountedBlock(str(folder / "count"), None, 1, None)
    one, zero = np.ones(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    save(part.path, counts=one, indices=zero, indptr=np.array([0, 1]), df=one)
    save(part.path, hashed=zero.astype(np.int64))
    Path(f"{part.path}.terms").write_bytes(b"word\n")
    kept = Weighting(min_df=1, hashing=weighting.hashing)
    return weigh_block(part, learn_vocabulary([part], kept, folder), weighting.sublinear_tf)
