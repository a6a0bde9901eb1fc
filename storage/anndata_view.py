"""A store that anndata wrote, used where it lies: a folder, or a bucket.

It is read by rows, in blocks of about the size of a tile, as its writer left it. It has no
checksums, no layout by columns and no statistics. Nothing is written there.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.settings import Setting
from bigfs.storage import fingerprint as identities
from bigfs.storage.downloads import remote
from bigfs.storage.errors import StoreError
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format.manifest import STRING_CHUNK
from bigfs.storage.format.tiles import SampleNames
from bigfs.storage.roles import SampleRoles
from bigfs.storage.scaling import LOGNORM, NONE, SETTINGS, Scaling, require_counts
from bigfs.storage.sources import find, samples
from bigfs.storage.sources.anndata import AnnData
from bigfs.storage.sources.base import parse_options
from bigfs.storage.sources.samples import Target
from bigfs.storage.sources.scratch_matrix import bounds
from bigfs.storage.staging.scale_blocks import unit_settings
from bigfs.storage.staging.scratch import TILE_NNZ
from bigfs.types import AnyArray

OBS_ROWS = Setting(1 << 18)  # of obs that a task reads
MAX_CHUNK_BYTES = Setting(1 << 26)  # every tile decodes all chunks that it touches


def open_in_place(uri: str) -> AnnDataCorpus | None:
    """Open a folder or URL that anndata wrote, with the options that follow it, or return None."""
    if remote.is_remote(uri):
        path, query = remote.split_options(uri)
        is_folder = remote.is_folder(path)
    else:
        path, _, query = (uri, "", "") if os.path.isdir(uri) else uri.partition("?")
        is_folder = os.path.isdir(path)
    if not is_folder or not AnnData.is_group(path):
        return None
    if manifests.is_there(path):
        raise StoreError(f"{path} is a staged corpus, which has no options: leave out {query}")
    options: dict[str, Any] = parse_options(query)
    units = {name: options.pop(name) for name in SETTINGS if name in options}
    source = find(path, **{"format": AnnData.format} | options)
    assert isinstance(source, AnnData)
    return AnnDataCorpus(uri, source, _target_sum(uri, **units))


def _target_sum(
    uri: str,
    weight: str | None = None,
    target_sum: str | None = None,
    scale: str = NONE,
    sublinear_tf: Any = True,
) -> float | None:
    """Return the sum of a row under the weights that need no pass of their own."""
    try:
        total = None if target_sum is None else float(target_sum)
    except ValueError:
        raise StoreError(f"target_sum must be a number above 0; got {target_sum}") from None
    settings = unit_settings(weight, scale, sublinear_tf, total, False, uri)
    if settings and "target_sum" not in settings:
        raise StoreError(
            f"{uri} is read where it lies, where only weight=lognorm with a target_sum= can be "
            f"applied: others are fitted on all rows, so stage it"
        )
    return total


@dataclass(frozen=True)
class AnnDataTile:
    """Rows [start, stop) of the store, log-normalized to a sum if one is given."""

    source: AnnData
    identity: str
    start: int
    stop: int
    target_sum: float | None = None
    place: float | None = field(default=None, compare=False)
    verified: ClassVar[bool] = True  # the source checks its rows

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.identity, self.target_sum, self.start, self.stop)

    def load(self) -> sp.csr_array:
        X = self.source.rows(self.start, self.stop)
        if not X.data.all():
            X.eliminate_zeros()
        X = X.astype(np.float32)
        if self.target_sum is None:
            return X
        require_counts(X, self.source.path, LOGNORM)
        return _units(self.target_sum, X.shape[1]).apply(X)


def _units(target_sum: float, d: int) -> Scaling:
    return Scaling({"weight": LOGNORM, "target_sum": target_sum}, np.full(d, target_sum))


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


def _read_samples(piece: tuple[int, int], source: AnnData) -> dict[str, Any]:
    return source.samples(*piece)


class AnnDataCorpus(SampleRoles):
    """A corpus of a matrix, csr or dense, that anndata wrote in chunks of a fit size.

    Graphs, `append`, `check` and `info` need a staged store.
    """

    def __init__(self, uri: str, source: AnnData, target_sum: float | None = None) -> None:
        self.uri, self.source, self.target_sum = uri, source, target_sum
        self.n, self.nnz, largest = source.row_layout()
        if largest > MAX_CHUNK_BYTES.value:
            raise StoreError(
                f"{uri} has chunks of {largest >> 20} MB, too large to read by "
                f"rows where they lie: stage it"
            )
        described = source.describe()
        d = int(described.n_features or 0)
        self.label_columns, self.is_named = (
            described.label_columns,
            described.feature_names is not None,
        )
        self.feature_names: Any = _names_or_numbers(described.feature_names, d)

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"<AnnDataCorpus {self.uri}: {n} × {d}>"

    @cached_property
    def identity(self) -> str:
        """A hash of the names, sizes and dates of the files, none of which is read for it."""
        with identities.by_dates():
            return self.source.fingerprint()

    @property
    def units(self) -> Scaling | None:
        """The units of the values, None for the units of the store."""
        return None if self.target_sum is None else _units(self.target_sum, len(self.feature_names))

    @cached_property
    def X(self) -> Matrix:
        """The matrix, by rows."""
        d, cuts = len(self.feature_names), bounds(self.source.row_lengths(), TILE_NNZ.value)
        tiles = [
            AnnDataTile(
                *(self.source, self.identity, start, stop, self.target_sum),
                place=(i + 0.5) / (len(cuts) - 1),
            )
            for i, (start, stop) in enumerate(zip(cuts, cuts[1:], strict=False))
        ]
        return Matrix(
            (self.n, d),
            rows=tiles,
            feature_names=self.feature_names if self.is_named else None,
            meta=sp.csr_array((0, d), dtype=np.float32),
            batches=self.batches,
        )

    @cached_property
    def _samples(self) -> dict[str, Any]:
        """The facts of the samples in obs, by the roles of its columns."""
        ranges = [(a, min(a + OBS_ROWS.value, self.n)) for a in range(0, self.n, OBS_ROWS.value)]
        parts = engine.map_tiles(_read_samples, ranges, self.source)
        places = [(b - a, samples.row_places(self.source.path, a)) for a, b in ranges]
        return samples.join(parts, places)

    @cached_property
    def _target(self) -> Target:
        labels, place = self._samples.get("label"), samples.row_places(self.source.path)
        kind = None if labels is None else samples.kind_of(labels, place)
        categories = map(samples.categories_of, [labels])
        names = self.source.class_names
        return samples.common_target(categories, [kind] if kind else [], self.source.target, names)

    @property
    def target(self) -> str | None:
        """The kind of target, as in the manifest of a store."""
        return self._target.kind

    @property
    def class_names(self) -> list[str]:
        """The names of the classes by their codes, or of several real targets. Empty without."""
        return list(self._target.class_names)

    @cached_property
    def y(self) -> Any:
        """The targets of the samples, as in `Corpus`."""
        kind, labels = self.target, self._samples.get("label")
        if kind in manifests.MATRICES:
            sets = samples.encode_matrix(labels, self._target)
            return sets if kind == "multilabel" else sets.toarray()
        if kind is None:
            return np.full(self.n, -1, dtype=np.int32)
        y = samples.encode(labels, self._target)
        return y if kind == "real" else y.astype(np.int32)

    @cached_property
    def split(self) -> AnyArray | None:
        """The name of the split per sample. None if obs has no such column."""
        column = self._samples.get("split")
        if column is None or column.null_count:  # of all rows, or of none
            return None
        return np.asarray(column.to_numpy(zero_copy_only=False).astype("U5"))

    @property
    def roles(self) -> dict[str, str]:
        """The column of obs that gives each "group", "batch", "sample_weight" or "time"."""
        return self.source.obs_columns

    def categories(self, role: str) -> list[str]:
        """Return the names of all groups or batches by their codes, as `Corpus.categories` does."""
        if role not in self.roles:
            return []
        return sorted(samples.categories_of(self._samples[role]).to_pylist())

    def _codes(self, role: str) -> AnyArray | None:
        if role not in self.roles:
            return None
        code = {name: i for i, name in enumerate(self.categories(role))}
        found = samples.as_codes(self._samples[role])
        codes = [code[name] for name in found.categories.to_pylist()]
        return np.array(codes, dtype=np.int32)[found.codes]

    def _values(self, role: str) -> AnyArray | None:
        if role not in self.roles:
            return None
        return self._samples[role].to_numpy(zero_copy_only=False)

    @cached_property
    def sample_names(self) -> Any:
        """The names of the samples, read as they are asked for."""
        named = self.source.sample_names(0, 0) is not None
        return SampleNames(RowNames(self.source), "obs", [(0, self.n)], named)

    @property
    def splits(self) -> tuple[str, ...]:
        return () if self.split is None else tuple(s for s in ("train", "test") if s in self.split)

    def part(self, split: str) -> AnnDataCorpus:
        """Take the samples of one split."""
        self._require_split(split)
        rows, part = np.flatnonzero(self.split == split), copy.copy(self)
        part.X, part.sample_names = self.X.take_rows(rows), self.sample_names[rows]
        for name in ("y", "split", "groups", "batches", "sample_weight", "times"):
            values = getattr(self, name)
            setattr(part, name, None if values is None else values[rows])
        return part

    def _anndata(self, file: str | None) -> AnnData:
        return self.source if file is None else AnnData(file)

    @property
    def spec(self) -> dict[str, Any]:
        """Description of the store as plain data, as of `Corpus`."""
        from_source = {"fingerprint": self.identity, "sample_shape": None, "planted": None}
        source: dict[str, Any] = {"uri": self.uri, "format": "anndata"} | from_source
        if self.label_columns is not None:
            source["label_columns"] = self.label_columns
        if self.roles:
            source["roles"] = self.roles
        return {
            "shape": self.X.shape,
            "nnz": self.nnz,
            "target": self.target,
            "source": source,
            "content": identities.fingerprint_of(self.identity, self.target_sum),
        } | from_source


def _names_or_numbers(names: Any, size: int) -> AnyArray:
    return np.array(np.arange(size).astype(np.str_) if names is None else names, dtype=object)
