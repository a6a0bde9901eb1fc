"""Matrix Market files, plain or compressed."""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import pd
from bigfs.storage.sources import checks
from bigfs.storage.sources.arrays import SavedMatrix, note_kinds, read_lines, unique_names
from bigfs.storage.sources.files import open_decompressed, source_errors, suffix_of, walk
from bigfs.storage.sources.scratch_matrix import (
    CHUNK,
    ScratchMatrix,
    Triplets,
    open_dense,
    write_csr,
)

# what the names of files are that list samples or features, one per line
LISTS = {
    "samples": re.compile(r"(barcode|cell|sample)s?"),
    "features": re.compile(r"(gene|feature|term)s?|vocab(ulary)?"),
}
LIST_SUFFIXES = (".tsv", ".txt", ".csv")
NAME_FIELDS = ("id", "name")  # of a line of Cell Ranger's features.tsv


@dataclass(eq=False, kw_only=True)
class MatrixMarket(SavedMatrix):
    """A general matrix of real numbers, integers or a pattern, as coordinates or as an array.

    It is read in chunks, whatever the order of its entries. Lists next to it give the names of its
    samples and features and tell which side they name, as in a folder of Cell Ranger: there its
    columns are the samples.
    """

    format = "mtx"

    def __post_init__(self) -> None:
        super().__post_init__()
        if os.path.isdir(self.path):
            matrices = matrices_in(self.path)
            if len(matrices) != 1:
                raise SourceError(
                    f"{self.path} holds {len(matrices)} matrices .mtx with a list of samples or "
                    f"features beside them: give one by its path"
                )
            [self.path] = matrices
        if lists := lists_beside(self.path):
            with source_errors(f"{self.path} is broken"):
                self._take_lists({what: read_lines(path, 0) for what, path in lists.items()})

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head[:14].lower() == b"%%matrixmarket"

    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, None]:
        layout, field, symmetry, shape, nnz, start = self._header()
        shape, order = shape[::-1] if self.transpose else shape, not self.transpose
        if field not in ("real", "integer", "unsigned-integer", "pattern") or symmetry != "general":
            raise SourceError(
                f"{self.path} holds a {field} {symmetry} matrix: it must be "
                f"real, integer or pattern, and general"
            )
        if layout == "array":
            folder.mkdir(parents=True, exist_ok=True)
            # the file grows with its values, not to the size that the header states
            with open(folder / "X.npy", "wb") as out:
                # column by column, like the source
                header = {"descr": "<f8", "fortran_order": order, "shape": shape}
                np.lib.format.write_array_header_1_0(out, header)
                for table in self._tables(["value"], start, nnz):
                    out.write(table["value"].to_numpy(dtype="<f8").tobytes())
            return open_dense(folder, self.path), None

        names = ["row", "column"] if order else ["column", "row"]
        names += [] if field == "pattern" else ["value"]

        def entries() -> Iterator[Triplets]:
            for table in self._tables(names, start, nnz):
                value = np.ones(len(table)) if field == "pattern" else table["value"].to_numpy()
                yield table["row"].to_numpy() - 1, table["column"].to_numpy() - 1, value

        return write_csr(folder, self.path, entries, shape, np.float64), None

    def lay_out(self, folder: Path) -> tuple[ScratchMatrix, None]:
        return self.write_matrix(folder)  # which turns the matrix as it is read

    def _take_lists(self, lists: Mapping[str, list[str]]) -> None:
        """Take the lists next to the matrix as names, and find out which sides they name."""
        shape, side = self._header()[3], {"samples": 0, "features": 1}
        fits = {
            turned: {w: len(lines) - shape[side[w] ^ turned] for w, lines in lists.items()}
            for turned in (False, True)
        }
        # a list may have a header, and one that has as many lines as no side is of something else
        known = {w for w in lists if any(fits[turned][w] in (0, 1) for turned in fits)}
        might = [turned for turned in fits if all(fits[turned][w] in (0, 1) for w in known)]
        exact = [turned for turned in might if not any(fits[turned][w] for w in known)]
        if self.transpose is None and known:
            if len(exact or might) != 1:
                raise SourceError(
                    f"{self.path} has {shape[0]:,} rows and {shape[1]:,} columns, so that the "
                    f"lines of {' and '.join(sorted(known))} next to it do not tell which are the "
                    f"samples: give transpose=true if its columns are, or transpose=false"
                )
            [self.transpose] = exact or might
            self.guessed = (*self.guessed, "transpose")
        named = {w for w in known if not fits[bool(self.transpose)][w]}
        wanted = "id" if self.names is None else self.names
        if "features" in named and isinstance(wanted, str) and wanted in NAME_FIELDS:
            rows = [line.split("\t") for line in lists["features"]]
            field = NAME_FIELDS.index(wanted)
            self.names = unique_names([row[min(field, len(row) - 1)] for row in rows])
            note_kinds([row[2] for row in rows if len(row) > 2], self.path)
        if "samples" in named and self.sample_names is None:
            self.sample_names = [line.partition("\t")[0] for line in lists["samples"]]

    def _tables(self, names: list[str], start: int, count: int) -> Iterator[Any]:
        """Yield the lines after the first `start`, in chunks. There must be `count` of them."""
        kinds = {name: np.float64 if name == "value" else np.int64 for name in names}
        seen = 0
        with open_decompressed(self.path) as file, warnings.catch_warnings():
            # a line with more columns than the others
            warnings.simplefilter("error", pd.errors.ParserWarning)
            for _ in range(start):
                file.readline()
            try:
                with pd.read_csv(
                    file,
                    sep=r"\s+",
                    names=names,
                    dtype=kinds,
                    header=None,
                    index_col=False,
                    chunksize=CHUNK.value,
                    quoting=csv.QUOTE_NONE,
                ) as tables:
                    for table in tables:
                        seen += len(table)
                        if seen > count:
                            break
                        yield table
            except pd.errors.EmptyDataError:
                pass  # no entry; the count is checked below
            except (ValueError, pd.errors.ParserError, pd.errors.ParserWarning) as error:
                raise SourceError(
                    f"{self.path}, after line {start + seen}: {str(error).strip().splitlines()[0]}"
                ) from error
        if seen != count:
            raise SourceError(
                f"{self.path} announces {count} entries and holds "
                f"{'fewer' if seen < count else 'more'}: it is incomplete"
            )

    def _header(self) -> tuple[str, str, str, tuple[int, int], int, int]:
        """Return layout, field, symmetry, shape, number of entries, and number of lines before."""
        with open_decompressed(self.path) as file:
            words = file.readline(1 << 10).decode("ascii", "replace").lower().split()
            line, count = file.readline(1 << 16), 2
            while line.startswith(b"%") or (line and not line.strip()):
                line, count = file.readline(1 << 16), count + 1
        sizes = line.decode("ascii", "replace").split()
        if len(words) != 5 or words[1] != "matrix" or words[2] not in ("array", "coordinate"):
            raise SourceError(
                f"{self.path}, line 1: expected a header such as '%%MatrixMarket matrix "
                f"coordinate real general'"
            )
        if len(sizes) != (3 if words[2] == "coordinate" else 2) or not all(
            s.isdecimal() for s in sizes
        ):
            raise SourceError(
                f"{self.path}, line {count}: rows, "
                f"columns{' and entries' if words[2] == 'coordinate' else ''} were "
                f"expected"
            )
        n, d, *nnz = (int(s) for s in sizes)
        checks.require_shape(n, d, self.path)
        return words[2], words[3], words[4], (n, d), nnz[0] if nnz else n * d, count


def matrices_in(folder: str) -> list[str]:
    """Return the matrices of a folder that have lists beside them."""
    paths = [os.path.join(folder, name) for name in walk(folder) if suffix_of(name) == ".mtx"]
    return list(filter(lists_beside, paths))


def lists_beside(matrix: str) -> dict[str, str]:
    """Return the files beside a matrix that list its samples or its features."""
    folder, name = os.path.split(matrix)
    stem = name.removesuffix(".gz").removesuffix(".mtx").removesuffix("matrix")
    found: dict[str, str] = {}
    for other in sorted(os.listdir(folder or ".")):
        base, suffix = os.path.splitext(other.removesuffix(".gz"))
        for what, words in LISTS.items():
            word = base.removeprefix(stem).strip("._-").lower()
            is_list = suffix in LIST_SUFFIXES and words.fullmatch(word)
            if is_list and (what not in found or (stem and other.startswith(stem))):
                found[what] = os.path.join(folder, other)
    return found
