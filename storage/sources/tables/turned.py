"""Tables with a row for each feature and a column for each sample, as archives of genes have them.

Their numbers are written to scratch as the rows of samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.sources import samples
from bigfs.storage.sources.arrays import require_distinct
from bigfs.storage.sources.base import MatrixSource, Rows
from bigfs.storage.sources.scratch_matrix import ScratchMatrix, Triplets, write_csr
from bigfs.storage.sources.tables.numeric import INDEX_NAMES, NumberTable, first_gaps
from bigfs.storage.sources.tables.records import MatrixRecords


@dataclass(eq=False, kw_only=True)
class TurnedTable(NumberTable, MatrixSource):
    """A table with a row for each feature and a column for each sample."""

    memory_per_byte = MatrixRecords.memory_per_byte
    transpose: bool = True
    # the column that names the features, by default the index of pandas or the first one
    names: str | None = None
    matrix: ScratchMatrix | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.transpose:
            raise SourceError(f"{self.path}: the rows of a table are samples without transpose=")
        self.require_no_roles("a column")
        columns = self.column_names()
        known = (name for name in (self.names, *INDEX_NAMES) if name in columns)
        self.name = self.names or next(known, "".join(columns[:1]))
        self.missing = "mean" if self.is_auto and self.missing is None else self.missing

    @property
    def named_fields(self) -> list[tuple[str, str]]:
        return [*([("names", self.names)] if self.names else []), *super().named_fields]

    def prepare(self, scratch: Path) -> Self:
        """Write the rows of the samples to scratch, with the means where they are asked for."""
        ready = super().prepare(scratch)
        cells = ready._features(ready.column_names())
        texts = (batch.names(str(self.name)) for batch in ready._every())
        names = [name for some in texts for name in some.to_pylist()]
        ready.feature_names, ready.n_features = names, len(names)
        require_distinct(names, f"{self.path}, record")
        means = dict(self.means or {})

        def entries() -> Iterator[Triplets]:
            first = 0
            for batch in ready._every():
                some = names[first : first + batch.length]
                table, faults = ready._numbers(batch, cells)
                if faults:
                    ready._refuse_columns(batch, faults)
                if self.missing is None and (gaps := first_gaps(table, cells)):
                    ready._refuse_missing(batch, gaps)
                if self.missing == "mean" and self.means is None:
                    counts = np.count_nonzero(~np.isnan(table), axis=1)
                    sums = np.nansum(table, axis=1, dtype=np.longdouble)
                    means.update(zip(some, map(float, sums / np.maximum(counts, 1)), strict=True))
                fills = np.array([means.get(name, 0.0) for name in some])
                table = np.where(np.isnan(table), fills[:, None], table)
                row, column = np.nonzero(table)
                yield column, row + first, table[row, column]
                first += batch.length

        shape = len(cells), len(names)
        ready.matrix = write_csr(scratch / "turned", self.path, entries, shape, np.float64)
        ready.matrix.save_samples({"name": samples.from_texts(cells)})
        ready.means = means or None
        return ready

    def pieces(self, size: int) -> list[Any]:
        return super().pieces(size) if self.matrix is None else self.matrix.pieces(size)

    def weight(self, piece: Any) -> int:
        return 0

    def read(self, piece: tuple[int, int]) -> Rows:
        assert self.matrix is not None
        return self.matrix.read(piece)
