"""Matrices in NumPy's .npy and .npz files, and what all formats of saved matrices share.

These formats, MATLAB's and Matrix Market take the options

labels : str or None, default=None
    A file of labels (.npy, or a text with one per line), for a matrix without labels of its own.
unlabeled : str or None, default=None
    The label that means "none", see `storage.sources.labels`. By default no label does.
sample_shape : str, (int, int) or None, default=None
    M × N, as "32x32", if a row is an image with its pixels columns first.
"""

from __future__ import annotations

import copy
import shutil
import zipfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.format import disk
from storage.sources import checks
from storage.sources import labels as label_rules
from storage.sources.base import MatrixSource, Rows, open_decompressed, source_errors
from storage.sources.scratch_matrix import (
    CHUNK,
    ScratchMatrix,
    Triplets,
    csc_triplets,
    dense_scratch_matrix,
    save_labels,
    save_triplets,
    sparse_scratch_matrix,
)


class SavedMatrix(MatrixSource):
    """A matrix that `prepare` lays out on scratch. Pieces are row ranges of it."""

    def __init__(
        self,
        path: str,
        *,
        labels: str | None = None,
        unlabeled: str | None = None,
        sample_shape: str | tuple[int, int] | None = None,
    ) -> None:
        self.path, self.labels, self.unlabeled = path, labels, unlabeled
        self.sample_shape = image_shape(sample_shape)
        self.scratch_matrix: ScratchMatrix | None = None

    def settings(self) -> tuple[Any, ...]:
        return self.unlabeled, self.sample_shape

    def fingerprint(self) -> str:
        files = [self.path] if self.labels is None else [self.path, self.labels]
        return fingerprint_of(self.format, identity_of(files), self.settings())

    @abstractmethod
    def make_scratch_matrix(self, folder: Path) -> ScratchMatrix:
        """Lay out the matrix in `folder`, with its own labels if it has any."""

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        folder = Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}"
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
        with source_errors(f"{self.path} cannot be read as {self.format}"):
            scratch_matrix = self.make_scratch_matrix(folder)
        if 0 in scratch_matrix.shape:
            raise SourceError(
                f"{self.path} holds a matrix of {scratch_matrix.shape[0]} × {scratch_matrix.shape[1]}: "
                f"there is nothing to select from"
            )
        if self.labels is not None:
            save_labels(
                scratch_matrix,
                label_rules.read_labels(self.labels, scratch_matrix.shape[0], self.unlabeled),
            )
        if (
            ready.sample_shape is not None
            and np.prod(ready.sample_shape) != scratch_matrix.shape[1]
        ):
            raise SourceError(
                f"{self.path} has {scratch_matrix.shape[1]} features per row, which is not an "
                f"image of {self.sample_shape}"
            )
        ready.scratch_matrix, ready.n_features = scratch_matrix, scratch_matrix.shape[1]
        return ready

    def pieces(self, size: int) -> list[tuple[int, int]]:
        return self._ready_scratch_matrix.pieces(size)

    def read(self, piece: tuple[int, int]) -> Rows:
        return self._ready_scratch_matrix.read(piece)

    @property
    def _ready_scratch_matrix(self) -> ScratchMatrix:
        if self.scratch_matrix is None:
            raise ValueError(f"{self.path} is read through prepare(scratch)")
        return self.scratch_matrix


def image_shape(text: str | tuple[int, int] | None) -> tuple[int, int] | None:
    """Return (M, N) from "32x32", or from a pair."""
    if text is None:
        return None
    sides = (
        tuple(str(text).lower().replace("×", "x").split("x"))
        if isinstance(text, str)
        else tuple(text)
    )
    if len(sides) != 2 or not all(str(s).strip().isdecimal() and int(s) > 0 for s in sides):
        raise SourceError(f"sample_shape must be M x N such as 32x32; got {text!r}")
    return int(sides[0]), int(sides[1])


class Npy(SavedMatrix):
    """A NumPy array of n × d, or a stack of images n × M × N, each flattened columns first."""

    format = "npy"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x93NUMPY")

    def make_scratch_matrix(self, folder: Path) -> ScratchMatrix:
        folder.mkdir(parents=True, exist_ok=True)
        # workers see scratch, but maybe not the source
        with open_decompressed(self.path) as packed, open(folder / "X.npy", "wb") as out:
            shutil.copyfileobj(packed, out, 1 << 22)
        return self._dense_scratch_matrix(folder)

    def _dense_scratch_matrix(self, folder: Path) -> ScratchMatrix:
        scratch_matrix = dense_scratch_matrix(folder, self.path)
        X = scratch_matrix.array("X")
        if X.ndim == 3:
            shape = (int(X.shape[1]), int(X.shape[2]))
            if self.sample_shape not in (None, shape):
                raise SourceError(f"{self.path} holds images of {shape}, not {self.sample_shape}")
        return scratch_matrix

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        scratch_matrix = ready._ready_scratch_matrix
        if scratch_matrix.has("X") and (X := scratch_matrix.array("X")).ndim == 3:
            ready.sample_shape = (int(X.shape[1]), int(X.shape[2]))
        return ready


class Npz(Npy):
    """A .npz file of scipy.sparse.save_npz (csr, csc or coo), or one with dense arrays.

    The dense arrays are X (n × d or n × M × N) and, optionally, the labels y.
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
        return "X.npy" in names or {"format.npy", "shape.npy"} <= names

    def make_scratch_matrix(self, folder: Path) -> ScratchMatrix:
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(self.path) as archive:
            names = set(archive.namelist())
            for name in names & {
                f"{part}.npy"
                for part in ("X", "y", "data", "indices", "indptr", "row", "col", "format", "shape")
            }:
                with (
                    archive.open(name) as packed,
                    open(folder / ("own_y.npy" if name == "y.npy" else name), "wb") as out,
                ):
                    shutil.copyfileobj(packed, out, 1 << 22)
        if "X.npy" in names:
            scratch_matrix = self._dense_scratch_matrix(folder)
        elif {"format.npy", "shape.npy", "data.npy"} <= names:
            scratch_matrix = self._sparse(folder)
        else:
            raise SourceError(
                f"{self.path} holds {', '.join(map(ascii, sorted(names)))}: it must hold a sparse "
                f"matrix of save_npz, or arrays X and y"
            )
        if (folder / "own_y.npy").exists():
            y = disk.load(folder / "own_y.npy")
            save_labels(
                scratch_matrix,
                label_rules.as_label_array(y, scratch_matrix.shape[0], self.unlabeled, self.path),
            )
        return scratch_matrix

    def _sparse(self, folder: Path) -> ScratchMatrix:
        def array(name: str) -> Any:
            return disk.map_file(folder / f"{name}.npy")

        kind = np.asarray(array("format")).item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if kind not in ("csr", "csc", "coo"):
            raise SourceError(f"{self.path} holds a {kind} matrix: save X.tocsr() instead")
        n, d = (int(side) for side in array("shape"))
        checks.require_shape(n, d, self.path)
        names = ("data", "row", "col") if kind == "coo" else ("data", "indices", "indptr")
        if missing := [name for name in names if not (folder / f"{name}.npy").exists()]:
            raise SourceError(
                f"{self.path} is broken: a {kind} matrix without {', '.join(missing)}"
            )
        parts = {name: array(name) for name in names}
        stored = len(parts["data"])
        for name, part in parts.items():
            if name != "indptr" and part.shape != (stored,):
                raise SourceError(
                    f"{self.path} is broken: {name} has the shape {part.shape}, not {(stored,)}"
                )
        if kind == "csr":
            return sparse_scratch_matrix(folder, self.path, (n, d))
        if kind == "csc":
            checks.require_indptr(parts["indptr"], d, stored, self.path)
        entries = (
            (lambda: _coo(parts))
            if kind == "coo"
            else (lambda: csc_triplets(parts["data"], parts["indices"], parts["indptr"]))
        )
        return save_triplets(folder / "rows", self.path, entries, (n, d), parts["data"].dtype)


def _coo(parts: dict[str, Any]) -> Iterator[Triplets]:
    for start in range(0, len(parts["data"]), CHUNK):
        row, col, data = (
            np.asarray(parts[name][start : start + CHUNK]) for name in ("row", "col", "data")
        )
        yield row, col, data
