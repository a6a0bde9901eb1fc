"""UDFS: unsupervised discriminative feature selection with the ℓ2,1 norm.

[Yang, Shen, Ma, Huang, Zhou, IJCAI 2011]

    min  tr(WᵀXᵀMXW) + γ Σ_j ‖w_j‖,    WᵀW = I                                        [eq. 13]

M (n × n, sparse) sums the local discriminants of the neighborhoods (`graph.neighborhoods`), times
λ. A round, with P = XᵀMX + γ diag(1/2θ), and θ = 1 at first:

    W = the r vectors of least tr(WᵀPW) in the span of [W, P⁻¹W]
    θ_j = ‖w_j‖

A solve with P is a weighted ridge solve. The objective falls in every round after the first. The
problem is not convex. The certificate is the violation of stationarity, with Λ = Wᵀ(G + γ/2 Ŵ),
G = XᵀMXW and ŵ_j = w_j/‖w_j‖:

    Σ_j ‖w_j‖ ‖g_j + γ/2 ŵ_j − w_jᵀΛ‖ / Σ_j ‖w_j‖ (‖g_j‖ + γ/2)

A feature whose θ is negligible leaves the working set, and returns if ‖g_j‖ > γ/2.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.graph import Metric, Neighbors
from bigfs.graph.discriminant import LocalDiscriminant, local_discriminant
from bigfs.linalg.prox import row_norms
from bigfs.linalg.ridge.operator import SampleOperator
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost
from bigfs.selectors.base.parameters import Allowed
from bigfs.selectors.base.sample_graph import neighbor_stats, neighbors_of
from bigfs.selectors.row_sparse.rows import (
    RowSparseProblem,
    RowSparseSelector,
    inactive_scores,
    without_negligible,
)
from bigfs.selectors.scores.graph import graph_forms
from bigfs.types import FloatArray

DEFAULT_COMPONENTS = 10
DEPENDENT = 1e-10  # a direction whose share outside the span of W is below this adds nothing


# --- problem and step -----------------------------------------------------------------------------


class UDFSState(NamedTuple):
    """The solution after some rounds, with its certificate."""

    theta: FloatArray  # (d,): 0 where a feature is inactive
    W: FloatArray  # d × r, orthonormal, for the scaled features
    MXW: FloatArray  # n × r
    objective: float
    violation: float  # of stationarity, on the working set
    gap: float  # of stationarity, on all features; infinite until the inactive ones were checked
    residual: float  # of the ridge solve, relative


class UDFSProblem(RowSparseProblem):
    """The data, the local discriminant, and the step."""

    def __init__(
        self,
        X: Matrix,
        discriminant: LocalDiscriminant,
        r: int,
        gamma: float,
        standardize: bool,
        **options: Any,
    ) -> None:
        super().__init__(X, r, **options)
        self.r = r
        m, F, _ = discriminant
        self.M = SampleOperator(m=m, F=F)
        # m holds the row sums of FFᵀ, so M is the Laplacian of FFᵀ
        forms = graph_forms(X, sp.csr_array(F @ F.T), label="UDFS")
        variances = X.deviations / X.shape[0]
        varies = self.candidates
        self.scale = np.zeros(X.shape[1])  # 0 drops a constant feature
        self.scale[varies] = 1 / np.sqrt(variances[varies]) if standardize else 1.0
        self.energies = forms.fLf * self.scale**2
        mean = float(self.energies[varies].mean())
        self.gamma = gamma * (mean if mean > 0 else 1.0)

    def start(self) -> UDFSState:
        """Return the state whose columns pick the features of least x_jᵀMx_j."""
        varies = self.scale > 0
        order = np.argsort(np.where(varies, self.energies, np.inf), kind="stable")
        if varies.sum() < self.r:
            raise ValueError(
                f"n_components={self.r} but only {varies.sum()} features vary: choose fewer"
            )
        W = np.zeros((self.X.shape[1], self.r))
        W[order[: self.r], np.arange(self.r)] = 1
        none = np.zeros((self.X.shape[0], self.r))
        return UDFSState(varies.astype(np.float64), W, none, np.inf, np.inf, np.inf, 0.0)

    def step(self, state: UDFSState) -> UDFSState:
        scale = self.scale[:, None]
        active = state.theta > 0
        D = np.divide(self.gamma / 2, state.theta, out=np.zeros_like(state.theta), where=active)
        u = np.divide(D, self.scale**2, out=np.full_like(D, np.inf), where=active)
        rhs = np.divide(state.W, scale, out=np.zeros_like(state.W), where=active[:, None])
        solution = self.working_set.solve_rhs(self.M, u, rhs)
        V = np.divide(solution.W, scale, out=np.zeros_like(state.W), where=active[:, None])
        basis = joint_basis(state.W, V)
        XB = self.working_set.times(scale * basis)
        MXB = self.M.apply(XB)
        H = XB.T @ MXB + basis.T @ (D[:, None] * basis)
        Q = np.linalg.eigh((H + H.T) / 2)[1][:, : self.r]
        W, MXW = basis @ Q, MXB @ Q
        theta = row_norms(W)
        objective = float(np.vdot(XB @ Q, MXW) + self.gamma * theta.sum())
        violation = self.violation(W, theta, scale * self.working_set.transposed_times(MXW))
        theta = without_negligible(theta)
        W[theta == 0] = 0
        theta, gap = self.with_violators(
            theta,
            violation,
            lambda: 2 * self.scale * self.pulls(self.X.T @ MXW) / self.gamma - 1,
        )
        return UDFSState(theta, W, MXW, objective, violation, gap, solution.residual)

    def violation(self, W: FloatArray, theta: FloatArray, G: FloatArray) -> float:
        """Return the violation of stationarity over the working set, relative."""
        sizes = np.maximum(theta, np.finfo(float).tiny)[:, None]
        slope = G + self.gamma / 2 * W / sizes
        Lam = W.T @ slope
        R = row_norms(slope - W @ (Lam + Lam.T) / 2)
        return float(theta @ R / (theta @ (row_norms(G) + self.gamma / 2)))

    def scores(self, state: UDFSState) -> FloatArray:
        """Return the score of each feature. A constant one has −1."""
        return inactive_scores(state.theta, self.scale * self.pulls(self.X.T @ state.MXW))


def joint_basis(W: FloatArray, V: FloatArray) -> FloatArray:
    """Return an orthonormal basis (d × r to 2r) of the span of W and V.

    Directions of V that lie in the span of W, up to rounding, are left out.
    """
    W = np.linalg.qr(W)[0]
    V = V / np.maximum(np.linalg.norm(V, axis=0), np.finfo(float).tiny)
    for _ in range(2):
        V = V - W @ (W.T @ V)
    U, s, _ = np.linalg.svd(V, full_matrices=False)
    return np.column_stack([W, U[:, s > DEPENDENT]])


# --- estimator ------------------------------------------------------------------------------------


class UDFS(RowSparseSelector):
    """Choose features in which near samples are close to, and yet apart from, one another.

    Unsupervised discriminative feature selection with the ℓ2,1 norm [1]_ looks for few features
    that span a subspace in which each neighborhood of samples is discriminated. It is for fewer
    features than samples: on text its choice is no better than chance.

    Parameters
    ----------
    gamma : float, default=0.1
        Weight γ of the penalty, in units of the mean of x_jᵀMx_j over the features. A larger value
        leaves fewer features with a weight, `n_components` of them at last.
    reg : float, default=1.0
        Weight λ within a neighborhood, in units of the neighborhoods' mean variance in a direction.
    n_components : int or None, default=None
        Dimension of the subspace. None takes 10, or fewer where X is small.
    n_neighbors : int, default=5
        Number of neighbors of each sample.
    %(neighbor_metric)s
    graph : Neighbors or None, default=None
        Neighbors to use instead of new ones.
    standardize : bool, default=True
        Whether W weighs the features at unit variance. Otherwise features of little variance win,
        because W has unit columns.
    %(tol_stationarity)s

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Norm of each feature's weights, where it is positive. A feature of zero weight has a score
        in [−1, 0], by how strongly the objective pulls at it.
    coef_ : ndarray of shape (n_features, n_components)
        Weights of the features of X: ``X @ coef_`` is in the subspace. The columns of W, which
        weighs the features at unit variance with `standardize`, are orthonormal.
    %(n_rounds)s
    %(rounds_result)s

    See Also
    --------
    NDFS : Clusters in place of neighborhoods.
    LaplacianScore : Near samples, one feature at a time.

    Notes
    -----
    With X̃_i the centered neighborhood of sample i, S_i its place among the samples and H the
    centering::

        min tr(WᵀXᵀMXW) + γ Σ_j ‖w_j‖,    WᵀW = I
        M = λ Σ_i S_i H (X̃_i X̃_iᵀ + λI)⁻¹ H S_iᵀ

    References
    ----------
    .. [1] Y. Yang, H. T. Shen, Z. Ma, Z. Huang and X. Zhou, "ℓ2,1-norm regularized discriminative
       feature selection for unsupervised learning", IJCAI 2011.

    Examples
    --------
    %(iris)s
    >>> from bigfs import UDFS
    >>> selector = UDFS(n_features_to_select=2, n_components=1, metric="euclidean").fit(X)
    >>> selector.selected_
    array([2, 3])
    """

    gamma: float = 0.1
    reg: float = 1.0
    n_components: int | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None
    standardize: bool = True
    solver: str = "auto"
    solver_tol: float = 1e-6
    solver_max_iter: int = 100
    tol: float = 1e-2
    max_iter: int = 200

    _needs_one_scale = True
    _cost = Cost("graph + 2 per CG step", "(n + d) r + columns")
    _parameter_constraints: ClassVar[Allowed] = {"graph": [Neighbors]}
    _ignores_y = True

    def _fit(self, X: Matrix, y: Any) -> None:
        n = X.shape[0]
        allowed = self._allowed(X)
        neighbors = self.graph or neighbors_of(allowed, self.n_neighbors, self.metric)[0]
        if len(neighbors.index) != n:
            raise ValueError(
                f"graph has {len(neighbors.index)} samples, but X has {n}: "
                f"give the graph of the samples of X"
            )
        r = self.n_components or max(1, min(DEFAULT_COMPONENTS, allowed.shape[1] // 2))
        discriminant = local_discriminant(allowed, neighbors, self.reg)
        problem = UDFSProblem(
            X.near_zero(), discriminant, r, self.gamma, self.standardize, **self._options()
        )
        state = self._solve(problem, problem.start())
        self.coef_ = problem.scale[:, None] * state.W
        graph = neighbor_stats(neighbors)
        self.result_.stats.update(gamma=problem.gamma, lam=discriminant.lam, **graph)
