"""Rows of a matrix on scratch, and those whose columns have names: in a new store, or in one that
is there.

    read     per piece and split: write the rows, by columns of their own where these have names
    merge    merge the names of all pieces as streams
    number   per block: look the names up, and write the rows with the columns of the store

Columns come in the order of the names, so the store does not depend on the pieces. Terms of text
are names too, which are counted in place of read. Rows that come later are looked up as they are
read, and what has a name that the store lacks is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.storage.errors import SourceError
from bigfs.storage.format.manifest import STRING_CHUNK
from bigfs.storage.scaling import Scaling
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.base import MatrixSource, Rows, seen_by_workers, shorten_names
from bigfs.storage.staging.scratch import (
    RowBlock,
    SampleFacts,
    delete,
    forget,
    open_array,
    read_once,
    save,
    save_samples,
    write_block,
)
from bigfs.storage.staging.text.hashing import buckets_of, hash_names, name_buckets
from bigfs.storage.staging.text.vocabularies import find_columns, merge_vocabularies
from bigfs.types import AnyArray, IntArray


def read_blocks(
    source: Any, pieces: Sequence[Any], scratch: Path, label: str = "read"
) -> list[RowBlock]:
    """Read the pieces of a source on the workers, and put their rows on scratch.

    It reads `Rows` as a `MatrixSource` does. Terms of text are counted in its place.
    """
    paths = [str(scratch / f"rows-{i:06d}") for i in range(len(pieces))]
    blocks = engine.map_tiles(_read_piece, pieces, source, each=[paths], label=label)
    return list(itertools.chain.from_iterable(blocks))


def _read_piece(piece: Any, path: str, source: Any) -> list[RowBlock]:
    return read_once(path, lambda: list(_read_parts(piece, path, source)))


def _read_parts(piece: Any, path: str, source: Any) -> Iterator[RowBlock]:
    """Write the rows of each split of a piece, and yield their blocks."""
    with seen_by_workers(source.path):
        rows = source.read(piece)
    # our own formats refuse such values earlier and name the line
    checks.require_values(rows.X, lambda row: f"{source.path}: row {row} of the part {piece}")
    columns = dict(rows.samples)
    splits = columns.pop("split", None)
    parts: list[tuple[str, str | None, Any]] = [(path, None, np.arange(rows.X.shape[0]))]
    if splits is not None and splits.null_count < len(splits):
        codes, names = samples.as_codes(splits.dictionary_encode())
        halves = {name: np.flatnonzero(codes == i) for i, name in enumerate(names.to_pylist())}
        parts = [
            (f"{path}-{half}", half, halves[half]) for half in samples.SPLITS if half in halves
        ]
    for to, split, index in parts:
        X = rows.X if split is None else rows.X[index]
        told = save_samples(to, columns, index, rows.place, source.labels_are_typed)
        if rows.terms is None:
            yield write_block(to, X, split, told)
        else:
            yield save_named(to, rows.terms, X, source.hashing, split, told)


# --- columns with names ---------------------------------------------------------------------------


class Names(NamedTuple):
    """The columns that blocks with names are to get."""

    size: int  # d
    lines: str  # the file of their names, in order if they are not hashed
    is_hashed: bool


def save_named(
    path: str,
    lines: AnyArray,
    X: sp.csr_array,
    hashing: int | None,
    split: str | None,
    told: SampleFacts,
) -> RowBlock:
    """Write rows to scratch, by columns that have the names of the lines or are to be hashed."""
    if hashing:
        X = hash_names(path, lines, X, hashing)
    else:
        Path(f"{path}.terms").write_bytes(lines.data)
    n, d = X.shape
    df = np.bincount(X.indices, minlength=d).astype(np.int32)
    save(path, values=X.data, names_of=X.indices, starts=X.indptr, df=df)
    return RowBlock(path, split, n, X.nnz, d, 0, told)


def learn_names(
    blocks: Sequence[RowBlock],
    training: Sequence[RowBlock],
    hashing: int | None,
    scratch: Path,
    least: float = 0,
    most: float = np.inf,
) -> tuple[Names, IntArray]:
    """Return the names that are in `least` to `most` training rows, and the number of these."""
    lines = scratch / "vocabulary.terms"
    if hashing:
        df = np.zeros(hashing, dtype=np.int64)
        for block in training:
            df[open_array(block.path, "hashed")] += open_array(block.path, "df")
        name_buckets(blocks, hashing, lines)
    else:
        df = merge_vocabularies([block.path for block in training], lines, scratch, least, most)
    return Names(len(df), str(lines), bool(hashing)), df


def number(
    blocks: Sequence[RowBlock], names: Names, units: tuple[dict[str, Any], str] | None = None
) -> list[RowBlock]:
    """Write blocks with the columns of `names`, in units of which the factors lie on scratch."""
    label = "number names" if units is None else "weigh terms"
    numbered = engine.map_tiles(_number_block, blocks, names, units, label=label)
    for folder in {Path(block.path).parent for block in blocks}:
        forget(folder)
    delete(blocks, "values.npy", "names_of.npy", "starts.npy")
    return numbered


def _number_block(
    block: RowBlock, names: Names, units: tuple[dict[str, Any], str] | None
) -> RowBlock:
    parts = (np.asarray(open_array(block.path, name)) for name in ("values", "names_of", "starts"))
    X = sp.csr_array(tuple(parts), shape=(block.rows, block.width))
    if names.is_hashed:
        column = open_array(block.path, "hashed")
    else:
        column = find_columns(np.fromfile(f"{block.path}.terms", dtype=np.uint8), names.lines)
    X = _renumbered(X, column, names.size)
    if units is not None:
        settings, path = units
        X = Scaling(settings, open_array(path, "factors")).apply(X)
    return write_block(block.path, X, block.split, block.told)


def _renumbered(X: sp.csr_array, column: IntArray, d: int) -> sp.csr_array:
    """Return rows with other columns, without those whose new column is −1."""
    columns = column.astype(np.int32)[X.indices]
    known = columns >= 0
    starts = np.append(np.int32(0), np.cumsum(known, dtype=np.int32))[X.indptr]
    X = sp.csr_array((X.data[known], columns[known], starts), shape=(X.shape[0], d))
    X.sum_duplicates()
    return X


# --- rows for a store that is there ---------------------------------------------------------------


def name_lines(names: Sequence[str]) -> Iterator[bytes]:
    """Yield names in UTF-8, each followed by a newline, some at a time. A line break is a space."""
    for first in range(0, len(names), STRING_CHUNK):
        some = (f"{name}".replace("\n", " ") for name in names[first : first + STRING_CHUNK])
        yield "".join(f"{name}\n" for name in some).encode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class Columns:
    """The columns of a store, which rows of other sources are to get."""

    place: str  # of the store or the run, for messages
    size: int  # d
    lines: Callable[[], Iterable[bytes]] | None = None  # gives their names, if they have names
    by_name: bool = False  # whether the rows had names for their entries. Lines are in order then
    hashing: int | None = None  # to how many columns these names were hashed

    def adopt(self, source: MatrixSource) -> MatrixSource:
        """Return a source that reads names where the store has names."""
        return source.like_store(self.by_name, self.hashing) if source.may_have_names else source

    def number(self, source: MatrixSource, scratch: Path) -> MatrixSource:
        """Return a prepared source with the columns of the store.

        They are found by their names where both have names, and else by their places. One that the
        store lacks is left out. One that the source lacks is zero, unless both have fixed columns.
        """
        fixed = None if self.lines is None else source.feature_names
        if self.hashing and not source.has_names:
            raise SourceError(
                f"{source.path} has no names for its entries, and those of {self.place} are "
                f"hashed: give by_name=true where numbers are names, or stage all samples again"
            )
        if source.has_names and self.lines is None and not self.hashing:
            raise SourceError(
                f"{source.path} has names of columns, and {self.place} has numbers: stage all "
                f"samples again, or give by_name=false where the names are numbers"
            )
        if self.hashing:
            return Numbered(source, self.hashing, partial(buckets_of, hashing=self.hashing))
        if self.lines is None or not (source.has_names or fixed):
            return source
        own = b"" if fixed is None else b"".join(name_lines(fixed))
        if not source.has_names and own == b"".join(self.lines()):
            return source
        path = str(scratch / "columns")
        names = self._write(path)
        locate = partial(_locate, path=path, is_sorted=names is None)
        if source.has_names:
            if source.fixed_names or source.may_lack:
                known = {name.encode() + b"\n" for name in source.fixed_names}
                lines = names if names is not None else _lines_of(self.lines())
                self._require_all([line for line in lines if line not in known], source)
            return Numbered(source, self.size, locate)
        mine = _distinct_lines(own, source.path)
        order = sorted(range(len(mine)), key=mine.__getitem__)
        position = np.empty(len(mine), dtype=np.int64)
        position[order] = locate(np.frombuffer(b"".join(sorted(mine)), dtype=np.uint8))
        if names is not None:
            absent = np.setdiff1d(np.arange(self.size), position)
            self._require_all([names[j] for j in absent.tolist()], source)
        save(path, position=position)
        return Numbered(source, self.size, partial(_read_positions, path=path))

    def _write(self, path: str) -> list[bytes] | None:
        """Write the lines in order, and their numbers. Return the lines of fixed columns."""
        assert self.lines is not None
        with open(f"{path}.terms", "wb") as out:
            if self.by_name:
                out.writelines(self.lines())
                return None
            names = _distinct_lines(b"".join(self.lines()), self.place)
            out.writelines(sorted(names))
        save(path, order=np.array(sorted(range(len(names)), key=names.__getitem__)))
        return names

    def _require_all(self, absent: Sequence[bytes], source: MatrixSource) -> None:
        """Refuse a source without a column. The category of a column may be absent."""
        missing = [name.decode("utf-8", "surrogatepass")[:-1] for name in absent]
        if missing := [name for name in missing if not name.startswith(source.may_lack)]:
            raise SourceError(
                f"{source.path} lacks {len(missing):,} of the {self.size:,} columns of "
                f"{self.place}, such as {shorten_names(missing, 3)}: give a source that has them"
            )


def _lines_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        yield from (line + b"\n" for line in part.split(b"\n")[:-1])


def _distinct_lines(raw: bytes, place: str) -> list[bytes]:
    """Return lines, or refuse them where one comes twice."""
    lines = [line + b"\n" for line in raw.split(b"\n")[:-1]]
    if len(set(lines)) < len(lines):
        raise SourceError(
            f"{place} has columns of the same name, so they cannot be found by their names: give "
            f"the same columns in the same order, or rename them"
        )
    return lines


def _locate(lines: AnyArray, path: str, is_sorted: bool) -> IntArray:
    found = find_columns(lines, f"{path}.terms")
    return found if is_sorted else np.where(found < 0, -1, open_array(path, "order")[found])


def _read_positions(lines: None, path: str) -> AnyArray:
    return open_array(path, "position")


class Numbered(MatrixSource):
    """The rows of a source with the d columns of a store, which `locate` gives for its own."""

    def __init__(
        self, source: MatrixSource, d: int, locate: Callable[[AnyArray | None], IntArray]
    ) -> None:
        self.source, self.d, self.n_features, self.locate = source, d, d, locate
        self.path, self.memory_per_byte = source.path, source.memory_per_byte

    def fingerprint(self) -> str:
        return self.source.fingerprint()

    def pieces(self, size: int) -> list[Any]:
        return self.source.pieces(size)

    def read(self, piece: Any) -> Rows:
        return read_numbered(self, piece)[0]


def read_numbered(source: MatrixSource, piece: Any) -> tuple[Rows, int]:
    """Return the rows of a piece, and how many values were left out as the store lacks them."""
    if not isinstance(source, Numbered):
        return source.read(piece), 0
    rows = source.source.read(piece)
    column = source.locate(rows.terms)
    left_out = int(np.count_nonzero(column[rows.X.indices] < 0))
    return rows._replace(X=_renumbered(rows.X, column, source.d), terms=None), left_out
