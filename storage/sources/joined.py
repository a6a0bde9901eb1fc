"""Several sources as one, such as a file of training samples and one of test samples.

The first part rules: what is guessed of it holds for the others, and they have its columns. So the
rows are the same as of one file with a column that tells the split.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import (
    Documents,
    MatrixSource,
    Rows,
    Source,
    TextSource,
    shorten_names,
)
from bigfs.storage.sources.tables.numeric import NumericTable
from bigfs.types import IntArray

log = logging.getLogger("bigfs.storage")

# what all parts have in common
OF_FIRST = (
    *("version", "target", "unlabeled", "label_separator", "class_names", "label_columns"),
    *("feature_names", "has_names", "hashing", "fixed_names", "may_lack", "categorical"),
    *("may_have_names", "planted", "guessed"),
)


@dataclass(eq=False)
class Joined(Source):
    """Sources one below the other, each with its split or None."""

    format = "joined"
    path: str
    parts: Sequence[tuple[Any, str | None]]
    _: KW_ONLY
    n_features: int | None = None
    sample_shape: tuple[int, int] | None = None
    # where the columns of some parts lie in the first part
    positions: dict[int, IntArray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        first, sources = self.parts[0][0], [part for part, _ in self.parts]
        is_alike = type(self).format == "joined" and len({part.format for part in sources}) == 1
        for name in (*OF_FIRST, *(["format"] if is_alike else [])):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))
        self.labels_are_typed = all(part.labels_are_typed for part in sources)
        self.allows_single = all(part.allows_single for part in sources)
        self.reads_once = any(part.reads_once for part in sources)
        self.memory_per_byte = max(part.memory_per_byte for part in sources)

    def fingerprint(self) -> str:
        return fingerprint_of(
            "joined",
            self.n_features,
            self.sample_shape,
            [(part.fingerprint(), split) for part, split in self.parts],
        )

    def with_parts(self, change: Callable[[int, Any], Any]) -> Self:
        """Return the same source of other parts: `change` gives each by its number."""
        source = copy.copy(self)
        source.parts = [(change(k, part), split) for k, (part, split) in enumerate(self.parts)]
        source.__post_init__()
        return source

    def absolute(self) -> Self:  # its own path is a name
        return self.with_parts(lambda k, part: part.absolute())

    def spool(self, scratch: Path) -> Self:
        return self.with_parts(lambda k, part: part.spool(_folder(scratch, k)))

    def as_decided(self, decided: Mapping[str, Any]) -> Self:
        return self.with_parts(lambda k, part: part.as_decided(decided))

    def replace(self, **changes: Any) -> Self:
        source = self.with_parts(lambda k, part: part.replace(**changes))
        vars(source).update(changes)
        return source

    def prepare(self, scratch: Path) -> Self:
        first = self.parts[0][0].prepare(_folder(scratch, 0))
        decided = first.decided()

        def prepare(k: int, part: Any) -> Any:
            return first if k == 0 else self.prepare_next(part, first, decided, _folder(scratch, k))

        return self.with_parts(prepare)

    def prepare_next(self, part: Any, first: Any, decided: Mapping[str, Any], scratch: Path) -> Any:
        """Return a later part ready for `pieces`, with what was guessed of the first one."""
        if isinstance(part, NumericTable) and isinstance(first, NumericTable):
            _compare_columns(part, first)
        ready = part.as_decided(decided).prepare(scratch)
        if set(ready.obs_columns) != set(first.obs_columns):
            given, known = (", ".join(s.obs_columns) or "none" for s in (ready, first))
            raise SourceError(
                f"{ready.path} has the roles {given}, and {first.path} has {known}: give both the "
                f"same"
            )
        return ready

    @property
    def obs_columns(self) -> dict[str, str]:
        return self.parts[0][0].obs_columns

    def left_out(self) -> list[str]:
        return [name for part, _ in self.parts for name in part.left_out()]

    def decided(self) -> dict[str, Any]:
        return self.parts[0][0].decided()

    def pieces(self, size: int) -> list[tuple[int, Any]]:
        return [(k, piece) for k, (part, _) in enumerate(self.parts) for piece in part.pieces(size)]

    def weight(self, piece: tuple[int, Any]) -> int:
        return self.parts[piece[0]][0].weight(piece[1])

    def _samples(
        self, columns: Mapping[str, Any], split: str | None, n: int, place: samples.Place
    ) -> dict[str, Any]:
        """Return the facts of n samples of a part, with labels, which it may lack, and a split.

        A part that tells other splits is refused.
        """
        told = dict(columns)
        if split is not None:
            own = told.get("split")
            for i, word in enumerate([] if own is None else own.to_pylist()):
                if word not in (None, split):
                    raise SourceError(
                        f"{place(i)}: the split is {word} here, and the source was given for "
                        f"{split}: give it alone, or leave its column out by split="
                    )
            told["split"] = samples.read("split", [split] * n, place)
            if "label" not in told:
                told["label"] = samples.read("label", [None] * n, place)
        return told


@dataclass(eq=False)
class JoinedRows(Joined, MatrixSource):
    """Matrices with the same columns, one below the other."""

    def like_store(self, by_name: bool, hashing: int | None) -> Self:
        return self.with_parts(lambda k, part: part.like_store(by_name, hashing))

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        first = ready.parts[0][0]
        if self.n_features is None:
            ready.n_features = first.n_features
        ready.sample_shape = self.sample_shape or first.sample_shape
        ready.positions = {
            k: position
            for k, (part, _) in enumerate(ready.parts)
            if (position := _positions(part, first)) is not None
        }
        return ready

    def prepare_next(self, part: Any, first: Any, decided: Mapping[str, Any], scratch: Path) -> Any:
        if part.may_have_names:
            part = part.like_store(first.has_names, self.hashing)
        ready = super().prepare_next(part, first, decided, scratch)
        if ready.has_names != first.has_names:
            kinds = ["names" if part.has_names else "numbers" for part in (ready, first)]
            raise SourceError(
                f"{ready.path} has {kinds[0]} of columns, and {first.path} has {kinds[1]}: give "
                f"by_name= for both"
            )
        if list(ready.class_names or ()) != list(first.class_names or ()):
            raise SourceError(
                f"{ready.path} has the classes {shorten_names(ready.class_names or (), 5)}, and "
                f"{first.path} has {shorten_names(first.class_names or (), 5)}: give both the same"
            )
        return ready

    def read(self, piece: tuple[int, Any]) -> Rows:
        part, split = self.parts[piece[0]]
        rows = part.read(piece[1])
        told = self._samples(rows.samples, split, rows.X.shape[0], rows.place)
        rows = rows._replace(samples=told)
        position = self.positions.get(piece[0])
        if position is None:
            return rows
        shape = rows.X.shape[0], len(position)
        X = sp.csr_array((rows.X.data, position[rows.X.indices], rows.X.indptr), shape=shape)
        X.sort_indices()
        return rows._replace(X=X)


@dataclass(eq=False)
class JoinedTexts(Joined, TextSource):
    """Documents one after the other."""

    def read(self, piece: tuple[int, Any]) -> Iterator[Documents]:
        part, split = self.parts[piece[0]]
        for texts, told, place in part.read(piece[1]):
            n = len(next(iter(told.values()))) if told else 0
            yield Documents(texts, self._samples(told, split, n, place), place)


def join(path: str, parts: Sequence[tuple[Source, str | None]], **about: Any) -> Joined:
    """Return sources as one, which are all matrices or all texts."""
    first = parts[0][0]
    for part, _ in parts:
        if isinstance(part, Joined):
            raise SourceError(f"{part.path} is of several files already: give it alone")
        if isinstance(part, TextSource) != isinstance(first, TextSource):
            kinds = ["text" if isinstance(s, TextSource) else "a matrix" for s in (part, first)]
            raise SourceError(
                f"{part.path} is {kinds[0]}, and {first.path} is {kinds[1]}: give both alike, as "
                f"by text= or columns="
            )
    kind = JoinedTexts if isinstance(first, TextSource) else JoinedRows
    made = kind(path, parts, **about)
    made.given = first.given
    return made


def _folder(scratch: Path, k: int) -> Path:
    """Return the folder of a part on scratch, as two parts may write files of one name."""
    folder = Path(scratch) / f"part-{k}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _compare_columns(part: NumericTable, first: NumericTable) -> None:
    """Refuse a table without the columns of the first, and say which others it has."""
    there, known = part.column_names(), first.column_names()
    if lacks := [name for name in (*first.numbers, *first.categorical) if name not in there]:
        raise SourceError(
            f"{part.path} lacks the columns {shorten_names(lacks, 5)} of {first.path}: give files "
            f"with the same columns, or name those that both have by columns="
        )
    if more := [name for name in there if name not in {*known, *part.roles}]:
        log.warning(
            "%s has also the columns %s, which %s lacks: they are left out",
            *(part.path, shorten_names(more, 5), first.path),
        )


def _positions(part: Any, first: Any) -> IntArray | None:
    """Return where the columns of a part lie in the first one, None if at the same places.

    Other columns are refused.
    """
    sizes = [s.n_features for s in (part, first)]
    if None not in sizes and sizes[0] != sizes[1]:
        raise SourceError(
            f"{part.path} has {sizes[0]:,} columns, and {first.path} has {sizes[1]:,}: give files "
            f"with the same columns"
        )
    if part.feature_names is None or first.feature_names is None:
        return None
    mine, names = list(map(str, part.feature_names)), list(map(str, first.feature_names))
    if mine == names:
        return None
    place = {name: j for j, name in enumerate(names)}
    if more := [name for name in mine if name not in place]:
        raise SourceError(
            f"{part.path} has the columns {shorten_names(more, 5)}, which {first.path} lacks: give "
            f"files with the same columns"
        )
    if len(place) < len(names) or len(set(mine)) < len(mine):
        raise SourceError(
            f"{part.path} has its columns in another order than {first.path}, and a name comes "
            f"twice: give files with the same columns"
        )
    return np.array([place[name] for name in mine], dtype=np.int32)
