"""Matrices in NumPy's .npy and .npz files, and what all formats of saved matrices share."""

from __future__ import annotations

import copy
import itertools
import logging
import shutil
import sys
import zipfile
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from bigfs.engine import format_bytes
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.format import disk
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import MatrixSource, Rows
from bigfs.storage.sources.files import decode, decompress, open_text, source_errors
from bigfs.storage.sources.scratch_matrix import (
    CHUNK,
    COMPRESSED,
    ScratchMatrix,
    Triplets,
    open_dense,
    require_compressed,
    transpose_csc,
    turn,
    write_csr,
)
from bigfs.types import AnyArray

log = logging.getLogger("bigfs.storage")

SCALAR_BYTES = 1 << 12  # of a member that holds a word or two numbers
# of a .npz
PARTS = (
    *("X", "y", "data", "indices", "indptr", "row", "col", "format", "shape"),
    "feature_names",
)


@dataclass(eq=False)
class SavedMatrix(MatrixSource):
    """A matrix that `prepare` lays out on scratch. Pieces are row ranges of it."""

    of_samples: ClassVar[tuple[str, ...]] = ("labels", "sample_names")
    path: str
    _: KW_ONLY
    # the names of the columns and of the rows: files with one per line, or lists
    names: Any = None
    sample_names: Any = None
    labels: str | None = None  # a .npy, or a text with a label per line, for a file without labels
    unlabeled: str | None = None  # a label that also means "none"
    target: str | None = None  # "class" or "real"; None lets the labels decide
    label_separator: str | None = None  # that divides the labels of a sample in one text
    transpose: bool | None = None  # whether the columns of the file are the samples
    sample_shape: Any = None  # "32x32" if a row is an image with its pixels columns first
    matrix: ScratchMatrix | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.sample_shape = _image_shape(self.sample_shape)
        samples.require_target(self.target)

    def settings(self) -> tuple[Any, ...]:
        return self.sample_shape, *self.label_rules, *(["turned"] if self.transpose else [])

    def fingerprint(self) -> str:
        if self.labels is not None:
            _require_file(
                self.labels, "labels", "a .npy file or a text file with one label per line"
            )
        files = [self.path] if self.labels is None else [self.path, self.labels]
        lists = identity_of_lists(names=self.names, sample_names=self.sample_names)
        return fingerprint_of(self.format, identity_of(files), self.settings(), *lists)

    @abstractmethod
    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        """Lay out the matrix in `folder` as it is in the file, and return it with its labels."""

    def lay_out(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        """Lay out the matrix with samples as rows. Return it with its own labels, if it has any."""
        matrix, y = self.write_matrix(folder)
        return (turn(matrix, folder / "turned") if self.transpose else matrix), y

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        folder = Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
        with source_errors(f"{self.path} cannot be read as {self.format}"):
            matrix, y = self.lay_out(folder)
            own_names = names_in(folder, "feature_names") if self.names is None else None
        n, d = matrix.shape
        if not n or not d:
            raise SourceError(
                f"{self.path} holds a matrix of {n} × {d}: there is nothing to select from"
            )
        if self.labels is not None:
            y = read_labels(self.labels, n)
        told = {} if y is None else {"label": self._label_column(y, n)}
        if self.sample_names is not None:
            some = read_list(self.sample_names, "sample_names", n, f"rows of {self.path}")
            told["name"] = samples.read("name", some, "row {}".format)
        matrix.save_samples(told)
        image = matrix.image_shape
        if image and self.sample_shape not in (None, image):
            raise SourceError(f"{self.path} holds images of {image}, not {self.sample_shape}")
        if self.sample_shape is not None and np.prod(self.sample_shape) != d:
            raise SourceError(
                f"{self.path} has {d} features per row, which is not an image of "
                f"{self.sample_shape}"
            )
        ready.matrix, ready.n_features = matrix, d
        if self.names is not None:
            ready.feature_names = read_names(self.names, d, f"columns of {self.path}")
        elif own_names is not None:
            if len(own_names) != d:
                raise SourceError(f"{self.path} has {len(own_names)} feature_names for {d} columns")
            ready.feature_names = require_characters(own_names)
        ready.sample_shape = image or self.sample_shape
        return ready

    def _label_column(self, y: Any, n: int) -> Any:
        """Return the labels of n rows as a column of Arrow."""
        origin = self.path if self.labels is None else self.labels
        if isinstance(y, np.ndarray):
            has_rows = y.ndim == 2 and len(y) == n and y.dtype.kind in "biuf"
            if y.size != n and not has_rows:
                raise SourceError(
                    f"{origin} has {y.size} labels for {n} rows: rows are samples, with one label "
                    f"each"
                )
            if y.dtype.kind not in "biufSU":
                raise SourceError(f"{origin}: labels must be texts or numbers; got {y.dtype}")
            y = y if has_rows else y.reshape(-1)
            y = [decode(v) for v in y.tolist()] if y.dtype.kind == "S" else y
            is_number = y.dtype.kind in "iuf" if isinstance(y, np.ndarray) else False
            if is_number and self.unlabeled is not None:
                samples.require_number(self.unlabeled, origin)
            y = samples.as_column(y, origin, self.target == "real")
        return samples.read("label", y, samples.row_places(origin), self.label_rules)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        assert self.matrix is not None
        return self.matrix.pieces(size)

    def read(self, piece: tuple[int, int]) -> Rows:
        assert self.matrix is not None
        return self.matrix.read(piece)


def identity_of_lists(**lists: Any) -> list[Any]:
    """Return what changes with the content of the lists that are given, which may be files."""
    for option, given in lists.items():
        _require_file(given, option)
    return [
        [option, identity_of([given]) if isinstance(given, str) else list(map(str, given))]
        for option, given in lists.items()
        if given is not None
    ]


def _require_file(
    given: Any, option: str, holds: str = "a text file with one name per line"
) -> None:
    if isinstance(given, str) and not Path(given).is_file():
        raise SourceError(f"{given} does not exist: {option}= must name {holds}")


def names_in(folder: Path, name: str) -> list[str] | None:
    """Return the names that a file of arrays holds, None if it has none."""
    file = folder / f"{name}.npy"
    names = disk.load(file) if file.exists() else np.empty(0)
    return [str(value).rstrip() for value in names.ravel()] if names.dtype.kind == "U" else None


def read_list(given: Any, option: str, count: int | None, of: str) -> list[str]:
    """Return the names that an option gives: a list, or a file with one per line.

    In a line with tabs, such as one of genes.tsv, the text before the first one is the name: no
    two genes have it. There must be `count` names, of the things that `of` says. None takes all.
    """
    place = f"{option}="
    if isinstance(given, str):
        place = given
        _require_file(given, option)
        names = [line.partition("\t")[0].strip() for line in read_lines(given, count)]
        while names and len(names) != count and not names[-1]:
            names.pop()
    else:
        names = [str(name) for name in given]
    if count is not None and len(names) != count:
        first = f"there is none for number {len(names) + 1:,}"
        if len(names) > count:
            first = f"the first one too many is {samples.shorten(names[count])}"
        raise SourceError(f"{place} has {len(names):,} names for {count:,} {of}: {first}")
    return names


def read_names(given: Any, count: int | None, of: str) -> list[str]:
    """Return the names of columns that a list or a file gives, each of which must be its own."""
    names = read_list(given, "names", count, of)
    require_distinct(names, f"{given}, line" if isinstance(given, str) else "names=, entry")
    return require_characters(names)


def require_distinct(names: Sequence[str], place: str) -> None:
    """Refuse names of columns of which one is empty or comes twice. They are numbered from 1."""
    lines = dict[str, int]()
    for number, name in enumerate(names, 1):
        if not name or name in lines:
            twice = f"{samples.shorten(name)} comes again, after {lines.get(name)}"
            raise SourceError(
                f"{place} {number:,}: {twice if name else 'there is no name'}: give each feature a "
                f"name of its own"
            )
        lines[name] = number


def unique_names(names: Sequence[str], keys: Sequence[str] | None = None) -> list[str]:
    """Return names as anndata's `var_names_make_unique` does. An empty name becomes its key."""
    unique = list(names) if keys is None else [a or b for a, b in zip(names, keys, strict=True)]
    taken, repeats, first = set(unique), Counter[str](), set[str]()
    for j, name in enumerate(unique):
        while name in first and unique[j] in taken:
            repeats[name] += 1
            unique[j] = f"{name}-{repeats[name]}"
        first.add(name)
        taken.add(unique[j])
    return unique


def note_kinds(kinds: Sequence[str], path: str) -> None:
    """Say that the features of cells are of several kinds, such as genes and antibodies."""
    if len(counts := Counter(kinds)) > 1:
        some = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common(5))
        log.warning("%s: the features are of several kinds, %s: all are read", path, some)


def require_characters(names: list[str]) -> list[str]:
    """Return names of columns, or refuse one that has no bytes in UTF-8."""
    for name in names:
        if samples.without_surrogates(name) != name:
            raise SourceError(
                f"a name of a column is {samples.shorten(name)}, with half of a surrogate pair, "
                f"which has no bytes in UTF-8: replace it"
            )
    return names


def read_lines(path: str, count: int | None, most: int | None = None) -> list[str]:
    """Return at `most` lines of a text, without empty ones behind the `count`-th."""
    count = sys.maxsize if count is None else count
    with source_errors(f"{path} is broken"), open_text(path) as file:
        lines = (decode(line).strip("\r\n") for line in file)
        kept = (line for i, line in enumerate(lines) if i < count or line.strip())
        return list(itertools.islice(kept, most))


def read_labels(path: str, n: int) -> Any:
    """Read labels from a .npy, or a text with one per line, "" if unlabeled, numbers if all are."""
    if path.endswith(".npy"):
        try:
            return disk.load(path)
        except (ValueError, EOFError) as error:
            raise SourceError(f"{path} is not an array of labels: {error}") from error
    words = [line.strip() for line in read_lines(path, n, n + 1)]
    if len(words) != n:
        found = f"more than {n}" if len(words) > n else len(words)
        raise SourceError(
            f"{path} has {found} labels for {n} rows: rows are samples, with one label each"
        )
    numbers = [samples.plain_number(word) if word else None for word in words]
    are_numbers = all(word == "" or v is not None for word, v in zip(words, numbers, strict=True))
    return numbers if are_numbers else words


def _image_shape(text: str | tuple[int, int] | None) -> tuple[int, int] | None:
    """Return (M, N) from "32x32", or from a pair."""
    if text is None:
        return None
    sides: Any = text.lower().replace("×", "x").split("x") if isinstance(text, str) else text
    if len(sides) != 2 or not all(str(s).strip().isdecimal() and int(s) > 0 for s in sides):
        raise SourceError(f"sample_shape must be M x N such as 32x32; got {text!r}")
    return int(sides[0]), int(sides[1])


class Npy(SavedMatrix):
    """A NumPy array of n × d, or a stack of images n × M × N, each flattened columns first."""

    format = "npy"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x93NUMPY")

    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        folder.mkdir(parents=True, exist_ok=True)
        decompress(self.path, folder / "X.npy")  # workers see scratch, but maybe not the source
        return open_dense(folder, self.path), None


class Npz(SavedMatrix):
    """A .npz file of scipy.sparse.save_npz (csr, csc or coo), or one with dense arrays.

    The dense arrays are X (n × d or n × M × N). With either, y holds the labels (n, or n × q for
    several), and texts in feature_names are the names of the columns.
    """

    format = "npz"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        if not head.startswith(b"PK\x03\x04"):
            return False
        if not zipfile.is_zipfile(path):
            return path.suffix == ".npz"  # a truncated one
        with source_errors(f"{path} is a broken zip archive"), zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
        # what np.savez wrote under other names is refused by them
        return "X.npy" in names or {"format.npy", "shape.npy"} <= names or path.suffix == ".npz"

    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.path) as archive:
            names = set(archive.namelist())
            for name in names.intersection(f"{part}.npy" for part in PARTS):
                target = folder / ("own_y.npy" if name == "y.npy" else name)
                size = archive.getinfo(name).file_size
                if name in ("format.npy", "shape.npy") and size > SCALAR_BYTES:
                    raise SourceError(
                        f"{self.path} is broken: its {name} has {format_bytes(size)}, and holds a "
                        f"word or two numbers"
                    )
                with archive.open(name) as packed, open(target, "wb") as out:
                    shutil.copyfileobj(packed, out, 1 << 22)
        if "X.npy" in names:
            matrix = open_dense(folder, self.path)
        elif {"format.npy", "shape.npy", "data.npy"} <= names:
            matrix = self._sparse(folder)
        else:
            raise SourceError(
                f"{self.path} holds {', '.join(map(ascii, sorted(names)))}: it must hold a sparse "
                f"matrix of save_npz, or arrays X and y"
            )
        return matrix, disk.load(folder / "own_y.npy") if "y.npy" in names else None

    def _sparse(self, folder: Path) -> ScratchMatrix:
        def array(name: str) -> Any:
            return disk.map_file(folder / f"{name}.npy")

        kind = np.asarray(array("format")).item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if kind not in ("csr", "csc", "coo"):
            raise SourceError(f"{self.path} holds a {kind} matrix: save X.tocsr() instead")
        n, d = (int(side) for side in array("shape"))
        names = ("data", "row", "col") if kind == "coo" else COMPRESSED
        parts = {name: array(name) for name in names if (folder / f"{name}.npy").exists()}
        if kind == "csr":
            require_compressed(parts, kind, (n, d), self.path)
            return ScratchMatrix(str(folder), self.path, (n, d))
        if kind == "csc":
            return transpose_csc(folder / "rows", self.path, parts, (n, d))
        if len(parts) < 3 or len({part.shape for part in parts.values()}) > 1:
            shapes = ", ".join(f"{name} {part.shape}" for name, part in parts.items())
            raise SourceError(
                f"{self.path} is broken: data, row and col must have one shape; it has {shapes}"
            )

        def entries() -> Iterator[Triplets]:
            for start in range(0, len(parts["data"]), CHUNK.value):
                cut = slice(start, start + CHUNK.value)
                row, column, value = (
                    np.asarray(parts[name][cut]) for name in ("row", "col", "data")
                )
                yield row, column, value

        return write_csr(folder / "rows", self.path, entries, (n, d), parts["data"].dtype)
