"""A store that anndata wrote, used where it lies: by rows, as its writer left it, with no checksums
and no columns of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.matrix import Matrix
from bigfs.types import AnyArray
from storage.corpus import Corpus
from storage.errors import StoreError
from storage.sources.anndata import AnnData
from storage.staging import labels, scratch
from storage.staging.bounds import TILE_NNZ, bounds

LARGEST = 1 << 26  # bytes of a chunk: all of it is decoded for every tile that touches it


def is_anndata(path: str) -> bool:
    return AnnData.sniff(Path(path), b"")


@dataclass(frozen=True)
class Tile:
    """Rows [start, stop)."""

    source: AnnData
    identity: str
    start: int
    stop: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.identity, "rows", self.start, self.stop)

    def load(self) -> sp.csr_array:
        return self.source.rows(self.start, self.stop).astype(np.float32)


class AnnDataCorpus(Corpus):
    """What `Corpus` has of it; X by rows only.

    Graphs, `append`, `check` and `info` need a staged store and say so.

    Raises
    ------
    StoreError : its matrix is not csr, or its chunks are larger than a task should decode.
    """

    def __init__(self, uri: str) -> None:
        self.uri, self.source = uri, AnnData(uri)
        self.indptr, largest = self.source.row_layout()
        if largest > LARGEST:
            raise StoreError(
                f"{uri} has chunks of {largest >> 20} MB, too large to read by "
                f"rows where they lie: stage it"
            )
        self.source = self.source.unpacked(Path())
        self._annotations = self.source.annotations(0, len(self.indptr) - 1)

    @property
    def manifest(self) -> Any:  # type: ignore[override]  # a field of a staged corpus
        raise StoreError(
            f"{self.uri} is an AnnData store, and this step needs a staged "
            f"store: bigfs stage {self.uri} STORE"
        )

    store = manifest  # type: ignore[assignment]  # the same

    @property
    def splits(self) -> tuple[str, ...]:
        return (
            ()
            if self.split is None
            else tuple(half for half in ("train", "test") if half in self.split)
        )

    def part(self, split: str) -> Corpus:
        if split not in self.splits:
            raise StoreError(
                f"{self.uri} has no rows of split {split!r}; it has "
                f"{', '.join(self.splits) or 'no split'}"
            )
        some = object.__new__(AnnDataCorpus)
        rows = np.flatnonzero(self.split == split)
        # one that has splits has a `split`, which the type does not say
        some.__dict__ |= self.__dict__ | {
            "X": self.X.take_rows(rows),
            "y": self.y[rows],
            "split": self.split[rows],  # type: ignore[index]
        }
        some.__dict__["sample_names"] = self.sample_names[rows]
        return some

    @cached_property
    def X(self) -> Matrix:
        identity, cuts = self.source.fingerprint(), bounds([np.diff(self.indptr)], TILE_NNZ)
        tiles = [Tile(self.source, identity, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
        return Matrix((len(self.indptr) - 1, int(self.source.n_features or 0)), rows=tiles)

    @cached_property
    def _target(self) -> tuple[str | None, AnyArray, list[str]]:
        """Its kind, y and the class names."""
        if self._annotations[0] is None:
            return None, np.full(len(self.indptr) - 1, -1, dtype=np.int64), []
        classes, codes, texts, whole = labels.distinct_labels(self._annotations[0])
        target = labels.common_target(
            [classes], [scratch.LabelKind(texts, whole, sets=False)], None, None
        )
        return target.kind, labels.encode(classes, codes, target), list(target.class_names)

    @cached_property
    def y(self) -> Any:
        return self._target[1]

    @cached_property
    def class_names(self) -> list[str]:
        return self._target[2]

    @cached_property
    def split(self) -> AnyArray | None:
        return self._annotations[1]

    @cached_property
    def sample_names(self) -> AnyArray:
        names = self._annotations[2]
        return (np.arange(len(self.indptr) - 1).astype(np.str_) if names is None else names).astype(
            object
        )

    @cached_property
    def feature_names(self) -> Any:
        d = self.X.shape[1]
        return np.array(
            np.arange(d).astype(np.str_)
            if self.source.feature_names is None
            else self.source.feature_names,
            dtype=object,
        )

    @property
    def spec(self) -> dict[str, Any]:
        fingerprint = self.source.fingerprint()
        source: dict[str, Any] = {
            "uri": self.uri,
            "format": "anndata",
            "fingerprint": fingerprint,
            "sample_shape": None,
            "planted": None,
        }
        source |= (
            {}
            if self.source.label_columns is None
            else {"label_columns": self.source.label_columns}
        )
        told = {
            "shape": self.X.shape,
            "nnz": int(self.indptr[-1]),
            "target": self._target[0],
            "source": source,
            "content": fingerprint,
        }
        return told | {name: source[name] for name in ("fingerprint", "sample_shape", "planted")}
