"""Triplets: records of a sample, a feature and a value, as databases keep sparse rows.

They come in any order. Each piece is sorted by the samples and written to scratch as a run, in the
numbers of its own names. A piece of the prepared source is a range of samples, whose triplets it
takes out of all runs. So samples come in the order of their names, as texts, and features are
merged as all names are. Values of the same sample and feature are added.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.format import disk
from bigfs.storage.lazy import pa
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import MatrixSource, Rows, shorten
from bigfs.storage.sources.tables.names import sort_names
from bigfs.storage.sources.tables.records import Batch, Records

RUN_BYTES = Setting(32 << 20)  # of input that are sorted at a time
TRIPLET = 16  # bytes of input that a triplet counts as
MARKS = 256  # names of samples in a run, between which pieces are cut


class Run(NamedTuple):
    """Triplets on scratch, in the order of their samples."""

    path: str
    size: int

    @property
    def ids(self) -> Any:
        """The distinct names of the samples in order."""
        return samples.open_columns(f"{self.path}.ids")["name"]

    @property
    def features(self) -> Any:
        """The names of the numbers of features."""
        return samples.open_columns(f"{self.path}.features")["name"]

    def array(self, name: str) -> Any:
        """Map the features' numbers, the values, or where the triplets of each sample start."""
        return disk.map_file(f"{self.path}.{name}.npy")


@dataclass(eq=False, kw_only=True)
class TripletRecords(Records, MatrixSource):
    """Records of a sample, a feature and a value."""

    triplets: str | Sequence[str]  # the three fields. Without the last one every value is 1
    memory_per_byte = 32
    may_have_names = has_names = True
    runs: list[Run] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fields = samples.split_names(self.triplets)
        if len(self.fields) not in (2, 3):
            raise SourceError(
                f"triplets= must name the columns of the sample, the feature and the value, such "
                f"as id,feature,value; got {shorten(self.triplets)}"
            )
        self.require_no_roles("a record")

    @property
    def roles(self) -> tuple[str, ...]:
        return self.fields

    @property
    def named_fields(self) -> list[tuple[str, str]]:
        return [*(("triplets", name) for name in self.fields), *super().named_fields]

    def wanted_fields(self, fields: list[str]) -> list[str]:
        return [name for name in self.fields if name in fields]

    def prepare(self, scratch: Path) -> Self:
        """Sort the triplets of each piece by their samples, on the workers."""
        ready = super().prepare(scratch)
        pieces = ready.pieces(min(RUN_BYTES.value, engine.memory_limit() // self.memory_per_byte))
        paths = [str(scratch / f"run-{i:06d}") for i in range(len(pieces))]
        ready.runs = engine.map_tiles(_sort, pieces, ready, each=[paths], label="sort triplets")
        return ready

    def pieces(self, size: int) -> list[Any]:
        """Return ranges of names of samples: the first one, and the one behind the last."""
        if self.runs is None:
            return super().pieces(size)
        marks: list[tuple[str, int]] = []
        for run in self.runs:
            step = max(1, -(-run.size // MARKS))
            at = np.searchsorted(run.array("starts"), np.arange(0, run.size, step), side="right")
            ids = run.ids.take(samples.from_numpy(at - 1))
            marks += [(name, step) for name in ids.to_pylist()]
        cuts, room = [""], size
        for name, count in sorted(marks):
            if room < TRIPLET * count and name != cuts[-1]:
                cuts.append(name)
                room = size
            room -= TRIPLET * count
        return [*itertools.pairwise([*cuts, None])]

    def weight(self, piece: Any) -> int:
        return 0 if self.runs is not None else super().weight(piece)

    def read(self, piece: tuple[str, str | None]) -> Rows:
        names: list[Any] = []
        features: list[Any] = []
        row: list[Any] = []
        column: list[Any] = []
        value: list[Any] = []
        n = d = 0
        for run in self.runs or ():
            ids, starts = run.ids, run.array("starts")
            first, last = (len(ids) if name is None else place_of(ids, name) for name in piece)
            if first == last:
                continue
            cut = slice(int(starts[first]), int(starts[last]))
            codes, inside = np.unique(run.array("features")[cut], return_inverse=True)
            names.append(ids.slice(first, last - first))
            features.append(run.features.take(samples.from_numpy(codes)))
            row.append(np.repeat(np.arange(n, n + last - first), np.diff(starts[first : last + 1])))
            column.append(inside + d)
            value.append(np.asarray(run.array("values")[cut]))
            n, d = n + last - first, d + len(codes)
        if not names:
            return Rows(sp.csr_array((0, 0)), terms=np.empty(0, np.uint8))
        order, lines = sort_names(names)
        places, terms = sort_names(features)
        told = samples.from_texts(lines.tobytes().decode().split("\n")[:-1])
        X = _added(
            order[np.concatenate(row)],
            places[np.concatenate(column)],
            np.concatenate(value),
            (len(told), int(places.max()) + 1),
        )

        def place(i: int) -> str:
            return f"{self.path}: the sample {shorten(told[i].as_py())}"

        if len(told) == 1:  # which cannot be cut
            self.require_record_fits(TRIPLET * X.nnz, place(0))
        return Rows(checks.require_values(X, place), {"name": told}, terms, place)


def place_of(ids: Any, name: str) -> int:
    """Return where a name is, or would be, among those in order."""
    return bisect_left(range(len(ids)), name, key=lambda i: ids[i].as_py())


def _added(row: Any, column: Any, value: Any, shape: tuple[int, int]) -> sp.csr_array:
    """Return triplets as rows. Those of one place are added, the least values first."""
    key = row.astype(np.int64) * shape[1] + column
    order = np.argsort(key, kind="stable")
    if len(key) and not np.diff(key[order]).all():  # the sum is the same in any order of triplets
        order = np.lexsort((value, key))
    key = key[order]
    first = np.flatnonzero(np.append(True, np.diff(key) > 0))
    data = np.add.reduceat(value[order], first)
    starts = np.searchsorted(key[first], np.arange(shape[0] + 1) * shape[1])
    columns = (key[first] % shape[1]).astype(np.int32)
    return sp.csr_array((data, columns, starts.astype(np.int32)), shape=shape)


def _sort(piece: Any, path: str, source: TripletRecords) -> Run:
    """Write the triplets of a piece in the order of their samples."""
    texts: dict[str, list[Any]] = {"ids": [], "features": []}
    values: list[Any] = []
    for batch in source.batches(piece):
        for name, column in zip(texts, source.fields, strict=False):
            texts[name].append(batch.names(column))
        if len(source.fields) == 2:
            values.append(np.ones(batch.length))
        else:
            values.append(_values_of(batch, source.fields[2], source.as_numbers))
    codes = {}
    for name, parts in texts.items():
        order, lines = sort_names(parts or [pa.array([], pa.large_string())])
        codes[name] = order
        distinct = samples.from_texts(lines.tobytes().decode().split("\n")[:-1])
        samples.write(f"{path}.{name}", {"name": distinct})
    order = np.argsort(codes["ids"], kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(codes["ids"])))
    disk.save(f"{path}.starts.npy", starts.astype(np.int64))
    disk.save(f"{path}.features.npy", codes["features"][order])
    disk.save(f"{path}.values.npy", np.concatenate([*values, np.empty(0)])[order])
    return Run(path, len(order))


def _values_of(batch: Batch, column: str, as_numbers: Callable[[Any], Any]) -> Any:
    """Return the values of a batch, or refuse one that is no number."""
    try:
        numbers = as_numbers(batch.array(column))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"{batch.place(0)} …: {column!r} does not hold numbers "
            f"({shorten(str(error).splitlines()[0])}): triplets= names it as the value"
        ) from error
    if numbers.null_count:
        i = int(np.argmin(samples.to_numpy(numbers.is_valid())))
        raise SourceError(f"{batch.place(i)}: the value in {column!r} is missing: write a number")
    return samples.to_numpy(numbers).astype(np.float64)
