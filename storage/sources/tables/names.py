"""Columns that have names: numbered in a batch, and in a piece in the order of the names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa
from bigfs.storage.sources.base import shorten
from bigfs.types import AnyArray, IntArray


class Block(NamedTuple):
    """The rows of a batch."""

    X: sp.csr_array
    names: Any = None  # an Arrow array with the names of the columns, if they have names


def require_lines(names: Any, place: object) -> Any:
    """Return the names of a batch, or refuse one that holds a line break."""
    broken = compute.index(compute.match_substring(names, "\n"), True).as_py()
    if broken >= 0:
        raise SourceError(
            f"{place} …: the name {shorten(names[broken].as_py())} holds a line break, and names "
            f"are single lines: replace it"
        )
    return names


def join_blocks(blocks: Sequence[Block], width: int) -> tuple[sp.csr_array, AnyArray]:
    """Return the rows of all blocks, and the lines of the names of their columns in order."""
    matrices, lines = [block.X for block in blocks], np.empty(0, dtype=np.uint8)
    if blocks and blocks[0].names is not None:
        columns, lines = sort_names([block.names for block in blocks])
        first, width = 0, int(columns.max(initial=-1)) + 1
        for i, (X, names) in enumerate(blocks):
            last = first + len(names)
            parts = X.data, columns[first:last][X.indices], X.indptr
            matrices[i], first = sp.csr_array(parts, shape=(X.shape[0], width)), last
            matrices[i].sum_duplicates()
    width = max((width, *(X.shape[1] for X in matrices)))
    for X in matrices:
        X.resize(X.shape[0], width)
    return sp.csr_array(sp.vstack([sp.csr_array((0, width)), *matrices])), lines


def sort_names(parts: Sequence[Any]) -> tuple[IntArray, AnyArray]:
    """Return where each name of all parts comes in their order, and the distinct ones as lines."""
    names = pa.concat_arrays([part.cast(pa.large_binary()) for part in parts])
    encoded = names.dictionary_encode()
    # in the order of the lines, as vocabularies are merged
    empty, newline = (pa.scalar(text, pa.large_binary()) for text in (b"", b"\n"))
    texts = compute.binary_join_element_wise(encoded.dictionary, empty, newline)
    order = compute.sort_indices(texts)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    size = compute.sum(compute.binary_length(texts), min_count=0).as_py()
    lines = np.frombuffer(texts.take(order).buffers()[2] or b"", dtype=np.uint8)[:size]
    return rank[encoded.indices.to_numpy()], lines
