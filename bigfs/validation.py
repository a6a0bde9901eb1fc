"""The conditions that every input meets, whatever it comes as: finite values and one canonical
sparse form.

Files, arrays, Dask arrays and stores pass through the same functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


def canonical(X: Any) -> Any:
    """Return a sparse matrix with sorted indices and without duplicate entries.

    Parameters
    ----------
    X : sparse array or matrix
        Duplicate entries are summed, as SciPy defines them. `X` is never changed.

    Returns
    -------
    csr_array or csc_array
        A csc input stays csc; every other format becomes csr. `X` itself if it is in canonical form
        already.

    Raises
    ------
    ValueError
        The index arrays contradict one another or the shape.
    """
    Z = (
        X
        if isinstance(X, sp.csr_array | sp.csc_array)
        else sp.csc_array(X)
        if X.format == "csc"
        else sp.csr_array(X)
    )
    Z.check_format(full_check=True)
    if Z.has_canonical_format:
        return Z
    Z = Z.copy()
    Z.sum_duplicates()
    return Z


def require_finite(values: Any, name: str) -> None:
    """Refuse NaN and infinity.

    Parameters
    ----------
    values : ndarray
        The numbers, or the stored entries of a sparse matrix (`X.data`).
    name : str
        What holds them, for the message.

    Raises
    ------
    ValueError
        The message says whether it is NaN or infinity.
    """
    values = np.asarray(values)
    # a finite sum has finite terms: one pass without a mask
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return
    if np.isnan(values).any():
        raise ValueError(f"{name} contains NaN: replace missing values first")
    if np.isinf(values).any():
        raise ValueError(f"{name} contains infinity: replace infinite values first")


def checked(block: Any) -> Any:
    """Return a block of X in canonical form, in single or double precision, once its values are
    known to be finite.

    Parameters
    ----------
    block : ndarray, sparse array or matrix
        It is never changed.

    Returns
    -------
    ndarray, csr_array or csc_array
        `block` itself where nothing has to change.

    Raises
    ------
    ValueError
        It holds NaN, infinity, or something that is not a real number.
    """
    block = canonical(block) if sp.issparse(block) else np.asarray(block)
    if block.dtype.kind not in "biuf":
        raise ValueError(f"X must hold real numbers; got {block.dtype}: convert X first")
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    require_finite(block.data if sp.issparse(block) else block, "X")
    return block


# of column norms: products of four values stay far from the ends of float64
LARGEST, SMALLEST = 1e60, 1e-60


def require_magnitude(squares: Any, counts: Any) -> None:
    """Refuse values whose products leave the range of double precision.

    Parameters
    ----------
    squares, counts : ndarray of shape (d,)
        Each column's sum of squares, and whether it has values other than zero.

    Raises
    ------
    ValueError
        The largest column norm is above 1e60, or below 1e-60 without being zero.
    """
    largest = float(np.sqrt(np.max(squares, initial=0.0)))
    if np.any(counts) and not SMALLEST <= largest <= LARGEST:
        size = "large" if largest > LARGEST else "small"
        raise ValueError(
            f"the values of X are too {size}: the largest column norm must be between "
            f"{SMALLEST:.0e} and {LARGEST:.0e}; got {largest:.0e}: multiply X by a constant"
        )


@contextlib.contextmanager
def factorized(what: str) -> Iterator[None]:
    """Say what to do about a matrix that has no factorization in double precision.

    Parameters
    ----------
    what : str
        The system that is solved in the block, for the message.

    Raises
    ------
    ValueError
        In place of NumPy's `LinAlgError`.
    """
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{what} is singular in double precision: raise the penalty, or "
            f"scale X to values near 1"
        ) from error
