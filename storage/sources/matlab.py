"""Matrices in MATLAB files. `storage.sources.matfile` reads those before version 7.3."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from bigfs import engine
from bigfs.engine import NotEnoughMemory, format_bytes, require_memory
from storage.errors import SourceError
from storage.format import disk
from storage.sources import checks, matfile
from storage.sources import labels as label_rules
from storage.sources.arrays import SavedMatrix
from storage.sources.hdf5 import open_hdf5
from storage.sources.scratch_matrix import (
    CHUNK,
    ScratchMatrix,
    csc_triplets,
    dense_scratch_matrix,
    save_labels,
    save_triplets,
    sparse_scratch_matrix,
)


class Mat(SavedMatrix):
    """A MATLAB file with a matrix of samples × features and a vector of labels.

    Parameters
    ----------
    x : str or None, default=None
        Name of the variable with the matrix. None takes X, else fea.
    y : str or None, default=None
        Name of the variable with the labels. None takes Y, else y, else gnd.
    labels, unlabeled, sample_shape
        The options of `storage.sources.arrays`.

    Notes
    -----
    Where a file has texts in variables called feature_names and class_names, they are the names of
    the columns, and of the classes of whole labels from 1 (or from 0 where 0 occurs).

    MATLAB 7.3 files are HDF5 and need the extra `hdf5` (h5py). Older ones can't be read in pieces:
    the memory they take is projected first, and a process of its own reads them.
    """

    format = "mat"

    def __init__(
        self,
        path: str,
        *,
        x: str | None = None,
        y: str | None = None,
        labels: str | None = None,
        unlabeled: str | None = None,
        sample_shape: str | tuple[int, int] | None = None,
    ) -> None:
        super().__init__(path, labels=labels, unlabeled=unlabeled, sample_shape=sample_shape)
        self.x, self.y = x, y

    def settings(self) -> tuple[Any, ...]:
        return *super().settings(), self.x, self.y

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(b"MATLAB ")

    def make_scratch_matrix(self, folder: Path) -> ScratchMatrix:
        with open(self.path, "rb") as file:
            if file.read(10) == b"MATLAB 7.3":
                return self._hdf5(folder)
        what = f"reading {self.path}, which can't be read in parts,"
        room = engine.memory_limit()
        try:
            reply = matfile.extract(self.path, folder, self.x, self.y, room)
        except MemoryError:
            raise NotEnoughMemory(
                f"{what} needs more than the {format_bytes(room)} that are allowed in one "
                f"process: raise --memory-limit"
            ) from None
        x, y = self._names(reply["variables"])
        require_memory(matfile.projected(self.path, *reply["variables"][x]), what, room)
        scratch_matrix = (
            sparse_scratch_matrix(folder, self.path, tuple(reply["shape"]))
            if "shape" in reply
            else dense_scratch_matrix(folder, self.path)
        )
        return self._with_labels(scratch_matrix, disk.load(folder / "own_y.npy") if y else None)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        names = _names_of(ready._ready_scratch_matrix.folder, "feature_names")
        if names is not None and len(names) != ready.n_features:
            raise SourceError(
                f"{self.path} has {len(names)} feature_names for {ready.n_features} columns"
            )
        ready.feature_names = names
        return ready

    def _with_labels(self, scratch_matrix: ScratchMatrix, y: Any) -> ScratchMatrix:
        if y is not None:
            y = label_rules.as_label_array(y, scratch_matrix.shape[0], self.unlabeled, self.path)
            y = self._by_name(y, _names_of(scratch_matrix.folder, "class_names"))
        return save_labels(scratch_matrix, y)

    def _by_name(self, y: Any, names: list[str] | None) -> Any:
        """Return whole labels as the names of their classes, "" where there is none."""
        if names is None or y.dtype.kind not in "iuf":
            return y
        labels = np.ma.filled(y.astype(np.float64), np.nan)
        is_labeled = ~np.isnan(labels)
        known = labels[is_labeled]
        first = 0 if (known == 0).any() else 1
        if np.any(known != np.rint(known)) or np.any(
            (known < first) | (known >= first + len(names))
        ):
            raise SourceError(
                f"{self.path} has {len(names)} class_names, but its labels are not whole numbers "
                f"from {first} to {first + len(names) - 1}: rename the variable to ignore it"
            )
        named = np.full(len(labels), "", dtype=f"U{max(map(len, names), default=1)}")
        named[is_labeled] = np.array(names)[known.astype(np.int64) - first]
        return named

    def _names(self, there: Any) -> tuple[str, str | None]:
        x, y = matfile.variables(there, self.x, self.y)
        if x is None or x not in there or (y is not None and y not in there):
            raise SourceError(
                f"{self.path} has the variables {', '.join(sorted(there)) or 'none'}: name "
                f"the matrix with x=, the labels with y="
            )
        return x, y

    def _hdf5(self, folder: Path) -> ScratchMatrix:
        """Read MATLAB 7.3, which stores arrays transposed and sparse ones as csc (ir, jc, data)."""
        with open_hdf5(self.path) as file:
            x, y = self._names(set(file) - {"#refs#"})
            if not hasattr(file[x], "shape"):
                scratch_matrix = self._hdf5_sparse(folder, file[x])
            else:
                X = file[x]
                d, n = X.shape
                checks.require_shape(n, d, self.path)
                folder.mkdir(parents=True, exist_ok=True)
                out = disk.allocate(folder / "X.npy", X.dtype, (n, d))
                step = max(1, CHUNK // d)
                for start in range(0, n, step):
                    out[start : start + step] = X[:, start : start + step].T
                out.flush()
                scratch_matrix = dense_scratch_matrix(folder, self.path)
            for name in matfile.NAMES:
                if name in file and name not in (x, y):
                    disk.save(Path(scratch_matrix.folder) / f"{name}.npy", _cells(file, file[name]))
            return self._with_labels(scratch_matrix, file[y][:] if y else None)

    def _hdf5_sparse(self, folder: Path, X: Any) -> ScratchMatrix:
        n, d = checks.require_shape(int(X.attrs["MATLAB_sparse"]), len(X["jc"]) - 1, self.path)
        checks.require_room(d + 1, self.path)
        indptr = checks.require_indptr(X["jc"][:], d, len(X["data"]), self.path)
        return save_triplets(
            folder,
            self.path,
            lambda: csc_triplets(X["data"], X["ir"], indptr),
            (n, d),
            X["data"].dtype,
        )


def _names_of(folder: str, name: str) -> list[str] | None:
    """Return the names that `matfile.extract` saved, None if the file has none."""
    file = Path(folder) / f"{name}.npy"
    if not file.exists():
        return None
    names = disk.load(file)
    return [str(value).rstrip() for value in names.ravel()] if names.dtype.kind == "U" else None


def _cells(file: Any, variable: Any) -> Any:
    """Return the texts of a cell array of MATLAB 7.3, which holds references to arrays of codes."""
    cells = variable[()].ravel()
    if cells.dtype != object:  # not a cell array
        return np.zeros(0)
    return np.array(["".join(map(chr, file[cell][()].ravel().tolist())) for cell in cells])
