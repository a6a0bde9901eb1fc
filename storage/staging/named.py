"""Rows whose columns have names: read once, and numbered by the vocabulary of all of them.

    read     per piece: write the rows by columns of their own, and the sorted names of these
    merge    merge the names of all pieces as streams, as those of text are
    number   per piece: look the names up, and write the rows with the columns of the store

Columns come in the order of the names, so the store does not depend on the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from storage.sources.base import MatrixSource
from storage.staging.scratch import RowBlock, open_array, save, write_block
from storage.staging.split import read_parts
from storage.staging.text.hashing import hash_names, write_first_names
from storage.staging.text.vocabularies import find_columns, merge_vocabularies


def read_named(
    source: MatrixSource, pieces: Sequence[Any], scratch: Path
) -> tuple[list[RowBlock], int, str]:
    """Return blocks in the order of the pieces, d, and the file of the names of the columns."""
    blocks, names = _read(source, pieces, scratch), scratch / "vocabulary.terms"
    d = source.hashing
    if d:
        in_order = sorted(blocks, key=lambda block: block.split == "test")
        write_first_names([block.path for block in in_order], d, names)
    else:
        d = len(merge_vocabularies([block.path for block in blocks], names, scratch))
    return _number(blocks, None if source.hashing else str(names)), d, str(names)


def _read(source: MatrixSource, pieces: Sequence[Any], scratch: Path) -> list[RowBlock]:
    paths = [str(scratch / f"named-{i:06d}") for i in range(len(pieces))]
    blocks = engine.map_tiles(_read_piece, pieces, source, each=[paths], label="read")
    return [block for piece in blocks for block in piece]


def _read_piece(piece: Any, path: str, source: MatrixSource) -> list[RowBlock]:
    blocks = []
    for block, rows in read_parts(piece, path, source):
        X, terms = rows.X, rows.terms
        assert terms is not None
        if source.hashing:
            X = hash_names(block.path, terms, X, source.hashing)
        else:
            Path(f"{block.path}.terms").write_bytes(terms.data)
            save(block.path, df=np.ones(X.shape[1], dtype=np.int32))
        save(block.path, values=X.data, names_of=X.indices, starts=X.indptr)
        blocks.append(block)
    return blocks


def _number(blocks: Sequence[RowBlock], names: str | None) -> list[RowBlock]:
    return engine.map_tiles(_number_block, blocks, names, label="number names")


def _number_block(block: RowBlock, names: str | None) -> RowBlock:
    values, codes, starts = (
        np.array(open_array(block.path, name)) for name in ("values", "names_of", "starts")
    )
    if names is None:
        column = open_array(block.path, "hashed")
    else:  # −1 for names outside the vocabulary
        lines = np.fromfile(f"{block.path}.terms", dtype=np.uint8)
        column = find_columns(lines, len(open_array(block.path, "df")), names)
    columns = column[codes]
    known = columns >= 0
    starts = np.append(0, np.cumsum(known))[starts]
    width = int(columns.max(initial=-1)) + 1
    X = sp.csr_array((values[known], columns[known], starts), shape=(block.rows, width))
    return write_block(block.path, X, block.split, block.labels, block.named)
