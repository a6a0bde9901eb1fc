"""AnnData on disk, .h5ad (h5py) or .zarr, read by its published encoding, without anndata.

A csr or dense matrix is read in row ranges where it lies. A csc one is transposed on scratch.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import zarr
import zarr.errors
from zarr.storage import LocalStore

from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.format.checked import CheckedStore
from storage.sources import checks
from storage.sources import labels as label_rules
from storage.sources.anndata_columns import read_column
from storage.sources.base import MatrixSource, Rows
from storage.sources.hdf5 import open_hdf5
from storage.sources.scratch_matrix import (
    ScratchMatrix,
    check_rows,
    csc_triplets,
    flatten_rows,
    make_csr,
    row_ranges,
    save_triplets,
)

HDF5 = b"\x89HDF\r\n\x1a\n"


class AnnData(MatrixSource):
    """An annotated matrix.

    Parameters
    ----------
    path : str
        The file or folder.
    layer : str or None, default=None
        Read ``layers[layer]`` instead of ``X``.
    label, split : str or None, default=None
        Columns of ``obs`` with the labels, and with "train" or "test". None takes the columns
        "label" and "split", if there are any. A missing category is unlabeled.
    unlabeled : str or None, default=None
        A label that also means "none".
    """

    format = "anndata"

    def __init__(
        self,
        path: str,
        *,
        layer: str | None = None,
        label: str | None = None,
        split: str | None = None,
        unlabeled: str | None = None,
    ) -> None:
        self.path, self.layer, self.label, self.split, self.unlabeled = (
            path,
            layer,
            label,
            split,
            unlabeled,
        )
        self.scratch_matrix: ScratchMatrix | None = None

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        if not path.is_dir():
            return head.startswith(HDF5)
        if not any((path / name).exists() for name in ("zarr.json", ".zgroup")):
            return False
        try:
            return "encoding-type" in zarr.open_group(path, mode="r").attrs
        except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError):
            return False

    def fingerprint(self) -> str:
        path = Path(self.path)
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        return fingerprint_of(
            self.format, identity_of(files), self.layer, self.label, self.split, self.unlabeled
        )

    def prepare(self, scratch: Path) -> Self:
        """Read the shape and the names, and transpose a csc matrix on scratch."""
        ready = copy.copy(self)
        with self._file() as file:
            X, kind, (n, d) = self._matrix(file)
            if not n or not d:
                raise SourceError(
                    f"{self.path} holds a matrix of {n} × {d}: there is nothing to select from"
                )
            ready.n_features = d
            names = self._index(file, "var", d)
            ready.feature_names = None if names is None else names.tolist()
            columns = self._columns(file)
            ready.label_columns = columns if self.label is None and "label" not in columns else None
            if kind == "csc_matrix":
                folder = Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}"
                indptr = self._indptr(X, d)
                ready.scratch_matrix = save_triplets(
                    folder,
                    self.path,
                    lambda: csc_triplets(X["data"], X["indices"], indptr),
                    (n, d),
                    X["data"].dtype,
                )
            elif kind == "csr_matrix":
                self._indptr(X, n)
        return ready

    def _indptr(self, X: Any, size: int) -> AnyArray:
        """Return the indptr of a sparse matrix, checked against its indices and values."""
        checks.require_room(size + 1, self.path)
        if (
            X["indptr"].shape != (size + 1,)
            or X["data"].shape != X["indices"].shape
            or X["data"].ndim != 1
        ):
            raise SourceError(
                f"{self.path} is broken: the lengths of data, indices and "
                f"indptr do not match its shape"
            )
        return checks.require_indptr(X["indptr"][:], size, X["data"].shape[0], self.path)

    def read_feature_names(self) -> AnyArray:
        """Read the names of the features alone.

        Raises
        ------
        SourceError
            The file has no data frame `var` of a current version of AnnData.
        """
        with self._file() as file:
            if "var" not in file or "_index" not in file["var"].attrs:
                raise SourceError(
                    f"{self.path} has no var of a current AnnData version: write it again with "
                    f"anndata"
                )
            return self._read_index(file, "var", None)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        if self.scratch_matrix:
            return self.scratch_matrix.pieces(size)
        with self._file() as file:
            X, kind, (n, d) = self._matrix(file)
            return row_ranges(
                n, 8 * n * d if kind == "array" else 12 * X["data"].shape[0] + 8 * n, size
            )

    def read(self, piece: tuple[int, int]) -> Rows:
        return Rows(self.rows(*piece), *self.annotations(*piece))

    def rows(self, start: int, stop: int) -> sp.csr_array:
        """Read rows [start, stop) of the matrix."""
        with self._file() as file:
            X, kind, (_, d) = self._matrix(file)
            if self.scratch_matrix:
                rows = self.scratch_matrix.read((start, stop)).X
            elif kind == "array":
                checks.require_room(3 * (stop - start) * d, self.path)
                rows = flatten_rows(np.asarray(X[start:stop]), self.path)
            else:
                rows = self._csr(X, start, stop, d)
        return check_rows(rows, self.path, start)

    def annotations(self, start: int, stop: int) -> tuple[Any, AnyArray | None, AnyArray | None]:
        """Read the labels, splits and names of rows [start, stop), each None if there are none."""
        with self._file() as file:
            y = self._column(file, self.label, "label", start, stop)
            split = self._column(file, self.split, "split", start, stop)
            names = self._index(file, "obs", self._matrix(file)[2][0], start, stop)
        if y is not None:
            y = label_rules.as_label_array(y, stop - start, self.unlabeled, self.path)
        if split is not None:
            split = np.ma.filled(split.astype(object), "")
            if not set(split) <= {"train", "test"}:
                raise SourceError(
                    f"{self.path}: obs[{self.split or 'split'!r}] must hold train and test only"
                )
        return y, split, names

    def row_layout(self) -> tuple[AnyArray, int]:
        """Return the indptr of a csr matrix, and the bytes of its largest chunk.

        Raises
        ------
        SourceError
            The matrix has another encoding.
        """
        with self._file() as file:
            X, kind, (n, _) = self._matrix(file)
            if kind != "csr_matrix":
                raise SourceError(
                    f"{self.path} holds X as {kind}, which cannot be read by "
                    f"rows in place: stage it"
                )
            largest = max(
                X[part].chunks[0] * X[part].dtype.itemsize for part in ("data", "indices")
            )
            return self._indptr(X, n).astype(np.int64), largest

    def _csr(self, X: Any, start: int, stop: int, d: int) -> sp.csr_array:
        indptr = np.asarray(X["indptr"][start : stop + 1], dtype=np.int64)
        cut = slice(int(indptr[0]), int(indptr[-1]))
        return make_csr(
            np.asarray(X["data"][cut]),
            np.asarray(X["indices"][cut]),
            indptr,
            (stop - start, d),
            self.path,
        )

    # --- the encoding ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        """Open the root group. Errors of a broken file become one line with its name."""
        try:
            if Path(self.path).is_dir():
                yield zarr.open_group(CheckedStore(LocalStore(self.path, read_only=True)), mode="r")
            else:
                with open_hdf5(self.path) as file:
                    yield file
        except SourceError:
            raise
        except (OSError, KeyError, ValueError, RuntimeError, zarr.errors.BaseZarrError) as error:
            raise SourceError(
                f"{self.path} is broken, or not AnnData: "
                f"{str(error).splitlines()[0] if str(error) else error!r}"
            ) from error

    def _matrix(self, file: Any) -> tuple[Any, str, tuple[int, int]]:
        where = "X" if self.layer is None else f"layers/{self.layer}"
        if where not in file:
            layers = ", ".join(file["layers"]) if "layers" in file else ""
            raise SourceError(f"{self.path} has no {where}; its layers are: {layers or 'none'}")
        X = file[where]
        kind = X.attrs.get("encoding-type", "array" if hasattr(X, "dtype") else None)
        if kind not in ("csr_matrix", "csc_matrix", "array"):
            raise SourceError(
                f"{self.path}: {where} has the encoding {kind!r}: only csr_matrix, "
                f"csc_matrix and array can be read"
            )
        shape = tuple(int(side) for side in (X.shape if kind == "array" else X.attrs["shape"]))
        if len(shape) != 2:
            raise SourceError(f"{self.path}: {where} has {len(shape)} dimensions, not 2")
        if kind != "array" and (
            missing := [name for name in ("data", "indices", "indptr") if name not in X]
        ):
            raise SourceError(
                f"{self.path} is broken: {where} is a {kind} without {', '.join(missing)}"
            )
        return X, kind, checks.require_shape(*shape, self.path)

    def _index(
        self, file: Any, frame: str, length: int, start: int = 0, stop: int | None = None
    ) -> AnyArray | None:
        return self._read_index(file, frame, length, start, stop) if frame in file else None

    def _read_index(
        self, file: Any, frame: str, length: int | None, start: int = 0, stop: int | None = None
    ) -> AnyArray:
        """Read the names of samples or features, of which there are `length`."""
        name = file[frame].attrs.get("_index", "_index")
        column = read_column(
            file[frame][name], f"{self.path}: {frame}[{name!r}]", length, start, stop
        )
        names = np.ma.filled(column.astype(object), "nan")  # as anndata shows a missing name
        return np.array([str(name) for name in names], dtype=object)

    def _columns(self, file: Any) -> list[str]:
        """Return the names of the columns of obs."""
        return (
            [c for c in file["obs"] if c != file["obs"].attrs.get("_index", "_index")]
            if "obs" in file
            else []
        )

    def _column(
        self, file: Any, name: str | None, default: str, start: int, stop: int
    ) -> AnyArray | None:
        if "obs" not in file and name is None:
            return None
        columns = self._columns(file)
        if name is None and default not in columns:
            return None
        if (name or default) not in columns:
            raise SourceError(
                f"{self.path} has no obs[{name!r}], only "
                f"{', '.join(columns) or 'no column'}: name it with {default}="
            )
        n = self._matrix(file)[2][0]
        place = f"{self.path}: obs[{name or default!r}]"
        return read_column(file["obs"][name or default], place, n, start, stop)
