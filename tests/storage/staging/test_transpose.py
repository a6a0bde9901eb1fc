"""The out-of-core transpose cuts a segment's entries into ranges: each range against the dense
matrix.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs.storage.staging import transpose
from bigfs.storage.staging.scratch import write_block
from bigfs.storage.staging.transpose import BlockColumns, ColumnSpan


def spilled(X, sizes, folder):
    """Some rows of X after the other as blocks on scratch."""
    blocks, first = [], 0
    for i, size in enumerate(sizes):
        part = write_block(str(folder / f"block-{i}"), sp.csr_array(X[first : first + size]), None)
        blocks.append(BlockColumns(part.path, part.present, part.nnz, first))
        first += size
    return [block for block in blocks if block.nnz]


def span_of(entries, start, stop):
    """The span of the entries [start, stop), which are (column, row) in column order."""
    columns = entries[:, 0]
    first, last = columns[start], columns[stop - 1]
    begins = np.searchsorted(columns, [first, last])
    return ColumnSpan(first, last + 1, start - begins[0], stop - begins[1])


MATRICES = {
    "sparse": lambda rng: rng.random((23, 9)) * (rng.random((23, 9)) < 0.3),
    "one column of five is empty": lambda rng: rng.random((23, 5)) * [1, 1, 0, 1, 1],
    "one dense column": lambda rng: rng.random((23, 1)),
    "a lone entry in every column": lambda rng: np.diag(rng.random(23)),
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("sizes", [(23,), (1, 9, 0, 13), (8, 8, 7), (1,) * 23])
def test_every_range_of_entries_is_that_of_the_dense_matrix(name, sizes, tmp_path):
    X = MATRICES[name](np.random.default_rng(0)).astype(np.float32)
    entries = np.argwhere(X.T)  # (column, row), column by column
    blocks = spilled(X, sizes, tmp_path)
    for start in range(len(entries)):
        for stop in range(start + 1, len(entries) + 1, 3):
            span = span_of(entries, start, stop)
            found = []
            for columns, counts, rows, values, first in transpose.clipped_blocks(span, blocks):
                where = np.repeat(columns + span.start, counts), rows + first
                found += zip(*where, values, strict=True)
            expected = [(j, i, X[i, j]) for j, i in entries[start:stop]]
            assert sorted(found) == expected
