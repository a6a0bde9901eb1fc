"""Matrix Market files, plain or compressed."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.sources import checks
from bigfs.storage.sources.arrays import SavedMatrix
from bigfs.storage.sources.files import open_decompressed, open_text, source_errors
from bigfs.storage.sources.scratch_matrix import (
    CHUNK,
    ScratchMatrix,
    Triplets,
    open_dense,
    write_csr,
)

# what the names of files hold that list samples or features, one per line
LISTS = {"samples": ("barcode", "cell", "sample"), "features": ("gene", "feature", "vocab", "term")}
LIST_SUFFIXES = (".tsv", ".txt", ".csv")


class MatrixMarket(SavedMatrix):
    """A general matrix of real numbers, integers or a pattern, as coordinates or as an array.

    It is read in chunks, whatever the order of its entries.
    """

    format = "mtx"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head[:14].lower() == b"%%matrixmarket"

    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, None]:
        layout, field, symmetry, shape, nnz, start = self._header()
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
                header = {"descr": "<f8", "fortran_order": True, "shape": shape}
                np.lib.format.write_array_header_1_0(out, header)
                for table in self._tables(["value"], start, nnz):
                    out.write(table["value"].to_numpy(dtype="<f8").tobytes())
            return open_dense(folder, self.path), None

        names = ["row", "column"] if field == "pattern" else ["row", "column", "value"]

        def entries() -> Iterator[Triplets]:
            for table in self._tables(names, start, nnz):
                value = np.ones(len(table)) if field == "pattern" else table["value"].to_numpy()
                yield table["row"].to_numpy() - 1, table["column"].to_numpy() - 1, value

        return write_csr(folder, self.path, entries, shape, np.float64), None

    def require_samples_as_rows(self) -> None:
        """Refuse a matrix whose columns are the samples, or may be, by the lists next to it."""
        folder, shape = Path(self.path).parent, self._header()[3]
        for path in sorted(folder.iterdir()):
            name = path.name.removesuffix(".gz").lower().removeprefix(_stem(self.path))
            listed = {what for what, words in LISTS.items() if any(word in name for word in words)}
            if not path.is_file() or not name.endswith(LIST_SUFFIXES) or len(listed) != 1:
                continue
            [what] = listed
            with source_errors(f"{path} is broken"), open_text(path) as file:
                lines = sum(not line.isspace() for line in file)
            count = lines if lines in shape else lines - 1  # below a header
            rows, columns = (side == count for side in shape)
            if columns if what == "samples" else rows:
                if rows != columns:
                    raise SourceError(
                        f"{self.path} has its samples as columns, by the {lines:,} lines of "
                        f"{path.name}: turn it, as by scipy.io.mmwrite('samples.mtx', "
                        f"scipy.io.mmread(FILE).T), or give format=mtx if its rows are the samples"
                    )
                raise SourceError(
                    f"{self.path} has as many rows as columns, so that {path.name} does not tell "
                    f"which are the samples: give format=mtx if its rows are"
                )

    def _tables(self, names: list[str], start: int, count: int) -> Iterator[Any]:
        """Yield the lines after the first `start`, in chunks. There must be `count` of them."""
        import pandas as pd

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
                    chunksize=CHUNK,
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


def _stem(path: str) -> str:
    return Path(path).name.removesuffix(".gz").removesuffix(".mtx").lower()
