"""Objects of Python as sources: tables that speak Arrow, matrices, and iterators over either.

`recognize` says which source takes an object. Rows of a matrix become a table with the columns
indices, values and label, so that whatever is read only once is spooled and hashed in one way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.matrix.matrix import Matrix
from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import pa
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.arrays import read_list, read_names, require_characters
from bigfs.storage.sources.base import Source
from bigfs.storage.sources.scratch_matrix import (
    COMPRESSED,
    ScratchMatrix,
    Triplets,
    check_rows,
    flatten_rows,
    read_csr,
    transpose_csc,
    write_csr,
)
from bigfs.storage.sources.tables.entries import ListRecords
from bigfs.storage.sources.tables.formats import StreamText
from bigfs.storage.sources.tables.streams import Stream

ENTRIES = 1 << 18  # of the rows that are converted at a time
ROW_MEMORY = 64  # bytes that an entry takes while its row is staged
FRAME_ROWS = 1 << 14  # of a frame that are converted at a time
READ_BYTES = 16 << 20  # read at a time from a matrix that does not lie in memory
ANNDATA = ("X", "obs", "var", "obs_names", "var_names")
ADVICE = (
    "give a path, a matrix of two dimensions, a table that speaks Arrow (polars, DuckDB, pandas, "
    "pyarrow), or an iterator over such tables, over blocks of rows, or over pairs (block, labels)"
)


def recognize(data: Any) -> tuple[type[Source], Any]:
    """Return the class of the source that takes an object, and what it is made of."""
    kind = type(data).__name__
    if all(hasattr(data, name) for name in ANNDATA):
        return AnnDataObject, data
    if _is_frame(data):
        return StreamText, _slices(data)
    if hasattr(data, "partitions") and hasattr(data, "columns"):  # Dask's frame
        return StreamText, (part.compute() for part in data.partitions)
    if hasattr(data, "collect_batches"):  # polars' LazyFrame
        return StreamText, data.collect_batches(maintain_order=True)
    if hasattr(data, "with_format") and hasattr(data, "iter"):  # a data set of Hugging Face
        return StreamText, data.with_format("arrow").iter(FRAME_ROWS)
    if _is_table(data):
        return StreamText, iter([data])
    if hasattr(data, "to_scipy_sparse"):  # a sparse array of PyData
        data = data.to_scipy_sparse().tocsr()
    if _is_array(data):
        if len(data.shape) != 2:
            raise SourceError(
                f"{kind} has the shape {tuple(data.shape)}: a matrix must have two dimensions, "
                f"samples and features"
            )
        return Blocks, data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict):
        raise SourceError(f"{kind} is no source: {ADVICE}")
    items = iter(data)
    for first in items:
        items = itertools.chain([first], items)
        if _is_frame(first):
            return StreamText, itertools.chain.from_iterable(map(_slices, items))
        return (StreamText if _is_table(first) else Blocks), items
    raise SourceError(f"{kind} yields nothing: {ADVICE}")


def _is_table(data: Any) -> bool:
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def _is_frame(data: Any) -> bool:
    """Return whether an object is a data frame of pandas, whose conversion takes memory."""
    return hasattr(data, "iloc") and hasattr(data, "columns") and not hasattr(data, "partitions")


def _slices(frame: Any) -> Iterator[Any]:
    starts = range(0, max(len(frame), 1), FRAME_ROWS)
    return (frame.iloc[start : start + FRAME_ROWS] for start in starts)


def _is_array(data: Any) -> bool:
    return isinstance(data, Matrix) or all(
        hasattr(data, name) for name in ("shape", "dtype", "__getitem__")
    )


# --- matrices -------------------------------------------------------------------------------------


class Blocks(ListRecords, Stream):
    """A matrix, or an iterator over blocks of its rows or over pairs (block, labels)."""

    format = "blocks"
    of_samples: ClassVar[tuple[str, ...]] = (
        "y",
        "sample_names",
        "names",
        *samples.OBS_ROLES,
    )
    may_have_names = False  # their columns are numbers, with or without `names`

    def __init__(
        self,
        data: Any,
        *,
        y: Any = None,
        sample_names: Iterable[str] | None = None,
        names: Any = None,
        unlabeled: str | None = None,
        target: str | None = None,
        label_separator: str | None = None,
        group: Any = None,
        batch: Any = None,
        sample_weight: Any = None,
        time: Any = None,
    ) -> None:
        obs = {"group": group, "batch": batch, "sample_weight": sample_weight, "time": time}
        fields: Any = {role: role for role, values in obs.items() if values is not None}
        fields |= {"indices": "indices", "values": "values"}
        several: dict[str, Any] = {}  # columns of labels
        if hasattr(y, "columns") or isinstance(y, Mapping):
            several = {str(name): y[name] for name in getattr(y, "columns", y)}
            y, fields["label"] = None, [f"label {name}" for name in several]
        fields |= {"unlabeled": unlabeled, "target": target, "label_separator": label_separator}
        super().__init__((), **fields)  # type: ignore[arg-type]  # tables follow
        self.data = data
        self.path = self.plain = "array" if _is_array(data) else "stream"
        if len(several) > 1:
            self.class_names = list(several)
        if isinstance(sample_names, str):
            sample_names = read_list(sample_names, "sample_names", None, "rows")
        given = {"label": y, "id": sample_names, **obs}
        given |= {f"label {name}": values for name, values in several.items()}
        self.told = {
            role: self._as_column(role, values, f"{self.path}, {role}")
            for role, values in given.items()
            if values is not None
        }
        if names is not None:
            self.feature_names = read_names(names, None, f"columns of the {self.path}")
        elif getattr(data, "feature_names", None) is not None:
            self.feature_names = require_characters([str(name) for name in data.feature_names])

    def _as_column(self, role: str, values: Any, what: str) -> Any:
        return samples.as_column(values, what, role == "label" and self.target == "real")

    def column_names(self) -> list[str]:
        return list(self.told)

    def wanted_fields(self, fields: list[str]) -> list[str]:
        return fields

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"d": self.n_features, "names": self.feature_names}

    def spool(self, scratch: Path) -> Self:
        self.tables = self._tables(row_blocks(self.data, self.path, scratch))
        ready = super().spool(scratch)
        ready.n_features, ready.data, ready.told = self.n_features, None, {}
        return ready

    def _tables(self, blocks: Iterable[Any]) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows as tables of their indices and values, and of what belongs to samples."""
        start, fields, rounded = 0, None, dict[int, float]()
        for number, item in enumerate(blocks):
            is_pair = isinstance(item, tuple | list) and len(item) == 2 and _is_array(item[0])
            X, y = item if is_pair else (item, None)
            place = f"block {number} (from 0) of the {self.path}"
            n = self._require_block(X, place)
            columns = {name: values.slice(start, n) for name, values in self.told.items()}
            if y is not None:
                if "label" in columns:
                    raise SourceError(f"{place} has labels: leave y= out")
                columns["label"] = self._as_column("label", y, f"{place}, label")
            for name, values in columns.items():
                if len(values) != n:
                    raise SourceError(f"{place} has {n} rows, and for them {len(values)} {name}s")
            if fields not in (None, set(columns)):
                raise SourceError(f"{place}: either all blocks or none must have labels")
            fields = set(columns)
            for first, rows in cut_rows(X, self.path, start):
                values = rows.data.astype(np.float32)
                rounded |= dict(checks.rounded(rows.data, values, rows.indices))
                lists = {"indices": rows.indices.astype(np.int32, copy=False), "values": values}
                table = {k: pa.ListArray.from_arrays(rows.indptr, v) for k, v in lists.items()}
                table |= {k: v.slice(first, rows.shape[0]) for k, v in columns.items()}
                batch = pa.RecordBatch.from_pydict(table)
                yield pa.RecordBatchReader.from_batches(batch.schema, [batch])
            start += n
        names = self.feature_names
        found = ((j if names is None else names[j], value) for j, value in rounded.items())
        checks.note_rounded(found, self.path)
        for name, values in self.told.items():
            if len(values) != start:
                raise SourceError(f"the {self.path} has {start} rows and {len(values)} {name}s")

    def _require_block(self, X: Any, place: str) -> int:
        """Return the number of rows of a block, which must be as wide as those before it."""
        if not _is_array(X) or len(X.shape) != 2:
            shape = f" of the shape {tuple(X.shape)}" if _is_array(X) else ""
            raise SourceError(
                f"{place} is {type(X).__name__}{shape}: it must be rows of SciPy or NumPy, of two "
                f"dimensions, or a pair (rows, labels). Texts and records go into a table, such as "
                f"pyarrow.Table.from_pylist(…)"
            )
        n, d = X.shape
        checks.require_shape(n, d, place)
        if self.n_features is None:
            self.n_features = d
        if d != self.n_features:
            raise SourceError(f"{place} has {d} columns, and those before it {self.n_features}")
        if self.feature_names is not None and len(self.feature_names) != d:
            raise SourceError(f"{place} has {d} columns, and {len(self.feature_names)} names")
        return int(n)


class AnnDataObject(Blocks):
    """An AnnData object in memory, backed by a file, or lazy. It takes the options of files."""

    format = "anndata-object"
    of_samples = ()  # they are names of columns

    def __init__(
        self,
        data: Any,
        *,
        layer: str | None = None,
        label: str | Sequence[str] | None = None,
        split: str | None = None,
        split_map: str | Mapping[str, str | None] | None = None,
        unlabeled: str | None = None,
        target: str | None = None,
        label_separator: str | None = None,
        group: str | None = None,
        batch: str | None = None,
        sample_weight: str | None = None,
        time: str | None = None,
    ) -> None:
        if layer is not None and layer not in data.layers:
            raise SourceError(
                f"the AnnData object has no layers[{layer!r}]; its layers are: "
                f"{', '.join(filter(None, data.layers)) or 'none'}"
            )
        if data.isbacked and data.is_view:
            raise SourceError(
                "a view of a backed AnnData object would be loaded whole: stage the whole object, "
                "or write the view to a file"
            )
        columns = [str(name) for name in data.obs.columns]
        given = {"label": samples.label_option(label), "split": split, "group": group}
        given |= {"batch": batch, "sample_weight": sample_weight, "time": time}
        roles, known = samples.roles_in_obs(given, columns, "the AnnData object"), dict[str, Any]()
        for role, name in roles.items():
            if isinstance(name, tuple):
                known["y"] = {one: data.obs[one] for one in name}
            elif name in columns:
                known["y" if role == "label" else role] = data.obs[name]
            elif (matrix := name.removeprefix(samples.OBSM)) in data.obsm:
                known["y"] = data.obsm[matrix]
            else:
                raise SourceError(f"the AnnData object has no obsm[{matrix!r}]")
        halves = known.pop("split", None)
        super().__init__(
            data.X if layer is None else data.layers[layer],
            sample_names=data.obs_names,
            names=data.var_names,
            unlabeled=unlabeled,
            target=target,
            label_separator=label_separator,
            **known,
        )
        self.split_map = split_map
        if halves is not None:
            self.told["split"] = samples.as_column(halves, "obs, split")
        self.label_columns = None if "y" in known else columns
        self.path = self.plain = "anndata"


def row_blocks(X: Any, origin: str, scratch: Path) -> Iterable[Any]:
    """Return blocks of the rows of a matrix, or the iterator over them that is there already."""
    if isinstance(X, Matrix):
        return (engine.load(tile) for tile in X.tiles(0))
    if not _is_array(X):
        return X
    if hasattr(X, "__dask_graph__"):
        return (_dask_rows(X, i, origin) for i in range(X.numblocks[0]))
    if isinstance(X, np.ndarray) or (sp.issparse(X) and X.format == "csr"):
        return [X]
    if sp.issparse(X):
        turned = _transpose(X, origin, scratch / "turned")
        return (turned.read(piece).X for piece in turned.pieces(READ_BYTES))
    if getattr(X, "format", None) == "csc":
        raise SourceError(
            f"{origin}: a csc matrix on disk would be loaded whole: stage the file by its path"
        )
    return _read_slices(X)


def _dask_rows(X: Any, i: int, origin: str) -> Any:
    """Compute one block of rows, which may be cut by columns."""
    parts = []
    for j in range(X.numblocks[1]):
        part = X.blocks[i, j]
        if not sp.issparse(engine.empty_block(part)) and not np.isnan(part.size):
            what = f"{origin}: its block ({i}, {j}) of {part.shape}, which Dask computes whole,"
            engine.require_memory(2 * part.nbytes, what)
        parts.append(part.compute())
    if len(parts) == 1:
        return parts[0]
    if sp.issparse(parts[0]):
        return sp.hstack(parts, format="csr")
    return np.ma.hstack(parts) if any(map(np.ma.isMaskedArray, parts)) else np.hstack(parts)


def _transpose(X: Any, origin: str, folder: Path) -> ScratchMatrix:
    """Write csr on scratch from a sparse matrix of another format, in chunks."""
    if X.format == "csc":
        return transpose_csc(folder, origin, {k: getattr(X, k) for k in COMPRESSED}, X.shape)
    if X.format != "coo":
        engine.require_memory(16 * X.nnz, f"{origin}: a {X.format} matrix as coordinates")
    entries = X.tocoo()

    def chunks() -> Iterator[Triplets]:
        for a in range(0, entries.nnz, ENTRIES):
            cut = slice(a, a + ENTRIES)
            yield entries.row[cut], entries.col[cut], entries.data[cut]

    return write_csr(folder, origin, chunks, X.shape, entries.dtype)


def _read_slices(X: Any) -> Iterator[Any]:
    """Yield slices of a matrix that reads its rows when they are asked for."""
    start, rows = 0, 64
    while start < X.shape[0]:
        block = X[start : start + rows]
        yield block
        start += rows
        size = 12 * block.nnz if sp.issparse(block) else block.nbytes
        rows = max(1, min(8 * rows, rows * READ_BYTES // max(size, 1)))


def cut_rows(X: Any, origin: str, start: int) -> Iterator[tuple[int, sp.csr_array]]:
    """Yield rows of a block in canonical csr, and where they begin in it. It is row `start`."""
    n, d = X.shape
    if sp.issparse(X):
        X = X.tocsr()
        parts = {name: getattr(X, name) for name in COMPRESSED}
        indptr = checks.require_indptr(X.indptr, n, len(X.data), origin)
    elif np.ma.isMaskedArray(X) and (masked := np.argwhere(np.ma.getmaskarray(X))).size:
        row, column = masked[0].tolist()
        raise SourceError(
            f"{origin}: row {start + row}, column {column} (from 0) is masked, and a value must be "
            f"a number: fill it, as by X.filled(0)"
        )
    else:
        X = np.asarray(X)
    first = 0
    while first < n:
        if sp.issparse(X):
            stop = int(np.searchsorted(indptr, indptr[first] + ENTRIES, side="right")) - 1
            stop = min(max(first + 1, stop), n)
            entries = int(indptr[stop] - indptr[first])
            engine.require_memory(ROW_MEMORY * entries, f"{origin}: row {start + first}, alone,")
            rows = read_csr(parts, (first, stop), d, origin)
        else:
            stop = min(first + max(1, ENTRIES // max(d, 1)), n)
            rows = flatten_rows(X[first:stop], origin)
        check_rows(rows, origin, start + first)
        rows.eliminate_zeros()
        yield first, rows
        first = stop
