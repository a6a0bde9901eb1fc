"""TRCFS [Liu, Nie, Wu, Chen 2013]: the trace ratio of features of the same scatter, for few labels.

The trace ratio Σ b_j / Σ w_j of features that are rescaled to the same total scatter t_j is largest
for the m largest b_j/t_j. Unlabeled samples take their classes from a propagation of the labels:

    F_u = α D_u⁻¹ (A_uu F_u + A_ul Y_l),    F_l = Y_l
    b_j = Σ_c p_c (m_cj − m_j)²,   t_j = Σ_i q_i (x_ij − m_j)²,   p_c = Σ_i F_ic,  q_i = Σ_c F_ic

m_cj and m_j are the means with the weights F_ic and q_i. What F_i lacks to 1 is the share of no
known class.
"""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg
from sklearn.utils._param_validation import Interval

from bigfs.embedding.responses import one_hot
from bigfs.graph.affinities import Weights
from bigfs.linalg.rounding import near_zero, unless_rounding
from bigfs.matrix import Matrix
from bigfs.result import NotConverged, Result, Status
from bigfs.selectors.base.estimator import Cost, map_all_columns
from bigfs.selectors.base.labels import Labels, at_least_two
from bigfs.selectors.scores.graph_forms import GraphSelector
from bigfs.selectors.scores.sums import ratio
from bigfs.types import FloatArray

PROPAGATION_TOLERANCE = 1e-10  # relative residual of the propagated labels


class TRCFS(GraphSelector):
    """Score each feature by the share of its scatter that propagated labels explain.

    The noise insensitive trace ratio criterion [1]_ is semi-supervised. Labels spread over the kNN
    graph, so that the unlabeled samples count with a share of each class. An unlabeled sample has
    the class −1.

    Parameters
    ----------
    %(select)s
    %(n_neighbors)s
    %(metric)s
    %(graph)s
    alpha : float, default=0.99
        Share α of an unlabeled sample's label that comes from its neighbors, between 0 and 1. The
        rest belongs to no known class.
    %(weights)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Share of each feature's scatter that the labels explain, between 0 and 1. Larger is better.
    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Share of each class in each sample. A row sums to less than 1 where a share belongs to no
        known class.
    %(classes)s
    %(selected)s
    result_ : bigfs.result.Result
        Status, and the relative residual of the propagated labels in `stats`.

    See Also
    --------
    TraceRatio : The criterion for labeled or unlabeled samples, without rescaling.
    LSDF : Differences between and within classes and neighborhoods.
    RLSR : Labels of unlabeled samples and features together.

    Notes
    -----
    With the affinity A of the graph, its degrees D, and the labels Y of the labeled samples l, the
    unlabeled samples u take the labels::

        F_u = α D_u⁻¹ (A_uu F_u + A_ul Y_l)

    b and t are the scatter between the classes and the total one with the weights F. Features that
    are rescaled to the same t have the trace ratio Σ b/t up to a monotone function, so the best set
    holds the largest b/t. If all samples are labeled this ranks as `Fisher` does. After the graph,
    one pass over X is made. The labels are solved for by conjugate gradients. The formulas follow a
    description of [1]_ and the propagation of [2]_. A labeled sample keeps its label here.

    References
    ----------
    .. [1] Liu, Nie, Wu and Chen, "Efficient semi-supervised feature selection with noise
       insensitive trace ratio criterion", Neurocomputing 105, 2013.
    .. [2] Nie, Xiang, Liu and Zhang, "A general graph-based semi-supervised learning with novel
       class discovery", Neural Computing and Applications 19, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import TRCFS
    >>> X, y = load_iris(return_X_y=True)
    >>> few = np.where(np.arange(150) % 10, -1, y)
    >>> TRCFS(n_features_to_select=2, metric="euclidean").fit(X, few).selected_
    array([2, 3])
    """

    alpha: float = 0.99
    weights: Weights = "heat"

    _cost = Cost("graph + 1", "n (k + c) + d c")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, 1, closed="left")],
    }
    _semi_supervised = True

    def _fit(self, X: Matrix, y: Labels) -> None:
        self.classes_, codes = at_least_two(y)
        _ = X.stats  # checks the magnitudes
        F, status, stats = one_hot(codes, len(self.classes_)), Status.EXACT, {"residual": 0.0}
        if not y.is_labeled.all():
            graph = self._graph(X, self.weights)
            F, residual = propagated(graph.A, F, y, self.alpha)
            too_large = residual > 10 * PROPAGATION_TOLERANCE
            status = Status.MAX_ITER if too_large else graph.status
            stats = {"residual": residual} | graph.stats
        self.scores_ = np.concatenate(map_all_columns(X, _explained, F, label="TRCFS"))
        self.label_distributions_ = F
        self.result_ = Result(self.scores_, status, stats=stats)


def propagated(A: sp.csr_array, Y: FloatArray, y: Labels, alpha: float) -> tuple[FloatArray, float]:
    """Return the label distributions F (n × c), and the largest relative residual.

    F_u = D_u^-½ Z with (I − α D_u^-½ A_uu D_u^-½) Z = α D_u^-½ A_ul Y_l, which is symmetric and
    positive definite.
    """
    degree = np.asarray(A.sum(axis=1)).ravel()
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    u, labeled = ~y.is_labeled, y.is_labeled
    S = sp.csr_array(sp.diags_array(root[u]) @ A[u][:, u] @ sp.diags_array(root[u]))
    system = sp.csr_array(sp.eye_array(S.shape[0]) - alpha * S)
    right = alpha * root[u][:, None] * (A[u][:, labeled] @ Y[labeled])  # |u| × c
    F, largest = Y.copy(), 0.0
    for c in range(Y.shape[1]):
        z, _ = cg(system, right[:, c], rtol=PROPAGATION_TOLERANCE)
        norm = float(np.linalg.norm(right[:, c])) or 1.0
        largest = max(largest, float(np.linalg.norm(system @ z - right[:, c])) / norm)
        F[u, c] = root[u] * z
    if largest > 10 * PROPAGATION_TOLERANCE:
        warnings.warn(
            f"the propagated labels have a relative residual of {largest:.1e}: lower alpha",
            NotConverged,
            stacklevel=2,
        )
    return np.maximum(F, 0), largest


def _explained(block: Any, start: int, stop: int, F: FloatArray) -> FloatArray:
    """Return b/t of the columns of a tile."""
    block = near_zero(block.astype(np.float64))[0]
    squared = block.multiply(block) if sp.issparse(block) else block * block
    sizes, weight = F.sum(axis=0), F.sum(axis=1)
    sums, squares = np.asarray(block.T @ F), np.asarray(squared.T @ weight)
    shift = sums.sum(axis=1) ** 2 / sizes.sum()
    total = unless_rounding(squares - shift, squares)
    explained = (sums**2 / np.where(sizes > 0, sizes, 1)).sum(axis=1) - shift
    return np.minimum(ratio(unless_rounding(explained, squares), total), 1)
