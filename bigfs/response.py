"""T, the response that a graph embedding asks the features to explain: TᵀT = I, S = HHᵀ in its span.

SparGE's Table 1: each embedding is a positive semi-definite S (n × n), never formed; T holds the
left singular vectors of its factor with non-negligible singular value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def one_hot(codes: NDArray[np.int64], c: int) -> Array:
    """Y (n × c) of class numbers; an unlabelled row (−1) is zero."""
    Y = np.zeros((len(codes), c))
    known = np.flatnonzero(codes >= 0)
    Y[known, codes[known]] = 1
    return Y


def lda(codes: NDArray[np.int64], c: int) -> Array:
    """T (n × c−1) of linear discriminant analysis, in closed form.

    S = Y(YᵀY)⁻¹Yᵀ between the centred indicators: H = (I − 11ᵀ/n) Y diag(n_c)^-½ has c − 1 singular
    values, all one, so T = Y diag(n_c)^-½ U with U an orthonormal basis of what is orthogonal to √n_c.
    """
    sizes = np.bincount(codes, minlength=c).astype(float)
    if sizes.min() == 0:
        raise ValueError(f"class number {int(sizes.argmin())} has no sample: every class needs one")
    root = np.sqrt(sizes)
    basis = np.linalg.qr(np.column_stack([root, np.eye(c)[:, : c - 1]]))[0]
    U = basis[:, 1:] * np.sign(np.diag(basis)[1:] + 0.5)  # a sign of its own, not LAPACK's
    return (U / root[:, None])[codes]
