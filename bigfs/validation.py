"""The conditions that every input meets, whatever it comes as: finite values and one canonical sparse form.

Files, arrays, Dask arrays and stores pass through the same two functions.
"""

from __future__ import annotations

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
        A csc input stays csc; every other format becomes csr. `X` itself if it is in canonical form already.

    Raises
    ------
    ValueError
        The index arrays contradict one another or the shape.
    """
    Z = X if isinstance(X, sp.csr_array | sp.csc_array) else sp.csc_array(X) if X.format == "csc" else sp.csr_array(X)
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
    with np.errstate(over="ignore", invalid="ignore"):  # a finite sum has finite terms: one pass without a mask
        if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
            return
    if np.isnan(values).any():
        raise ValueError(f"{name} contains NaN: replace missing values first")
    if np.isinf(values).any():
        raise ValueError(f"{name} contains infinity: replace it first")
