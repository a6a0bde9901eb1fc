"""Matrices that other programs saved: NumPy .npy and .npz, MATLAB .mat.

All of them, and Matrix Market, take the options

labels : a file of labels (.npy, or a text with one a line), for what has none of its own.
unlabeled : the label that means "none"; default: no label does (see `storage.sources.labels`).
sample_shape : M × N, as "32x32", if a row is an image, its pixels columns first.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
import zipfile
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from bigfs import engine
from bigfs.engine import NotEnoughMemory, format_bytes, require_memory
from storage import disk
from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources import gate, matfile
from storage.sources import labels as label_rules
from storage.sources.base import MatrixSource, Rows, open_decompressed, source_errors
from storage.sources.spool import (
    CHUNK,
    Spool,
    Triplets,
    csc_triplets,
    dense_spool,
    save_labels,
    save_triplets,
    sparse_spool,
)


class SpooledMatrix(MatrixSource):
    """What these formats share: `unpacked` lays the matrix out on scratch, and pieces are row
    ranges of it.
    """

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
        self.spool: Spool | None = None

    def settings(self) -> tuple[Any, ...]:
        return self.unlabeled, self.sample_shape

    def fingerprint(self) -> str:
        files = [self.path] if self.labels is None else [self.path, self.labels]
        return fingerprint_of(self.format, identity_of(files), self.settings())

    @abstractmethod
    def make_spool(self, folder: Path) -> Spool:
        """The matrix laid out in `folder`, with its own labels if it has any."""

    def unpacked(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        folder = Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was broken off
        with source_errors(f"{self.path} cannot be read as {self.format}"):
            spool = self.make_spool(folder)
        if 0 in spool.shape:
            raise SourceError(
                f"{self.path} holds a matrix of {spool.shape[0]} × {spool.shape[1]}: "
                f"there is nothing to select from"
            )
        if self.labels is not None:
            save_labels(spool, label_rules.read_labels(self.labels, spool.shape[0], self.unlabeled))
        if ready.sample_shape is not None and np.prod(ready.sample_shape) != spool.shape[1]:
            raise SourceError(
                f"{self.path} has {spool.shape[1]} features per row, which is not an "
                f"image of {self.sample_shape}"
            )
        ready.spool, ready.n_features = spool, spool.shape[1]
        return ready

    def pieces(self, size: int) -> list[tuple[int, int]]:
        return self._ready_spool.pieces(size)

    def read(self, piece: tuple[int, int]) -> Rows:
        return self._ready_spool.read(piece)

    @property
    def _ready_spool(self) -> Spool:
        if self.spool is None:
            raise ValueError(f"{self.path} is read through unpacked(scratch)")
        return self.spool


def image_shape(text: str | tuple[int, int] | None) -> tuple[int, int] | None:
    """(M, N) from "32x32" or from itself."""
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


class Npy(SpooledMatrix):
    """A NumPy array of n × d, or a stack of images l × M × N (each flattened columns first)."""

    format = "npy"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(b"\x93NUMPY")

    def make_spool(self, folder: Path) -> Spool:
        folder.mkdir(parents=True, exist_ok=True)
        # a copy: scratch is what workers see
        with open_decompressed(self.path) as packed, open(folder / "X.npy", "wb") as out:
            shutil.copyfileobj(packed, out, 1 << 22)
        return self._dense_spool(folder)

    def _dense_spool(self, folder: Path) -> Spool:
        spool = dense_spool(folder, self.path)
        X = spool.array("X")
        if X.ndim == 3:
            own = (int(X.shape[1]), int(X.shape[2]))
            if self.sample_shape not in (None, own):
                raise SourceError(f"{self.path} holds images of {own}, not {self.sample_shape}")
        return spool

    def unpacked(self, scratch: Path) -> Self:
        ready = super().unpacked(scratch)
        spool = ready._ready_spool
        if spool.has("X") and (X := spool.array("X")).ndim == 3:
            ready.sample_shape = (int(X.shape[1]), int(X.shape[2]))
        return ready


class Npz(Npy):
    """A .npz of scipy.sparse.save_npz (csr, csc or coo), or one with dense arrays X (n × d or l × M
    × N) and, optionally, y.
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

    def make_spool(self, folder: Path) -> Spool:
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
            spool = self._dense_spool(folder)
        elif {"format.npy", "shape.npy", "data.npy"} <= names:
            spool = self._sparse(folder)
        else:
            raise SourceError(
                f"{self.path} holds {', '.join(map(ascii, sorted(names)))}: it must hold a sparse "
                f"matrix of save_npz, or arrays X and y"
            )
        if (folder / "own_y.npy").exists():
            own = disk.load(folder / "own_y.npy")
            save_labels(
                spool, label_rules.as_label_array(own, spool.shape[0], self.unlabeled, self.path)
            )
        return spool

    def _sparse(self, folder: Path) -> Spool:
        def array(name: str) -> Any:
            return disk.map_file(folder / f"{name}.npy")

        kind = np.asarray(array("format")).item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if kind not in ("csr", "csc", "coo"):
            raise SourceError(f"{self.path} holds a {kind} matrix: save X.tocsr() instead")
        n, d = (int(side) for side in array("shape"))
        gate.require_shape(n, d, self.path)
        names = ("data", "row", "col") if kind == "coo" else ("data", "indices", "indptr")
        if lost := [name for name in names if not (folder / f"{name}.npy").exists()]:
            raise SourceError(f"{self.path} is broken: a {kind} matrix without {', '.join(lost)}")
        parts = {name: array(name) for name in names}
        stored = len(parts["data"])
        for name, part in parts.items():
            if name != "indptr" and part.shape != (stored,):
                raise SourceError(
                    f"{self.path} is broken: {name} has the shape {part.shape}, not {(stored,)}"
                )
        if kind == "csr":
            return sparse_spool(folder, self.path, (n, d))
        if kind == "csc":
            gate.require_indptr(parts["indptr"], d, stored, self.path)
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


class Mat(SpooledMatrix):
    """A MATLAB file with a matrix of samples × features and a vector of labels.

    Parameters
    ----------
    x, y : the variables' names; default: the first there is of X and fea, of Y, y and gnd.

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

    def make_spool(self, folder: Path) -> Spool:
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
        spool = (
            sparse_spool(folder, self.path, tuple(reply["shape"]))
            if "shape" in reply
            else dense_spool(folder, self.path)
        )
        return self._with_labels(spool, disk.load(folder / "own_y.npy") if y else None)

    def _with_labels(self, spool: Spool, y: Any) -> Spool:
        if y is not None:
            y = label_rules.as_label_array(y, spool.shape[0], self.unlabeled, self.path)
        return save_labels(spool, y)

    def _names(self, there: Any) -> tuple[str, str | None]:
        x, y = matfile.variables(there, self.x, self.y)
        if x is None or x not in there or (y is not None and y not in there):
            raise SourceError(
                f"{self.path} has the variables {', '.join(sorted(there)) or 'none'}: name "
                f"the matrix with x=, the labels with y="
            )
        return x, y

    def _hdf5(self, folder: Path) -> Spool:
        """MATLAB 7.3: arrays are stored transposed, sparse ones as csc in a group (ir, jc,
        data).
        """
        with hdf5(self.path) as file:
            x, y = self._names(set(file) - {"#refs#"})
            if not hasattr(file[x], "shape"):
                spool = self._hdf5_sparse(folder, file[x])
            else:
                X = file[x]
                d, n = X.shape
                gate.require_shape(n, d, self.path)
                folder.mkdir(parents=True, exist_ok=True)
                out = disk.allocate(folder / "X.npy", X.dtype, (n, d))
                step = max(1, CHUNK // d)
                for start in range(0, n, step):
                    out[start : start + step] = X[:, start : start + step].T
                out.flush()
                spool = dense_spool(folder, self.path)
            return self._with_labels(spool, file[y][:] if y else None)

    def _hdf5_sparse(self, folder: Path, X: Any) -> Spool:
        n, d = gate.require_shape(int(X.attrs["MATLAB_sparse"]), len(X["jc"]) - 1, self.path)
        gate.require_room(d + 1, self.path)
        indptr = gate.require_indptr(X["jc"][:], d, len(X["data"]), self.path)
        return save_triplets(
            folder,
            self.path,
            lambda: csc_triplets(X["data"], X["ir"], indptr),
            (n, d),
            X["data"].dtype,
        )


@contextlib.contextmanager
def hdf5(path: str) -> Iterator[Any]:
    """An HDF5 file that holds all its data itself; what is stored in other files is refused before
    anything is read.
    """
    with need_h5py(path).File(path, "r") as file:
        _require_self_contained(file, path)
        yield file


def _require_self_contained(file: Any, path: str) -> None:
    import h5py

    def elsewhere(name: str, link: Any) -> str | None:
        """What is stored elsewhere; the first answer ends the visit, which an exception must
        not.
        """
        if isinstance(link, h5py.ExternalLink):
            return f"{name} is a link to {link.filename}"
        thing = file.get(name) if isinstance(link, h5py.HardLink) else None
        if isinstance(thing, h5py.Dataset) and (thing.external or thing.is_virtual):
            return f"{name} has its values in other files"
        return None

    if complaint := file.visititems_links(elsewhere):
        raise SourceError(f"{path}: {complaint}: copy them into the file")


def need_h5py(path: str) -> Any:
    try:
        import h5py
    except ModuleNotFoundError:
        raise SourceError(
            f"{path} is an HDF5 file and needs h5py: pip install 'bigfs[hdf5]'"
        ) from None
    return h5py
