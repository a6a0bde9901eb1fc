"""A store that anndata wrote, used where it lies.

It is read by rows, as its writer left it. It has no checksums and no layout by columns.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bigfs.matrix import Matrix
from bigfs.types import AnyArray
from storage.errors import StoreError
from storage.format.manifest import STRING_CHUNK
from storage.format.tiles import SampleNames
from storage.sources.anndata import AnnData
from storage.staging import labels, scratch
from storage.staging.scratch import TILE_NNZ, bounds
from storage.write_back import write_selector

MAX_CHUNK_BYTES = 1 << 26  # every tile decodes all chunks that it touches


def is_anndata(path: str) -> bool:
    """Return whether a folder is a store that anndata wrote."""
    return AnnData.sniff(Path(path), b"")


@dataclass(frozen=True)
class AnnDataTile:
    """Rows [start, stop) of the store."""

    source: AnnData
    identity: str
    start: int
    stop: int
    place: float | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.identity, "rows", self.start, self.stop)

    def load(self) -> sp.csr_array:
        return self.source.rows(self.start, self.stop).astype(np.float32)


@dataclass(frozen=True)
class RowNames:
    """Read the names of rows for `SampleNames`, as a `StoreRef` does."""

    source: AnnData

    def read(self, path: str, start: int, stop: int) -> AnyArray:
        names = self.source.sample_names(start, stop)
        assert names is not None  # `SampleNames` asks only where there are names
        return names

    def chunk(self, path: str) -> int:
        return STRING_CHUNK


class AnnDataCorpus:
    """A corpus of a csr matrix that anndata wrote in chunks of a fit size.

    Graphs, `append`, `check` and `info` need a staged store, as do groups, batches, weights and
    times.
    """

    groups = batches = sample_weight = times = None
    roles: ClassVar[dict[str, str]] = {}

    def __init__(self, uri: str) -> None:
        self.uri, source = uri, AnnData(uri)
        self.indptr, largest = source.row_layout()
        if largest > MAX_CHUNK_BYTES:
            raise StoreError(
                f"{uri} has chunks of {largest >> 20} MB, too large to read by "
                f"rows where they lie: stage it"
            )
        self.source = source.prepare(Path())
        d = int(self.source.n_features or 0)
        self.feature_names: Any = _names_or_numbers(self.source.feature_names, d)

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"<AnnDataCorpus {self.uri}: {n} × {d}>"

    @cached_property
    def X(self) -> Matrix:
        """The matrix, by rows."""
        d = len(self.feature_names)
        identity, cuts = self.source.fingerprint(), bounds([np.diff(self.indptr)], TILE_NNZ)
        tiles = [
            AnnDataTile(self.source, identity, start, stop, place=(i + 0.5) / (len(cuts) - 1))
            for i, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False))
        ]
        return Matrix(
            (len(self.indptr) - 1, d),
            rows=tiles,
            feature_names=None if self.source.feature_names is None else self.feature_names,
            meta=sp.csr_array((0, d), dtype=np.float32),
        )

    @cached_property
    def _annotations(self) -> tuple[str | None, AnyArray, list[str], AnyArray | None]:
        n = len(self.indptr) - 1
        y, split, _ = self.source.annotations(0, n)
        return *_target(y, n), split

    @cached_property
    def target(self) -> str | None:
        return self._annotations[0]

    @cached_property
    def y(self) -> AnyArray:
        return self._annotations[1]

    @cached_property
    def class_names(self) -> list[str]:
        return self._annotations[2]

    @cached_property
    def split(self) -> AnyArray | None:
        return self._annotations[3]

    @cached_property
    def sample_names(self) -> Any:
        """The names of the samples, read as they are asked for."""
        named = self.source.sample_names(0, 0) is not None
        return SampleNames(RowNames(self.source), "obs", [(0, len(self.indptr) - 1)], named)

    @property
    def splits(self) -> tuple[str, ...]:
        return () if self.split is None else tuple(s for s in ("train", "test") if s in self.split)

    @property
    def has_test_half(self) -> bool:
        return {"train", "test"} <= set(self.splits)

    def part(self, split: str) -> AnnDataCorpus:
        """Take the samples of one split."""
        if self.split is None or split not in self.splits:
            raise StoreError(
                f"{self.uri} has no rows of split {split!r}; it has "
                f"{', '.join(self.splits) or 'no split'}"
            )
        rows, part = np.flatnonzero(self.split == split), copy.copy(self)
        part.X, part.y, part.split = self.X.take_rows(rows), self.y[rows], self.split[rows]
        part.sample_names = self.sample_names[rows]
        return part

    def obsp(self, name: str, file: str | None = None) -> sp.csr_array:
        """Read a graph of the samples, as `Corpus.obsp` does."""
        source = self.source if file is None else AnnData(file)
        return source.obsp(name, self.sample_names.tolist())

    def write_var(
        self, selector: Any, file: str | None = None, *, highly_variable: bool = False
    ) -> str:
        """Write a selector's choice into this folder or a file, as `Corpus.write_var` does."""
        path = self.uri if file is None else str(file)
        names, d = self.source.feature_names, len(self.feature_names)
        return write_selector(selector, path, names, d, highly_variable=highly_variable)

    @property
    def spec(self) -> dict[str, Any]:
        fingerprint = self.source.fingerprint()
        from_source = {"fingerprint": fingerprint, "sample_shape": None, "planted": None}
        source: dict[str, Any] = {"uri": self.uri, "format": "anndata"} | from_source
        if self.source.label_columns is not None:
            source["label_columns"] = self.source.label_columns
        return {
            "shape": self.X.shape,
            "nnz": int(self.indptr[-1]),
            "target": self.target,
            "source": source,
            "content": fingerprint,
        } | from_source


def _target(y: Any, n: int) -> tuple[str | None, AnyArray, list[str]]:
    """Return the kind of the target, the codes or values of n labels and the names of classes."""
    if y is None:
        return None, np.full(n, -1, dtype=np.int64), []
    classes, codes, texts, whole = labels.distinct_labels(y)
    kind = scratch.LabelKind(texts, whole, sets=False)
    target = labels.common_target([classes], [kind], None, None)
    return target.kind, labels.encode(classes, codes, target), list(target.class_names)


def _names_or_numbers(names: Any, size: int) -> AnyArray:
    return np.array(np.arange(size).astype(np.str_) if names is None else names, dtype=object)
