"""Checks of the input: finite values and one canonical sparse form.

Files, arrays, Dask arrays and stores pass through the same functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray, BoolArray

# What a selector cannot read, and what to give instead. The first part of the module's name, and
# the name of the class where others of the module are fine.
STAGED = "stage its file with bigfs.storage.stage(path, store) and give bigfs.storage.open(store).X"
STREAM = "bigfs.storage.open(bigfs.storage.stage(X, store)).X"
UNREAD = {
    ("zarr", ""): f"one array of it, or {STAGED}",
    ("anndata", ""): f'its X and its labels, as fit(adata.X, adata.obs["cell_type"]), or {STAGED}',
    ("polars", "LazyFrame"): f"X.collect(), or {STAGED}",
    ("duckdb", ""): f"X.df(), or {STAGED}",
    ("_duckdb", ""): f"X.df(), or {STAGED}",
    ("pyarrow", "RecordBatchReader"): f"X.read_all(), or {STREAM}",
    ("dask", "Delayed"): f"dask.array.from_delayed(X, shape, dtype), or {STAGED}",
    ("dask", "Bag"): f"X.to_dataframe(), or {STAGED}",
    ("pathlib", ""): STREAM,
    ("builtins", "str"): STREAM,
    ("builtins", "generator"): STREAM,
    ("builtins", "list of dict"): "sklearn.feature_extraction.DictVectorizer().fit_transform(X)",
    ("builtins", "list of str"): (
        "sklearn.feature_extraction.text.TfidfVectorizer().fit_transform(X)"
    ),
}


class UnequalScalesWarning(UserWarning):
    """Warning that the units of the features decide the choice.

    The standard deviation of a feature is over ten times the median one, and the method follows the
    features of large deviation. Features of 0 and 1 do not count, nor do those that are zero in
    half of the samples or more. A fit says so once.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_wine
    >>> from bigfs import SparGE
    >>> from bigfs.validation import UnequalScalesWarning
    >>> X, y = load_wine(return_X_y=True)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     selector = SparGE(n_features_to_select=3).fit(X, y)
    >>> said[0].category is UnequalScalesWarning
    True
    """


def require_readable(X: Any) -> None:
    """Refuse what would be loaded whole, or can't be read at all, with what to give instead."""
    if isinstance(X, np.ndarray) or sp.issparse(X) or hasattr(type(X), "iloc"):
        return  # anndata has views of its own of data in memory
    kind = type(X)
    library, name = kind.__module__.partition(".")[0], kind.__name__
    if isinstance(X, list) and X:
        name = f"list of {type(X[0]).__name__}"
    advice = UNREAD.get((library, "")) or UNREAD.get((library, name))
    if advice is None and library.startswith("xarray") and getattr(X, "chunks", None):
        advice = f"X.data, or {STAGED}"
    if advice:
        got = name if library in ("builtins", "pathlib") else f"{library}'s {name}"
        raise TypeError(
            f"X must be an array, a data frame, a Dask array or a Matrix; got {got}: give {advice}"
        )


def canonical(X: Any) -> Any:
    """Return a sparse matrix with sorted indices and without duplicate entries."""
    if isinstance(X, sp.csr_array | sp.csc_array):
        Z = X
    else:
        Z = sp.csc_array(X) if X.format == "csc" else sp.csr_array(X)
    Z.check_format(full_check=True)
    if Z.has_canonical_format:
        return Z
    Z = Z.copy()
    Z.sum_duplicates()
    return Z


FAULTS = {"NaN": (np.isnan, "missing"), "infinity": (np.isinf, "infinite")}


def require_finite(values: Any, name: str, place: Callable[[BoolArray], str] | None = None) -> None:
    """Refuse NaN and infinity. `place` says where the mask of the faults has the first one."""
    values = np.asarray(values)
    # a finite sum has finite terms, and needs no mask
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return
    for fault, (is_fault, kind) in FAULTS.items():
        if (mask := is_fault(values)).any():
            where = "" if place is None else place(mask)
            raise ValueError(f"{name} contains {fault}{where}: replace {kind} values first")


def check_block(block: Any, first_column: int = 0, names: Any = None) -> Any:
    """Check a block of X and return it in canonical form, in single or double precision. An error
    names the column, by its number in X or by its name in the block."""
    block = canonical(block) if sp.issparse(block) else np.asarray(block)
    if block.dtype.kind not in "biuf":
        raise ValueError(f"X must hold real numbers; got {block.dtype}: convert X first")
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)

    def place(mask: BoolArray) -> str:
        columns = sp.coo_array(block).coords[1][mask] if sp.issparse(block) else mask.nonzero()[-1]
        column = int(columns[0])
        return f" in column {column + first_column if names is None else repr(str(names[column]))}"

    require_finite(block.data if sp.issparse(block) else block, "X", place)
    return block


# Limits of the largest column norm. Products of four values stay far from the limits of float64.
LARGEST = 1e60
SMALLEST = 1e-60


def require_magnitude(sums_of_squares: Any, nnz: Any) -> None:
    """Refuse values whose products leave the range of double precision."""
    largest = float(np.sqrt(np.max(sums_of_squares, initial=0.0)))
    if np.any(nnz) and not SMALLEST <= largest <= LARGEST:
        size = "large" if largest > LARGEST else "small"
        raise ValueError(
            f"the values of X are too {size}: the largest column norm must be between "
            f"{SMALLEST:.0e} and {LARGEST:.0e}; got {largest:.0e}: multiply X by a constant"
        )


@contextlib.contextmanager
def explain_singular(what: str) -> Iterator[None]:
    """Give advice if a matrix has no factorization in double precision."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{what} is singular in double precision: raise the penalty, or "
            f"scale X to values near 1"
        ) from error


def require_weight(weights: AnyArray, target: str) -> None:
    """Refuse weights that are all zero, because no feature is correlated with the target."""
    if not weights.any():
        raise ValueError(
            f"no feature of X is correlated with {target}, so every weight is zero: "
            f"check X and {target}, or give other features"
        )
