"""AnnData on disk, .h5ad (h5py) or .zarr, read by its published encoding, without anndata.

Cell Ranger's .h5 and Loom are read alike, by `bigfs.storage.sources.cells`.

A Zarr folder may lie behind a URL that fsspec can list.

A csr or dense matrix is read in row ranges where it lies. A csc one is transposed on scratch.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import zarr
import zarr.errors

from bigfs.engine import require_memory
from bigfs.storage.downloads import remote
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of, original_of
from bigfs.storage.format import manifest
from bigfs.storage.format.checked import CheckedStore
from bigfs.storage.lazy import pa
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.arrays import note_kinds, unique_names
from bigfs.storage.sources.base import MatrixSource, Rows, SampleColumns
from bigfs.storage.sources.cells import Group, as_anndata
from bigfs.storage.sources.files import BROKEN, is_ours
from bigfs.storage.sources.hdf5 import HDF5, open_hdf5, other_hdf5, require_end
from bigfs.storage.sources.scratch_matrix import (
    CHUNK,
    ScratchMatrix,
    check_rows,
    cut_dense,
    cut_sparse,
    flatten_rows,
    read_csr,
    require_compressed,
    require_parts,
    row_lengths,
    transpose_csc,
)
from bigfs.types import AnyArray

GRAPH_ENTRY = 12  # bytes of an edge: a float64 weight and an int32 index
NULLABLE = ("nullable-string-array", "nullable-integer", "nullable-boolean")
TEXTS = ("string-array", "nullable-string-array", "categorical")


def files_of(path: Path) -> list[Path]:
    """Return the files of an AnnData file or folder."""
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


@dataclass(eq=False)
class AnnData(SampleColumns, MatrixSource):
    """An annotated matrix, whose obs holds the columns. A sample without a category is unlabeled.

    ``label=obsm/NAME`` takes the columns of a matrix of obsm.
    """

    format = "anndata"
    path: str
    _: KW_ONLY
    layer: str | None = None  # read layers[layer] instead of X
    raw: bool = False  # read raw.X, with the features of raw.var
    names: str | None = None  # column of var with the names of the features, by default its index
    matrix: ScratchMatrix | None = field(default=None, init=False, repr=False)

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        if not path.is_dir():
            return head.startswith(HDF5)
        if not any((path / name).exists() for name in ("zarr.json", ".zgroup")):
            return False
        return cls.is_group(str(path))

    @classmethod
    def is_group(cls, uri: str) -> bool:
        """Return whether a folder, which may lie behind a URL, is a group that anndata wrote."""
        try:
            group = zarr.open_group(CheckedStore(manifest.store_at(uri, read_only=True)), mode="r")
            return "encoding-type" in group.attrs
        except (OSError, ValueError, KeyError, zarr.errors.BaseZarrError):
            return False

    def absolute(self) -> Self:
        return copy.copy(self) if remote.is_remote(self.path) else super().absolute()

    def __post_init__(self) -> None:
        self.label = samples.label_option(self.label)
        if isinstance(self.label, tuple):
            self.class_names = self.label
        samples.require_target(self.target, self.class_names or ())

    def fingerprint(self) -> str:
        path = Path(self.path)
        if remote.is_remote(self.path):
            identity: Any = remote.folder_identity(self.path)
        else:
            identity = original_of(identity_of(files_of(path)))
        return fingerprint_of(
            *(self.format, identity, self.layer, self.label, self.split),
            *(*self.label_rules, *(("raw",) if self.raw else ())),
            *(() if self.names is None else ("names", self.names)),
            *(sorted(map(str, self.split_words.items())) if self.split_map else ()),
            *self.obs_columns.items(),
        )

    def check(self) -> None:
        if self.raw and self.layer is not None:
            raise SourceError("raw has no layers: give layer= or raw=true, not both")

    def describe(self) -> Self:
        """Return the source with its shape and its names."""
        ready = copy.copy(self)
        if not remote.is_remote(self.path):
            require_end(self.path)
        if manifest.is_there(self.path):  # a store of bigfs, which may be damaged
            manifest.read_root(self.path)
        with self._file() as file:
            _, _, (n, d) = self._matrix(file)
            if not n or not d:
                raise SourceError(
                    f"{self.path} holds a matrix of {n} × {d}: there is nothing to select from"
                )
            names = self._names(file, "raw/var" if self.raw else "var", d)
            names = None if names is None else _or_numbers(names, 0)
            if self.names is not None:
                names = self._symbols(file, self.names, names)
            ready.n_features, ready.feature_names = d, None if names is None else names.tolist()
            if isinstance(file, Group) and (kinds := file["var"].get("feature_type")) is not None:
                note_kinds(read_column(kinds, self.path).tolist(), self.path)
            columns = self._columns(file, "obs")
            ready.label_columns = columns if self.label is None and "label" not in columns else None
        return ready

    def prepare(self, scratch: Path) -> Self:
        """Read the shape and the names, check the rows, and transpose a csc matrix on scratch."""
        ready = self.describe()
        with self._file() as file:
            X, kind, shape = self._matrix(file)
            if kind == "csr":
                deque(row_lengths(X, shape, self.path), maxlen=0)  # which checks them
            elif kind == "csc":
                folder = Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}"
                ready.matrix = transpose_csc(folder, self.path, X, shape)
        return ready

    def has_features(self, names: Sequence[str] | None, d: int) -> bool:
        """Return whether there are d features with the given names, in `var`'s index or a column.

        A file without names is refused.
        """
        with self._file() as file:
            if not isinstance(file, Group) and "var" in file and "_index" in file["var"].attrs:
                index = self._names(file, "var", None)
                if index is not None:
                    wanted = None if names is None else [str(name) for name in names]
                    return len(index) == d and (
                        wanted in (None, index.tolist())
                        or any(
                            self._symbols(file, column, index).tolist() == wanted
                            for column in self._columns(file, "var")
                            if file["var"][column].attrs.get("encoding-type") in TEXTS
                        )
                    )
        raise SourceError(
            f"{self.path} has no var of a current AnnData version: write it again with anndata"
        )

    def pieces(self, size: int) -> list[tuple[int, int]]:
        if self.matrix:
            return self.matrix.pieces(size)
        with self._file() as file:
            X, kind, (n, d) = self._matrix(file)
            if kind == "array":
                return cut_dense(n, d, size)
            return cut_sparse(row_lengths(X, (n, d), self.path), size)

    def read(self, piece: tuple[int, int]) -> Rows:
        columns, names = self.samples(*piece), self._sample_names(*piece)
        place = samples.row_places(self.path, piece[0])
        if names is not None:
            columns["name"] = samples.read("name", samples.as_column(names, self.path), place)
        return Rows(self.rows(*piece), columns, None, place)

    def rows(self, start: int, stop: int) -> sp.csr_array:
        """Read rows [start, stop) of the matrix."""
        if self.matrix:
            return self.matrix.read((start, stop)).X
        with self._file() as file:
            X, kind, (_, d) = self._matrix(file)
            if kind == "array":
                checks.require_numbers_fit(3 * (stop - start) * d, self.path)
                rows = flatten_rows(np.asarray(X[start:stop]), self.path)
            else:
                rows = read_csr(X, (start, stop), d, self.path)
        return check_rows(rows, self.path, start)

    def sample_names(self, start: int, stop: int) -> AnyArray | None:
        """Read the names of rows [start, stop), or their numbers, None if no row has a name."""
        names = self._sample_names(start, stop)
        return None if names is None else _or_numbers(names, start)

    def _sample_names(self, start: int, stop: int) -> AnyArray | None:
        with self._file() as file:
            return self._names(file, "obs", self._matrix(file)[2][0], start, stop)

    def samples(self, start: int, stop: int) -> dict[str, Any]:
        """Read what obs tells of rows [start, stop), by the roles of its columns."""
        place, told = samples.row_places(self.path, start), {}
        with self._file() as file:
            n, columns = self._matrix(file)[2][0], self._columns(file, "obs")
            for role, name in samples.roles_in_obs(vars(self), columns, self.path).items():
                if isinstance(name, tuple):
                    several = {c: self._obs_column(file, c, n, start, stop) for c in name}
                    told[role] = samples.label_columns(several, place)
                elif name.startswith(samples.OBSM):
                    told[role] = self._obsm(file, name.removeprefix(samples.OBSM), n, start, stop)
                else:
                    told[role] = self._obs_column(file, name, n, start, stop)
        return {
            role: samples.read(role, values, place, self.label_rules, self.split_words)
            for role, values in told.items()
        }

    def row_layout(self) -> tuple[int, int, int]:
        """Return the numbers of rows and of stored entries, and the bytes of the largest chunk."""
        with self._file() as file:
            X, kind, shape = self._matrix(file)
            if kind == "csc":
                raise SourceError(
                    f"{self.path} holds X as csc, which cannot be read by rows in place: stage it"
                )
            parts = [X] if kind == "array" else [X["data"], X["indices"]]
            largest = max(math.prod(part.chunks) * part.dtype.itemsize for part in parts)
            if kind == "array":
                return shape[0], math.prod(shape), largest
            return *require_parts(X, kind, shape, self.path), largest

    def row_lengths(self) -> Iterator[AnyArray]:
        """Yield the numbers of stored entries of the rows, some rows at a time."""
        with self._file() as file:
            X, kind, (n, d) = self._matrix(file)
            if kind == "array":
                yield from (np.full(min(CHUNK.value, n - a), d) for a in range(0, n, CHUNK.value))
                return
            yield from row_lengths(X, (n, d), self.path)

    def obsp(self, name: str, samples: Sequence[str]) -> sp.csr_array:
        """Read a graph of the samples, in the order of the names of some of them."""
        with self._file() as file:
            self._require(name, sorted(file.get("obsp", [])), "obsp")
            A, place = file["obsp"][name], f"{self.path}: obsp[{name!r}]"
            n = self._matrix(file)[2][0]
            shape = tuple(int(side) for side in A.attrs.get("shape", ()))
            kind = A.attrs.get("encoding-type")
            if kind != "csr_matrix" or shape != (n, n):
                raise SourceError(f"{place} has the encoding {kind!r}, not csr_matrix of {n} × {n}")
            if name.endswith("distances"):
                raise SourceError(
                    f"{place} holds distances: give affinities, such as obsp/connectivities"
                )
            require_compressed(A, "csr", shape, place)
            require_memory(2 * GRAPH_ENTRY * A["data"].shape[0], f"{place} in memory")
            graph, names = read_csr(A, (0, n), n, place), self._names(file, "obs", n)
        position = {} if names is None else {key: i for i, key in enumerate(names)}
        missing = [key for key in samples if key not in position]
        if missing or len(position) < n:
            reason = f"has no sample {missing[0]!r}" if missing else "repeats names of samples"
            raise SourceError(
                f"{self.path} {reason}, so its graph cannot be matched with the corpus: give the "
                f"file that the corpus was staged from, with obs_names of its own for each sample"
            )
        rows = np.array([position[key] for key in samples], dtype=np.int64)
        return sp.csr_array(graph[rows][:, rows])

    # --- the encoding ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _file(self) -> Iterator[Any]:
        """Open the root group. Errors of a broken file become one line with its name."""
        try:
            if remote.is_remote(self.path) or Path(self.path).is_dir():
                store = CheckedStore(manifest.store_at(self.path, read_only=True))
                yield zarr.open_group(store, mode="r")
            else:
                with open_hdf5(self.path) as file:
                    yield as_anndata(file, self.layer, self.path)
        except SourceError:
            raise
        except (*BROKEN, SystemError, zarr.errors.BaseZarrError) as error:
            # h5py raises these where a damaged file holds something else under a name
            theirs = type(getattr(error, "obj", None)).__module__.startswith("h5py")
            if isinstance(error, TypeError | AttributeError) and is_ours(error) and not theirs:
                raise
            raise SourceError(
                f"{self.path} is broken, or not AnnData: "
                f"{str(error).splitlines()[0] if str(error) else error!r}"
            ) from error

    def _matrix(self, file: Any) -> tuple[Any, str, tuple[int, int]]:
        """Return the matrix as it lies, its encoding and its shape."""
        where = "X" if self.layer is None else f"layers/{self.layer}"
        where = "raw/X" if self.raw else where
        layers = (", ".join(file["layers"]) if "layers" in file else "") or "none"
        if where not in file:
            if other := other_hdf5(file):
                raise SourceError(f"{self.path} is {other}")
            raise SourceError(f"{self.path} has no {where}; its layers are: {layers}")
        X = file[where]
        kind = X.attrs.get("encoding-type", "array" if hasattr(X, "dtype") else None)
        if kind == "null":
            raise SourceError(
                f"{self.path}: {where} is empty: name a layer with layer=. They are: {layers}"
            )
        if kind not in ("csr_matrix", "csc_matrix", "array"):
            raise SourceError(
                f"{self.path}: {where} has the encoding {kind!r}: only csr_matrix, "
                f"csc_matrix and array can be read"
            )
        shape = tuple(int(side) for side in (X.shape if kind == "array" else X.attrs["shape"]))
        if len(shape) != 2:
            raise SourceError(f"{self.path}: {where} has {len(shape)} dimensions, not 2")
        return X, kind.removesuffix("_matrix"), checks.require_shape(*shape, self.path)

    def _names(
        self, file: Any, frame: str, n: int | None, start: int = 0, stop: int | None = None
    ) -> AnyArray | None:
        """Read the names of samples ("obs") or features ("var"), of which there are n."""
        if frame not in file:
            return None
        if (index := file[frame].attrs.get("_index", "_index")) is None:
            return None
        place = f"{self.path}: {frame}[{index!r}]"
        names = read_column(file[frame][index], place, n, start, stop)
        names = np.ma.filled(names.astype(object), None)
        return np.array([None if name is None else str(name) for name in names], dtype=object)

    def _symbols(self, file: Any, column: str, index: AnyArray | None) -> AnyArray:
        """Read the names of features from a column of var. Repeated ones are made unique.

        They get the endings that anndata's `var_names_make_unique` gives. A feature without a name
        there keeps the name in the index.
        """
        frame = "raw/var" if self.raw else "var"
        self._require(column, self._columns(file, frame), frame, ": name it with names=")
        given = read_column(
            file[frame][column], f"{self.path}: {frame}[{column!r}]", self._matrix(file)[2][1]
        )
        given = np.ma.filled(given.astype(object), "")
        assert index is not None  # a column comes with an index
        names = unique_names([*map(str, given)], [*map(str, index)])
        return np.array(names, dtype=object)

    def var_columns(self) -> list[str]:
        """Return the names of the columns of var."""
        with self._file() as file:
            return self._columns(file, "var")

    def var_column(self, name: str) -> AnyArray:
        """Read a column of var, masked where a value is missing."""
        with self._file() as file:
            self._require(name, self._columns(file, "var"), "var")
            return read_column(file["var"][name], f"{self.path}: var[{name!r}]")

    def _columns(self, file: Any, frame: str) -> list[str]:
        """Return the names of the columns of a data frame."""
        if frame not in file:
            return []
        return [c for c in file[frame] if c != file[frame].attrs.get("_index", "_index")]

    def _require(self, name: str, there: list[str], what: str, advice: str = "") -> None:
        """Refuse the name of an element that is not there."""
        if name not in there:
            some = ", ".join(there) or "none"
            raise SourceError(f"{self.path} has no {what}[{name!r}], only {some}{advice}")

    def _obsm(self, file: Any, name: str, n: int, start: int, stop: int) -> Any:
        """Read rows [start, stop) of a matrix of obsm as a column of Arrow."""
        advice = f": name it with label={samples.OBSM}NAME"
        self._require(name, list(file.get("obsm", [])), "obsm", advice)
        M, place = file["obsm"][name], f"{self.path}: obsm[{name!r}]"
        kind = M.attrs.get("encoding-type", "array")
        shape = tuple(int(side) for side in (M.shape if kind == "array" else M.attrs["shape"]))
        if kind not in ("array", "csr_matrix") or len(shape) != 2 or shape[0] != n:
            raise SourceError(f"{place} has the encoding {kind!r} of {shape}: it must be {n} × q")
        if kind == "array":
            rows = np.asarray(M[start:stop])
        else:
            rows = read_csr(M, (start, stop), shape[1], place).toarray()
        return samples.as_column(rows, place, stays_matrix=True)

    def _obs_column(self, file: Any, name: str, n: int, start: int, stop: int) -> Any:
        """Read values [start, stop) of a column of obs as a column of Arrow."""
        column, place = file["obs"][name], f"{self.path}: obs[{name!r}]"
        if column.attrs.get("encoding-type") != "categorical":
            return samples.as_column(read_column(column, place, n, start, stop), place)
        codes, categories = read_codes(column, place, n, start, stop)
        values = samples.as_column(categories, place)
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes < 0), values)


# --- columns of data frames -----------------------------------------------------------------------


def read_column(
    column: Any, place: str, n: int | None = None, start: int = 0, stop: int | None = None
) -> AnyArray:
    """Read values [start, stop) of a column of n values, masked where one is missing."""
    kind = column.attrs.get("encoding-type")
    if kind == "categorical":
        codes, categories = read_codes(column, place, n, start, stop)
        padded = np.array([*categories, None], dtype=object)  # −1, a missing one, takes the last
        return np.ma.MaskedArray(padded[codes], codes == -1)
    if kind in NULLABLE:
        values = _read_array(column["values"], place, n, start, stop)
        missing = _read_array(column["mask"], place, n, start, stop)
        return np.ma.MaskedArray(values, missing.astype(bool))
    # anndata 0.7 wrote the codes of categories as an array with a link to them
    if "categories" in column.attrs:
        raise SourceError(_unreadable(column, place))
    return _read_array(column, place, n, start, stop)


def read_codes(
    column: Any, place: str, n: int | None, start: int, stop: int | None
) -> tuple[AnyArray, AnyArray]:
    """Read the codes [start, stop) of categories, −1 where one is missing, and the categories."""
    codes = _read_array(column["codes"], place, n, start, stop)
    categories = read_column(column["categories"], f"{place}: categories").astype(object)
    if codes.size and not -1 <= codes.min() <= codes.max() < len(categories):
        raise SourceError(f"{place} is broken: a code lies outside its categories")
    return codes, categories


def _read_array(array: Any, place: str, n: int | None, start: int, stop: int | None) -> AnyArray:
    if not hasattr(array, "dtype") or array.dtype.kind not in "biufOSTU":
        raise SourceError(_unreadable(array, place))
    if len(array.shape) != 1 or n not in (None, array.shape[0]):
        raise SourceError(f"{place} is broken: it has the shape {array.shape}, not ({n or 'n'},)")
    if array.dtype.kind in "biuf":
        return np.asarray(array[start:stop])
    checks.require_numbers_fit(array.shape[0] if stop is None else stop - start, place)
    if hasattr(array, "asstr"):  # h5py
        try:
            array = array.asstr()
        except TypeError:
            raise SourceError(_unreadable(array, place)) from None
    # as objects, because NumPy's text loses a NUL at its end
    return np.array(list(array[start:stop]), dtype=object)


def _or_numbers(names: AnyArray, start: int) -> AnyArray:
    """Return names, and a number from `start` on in place of one that is missing."""
    filled = [str(start + i) if name is None else name for i, name in enumerate(names)]
    return np.array(filled, dtype=object)


def _unreadable(element: Any, place: str) -> str:
    kind = element.attrs.get("encoding-type")
    held = f"{element.dtype}" if hasattr(element, "dtype") else "a group"
    return (
        f"{place} has the encoding {kind!r} ({held}), which cannot be read: texts, numbers, "
        f"booleans and categories can be. Write it again as one of these with anndata"
    )
