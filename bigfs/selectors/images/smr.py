"""SMR: sparse matrix regression on two-dimensional samples [Hou, Jiao, Nie, Luo, Zhou, IEEE TIP
2017].

With X_i the M × N sample i and r a class (k = 1 is GBR):

    min_{U, V, b}  Σ_r Σ_i (tr(UᵣᵀX_iVᵣ) + b_r − y_ir)² + α‖P‖₂,ₚᵖ                  [eq. 11]

    p_r = vec(UᵣVᵣᵀ),    P: MN × c

The penalty is smoothed, Σ_ij (‖P_ij‖² + ζ)^(p/2), and majorized by Σ_ij d_ij ‖P_ij‖² with
d_ij = p/2 (‖P_ij‖² + ζ)^(p/2−1). A round is u-step, D, v-step, D. Each half of it is a ridge
problem and never raises the objective. With F_r = [X_iv_1; …; X_iv_k]:

    u_r = (F_r L_c F_rᵀ + αA)⁻¹ F_r L_c y_rᵀ                             [eq. 23, corrected]
    A_ab = diag_i(Σ_j v_ja v_jb d_ij)

`systems` solves this.

P does not change if V is made orthonormal and U takes up the rest. Doing so before each step keeps
A positive definite when P loses rank, where the printed system is singular.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from bigfs import engine
from bigfs.embedding.targets import one_hot
from bigfs.matrix import Matrix
from bigfs.matrix.gathering import PEAK_ENTRY_BYTES
from bigfs.result import Record, Status
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import labeled_part
from bigfs.selectors.base.parameters import COUNT, Allowed
from bigfs.selectors.images.systems import (
    CovarianceSystems,
    ImageLayout,
    ImageSystems,
    KernelSystems,
    SampleSystems,
)
from bigfs.types import FloatArray

LARGEST_ALPHA = 1e100  # of which the products with D are numbers
SMOOTHING = 1e-5  # √ζ over the norm of a typical row of the first P


# --- problem and step -----------------------------------------------------------------------------


class SMRState(NamedTuple):
    """The factors after some rounds."""

    U: FloatArray  # c × M × k
    V: FloatArray  # c × N × k
    D: FloatArray  # M × N
    objective: float
    change: float  # relative, of the objective


def product(U: FloatArray, V: FloatArray) -> FloatArray:
    """Return P (c × M × N)."""
    return U @ V.swapaxes(-1, -2)


class SMRProblem(NamedTuple):
    """The systems of the half rounds, and the penalty."""

    systems: ImageSystems
    y_norm2: float  # Σ_r ‖y_r − ȳ_r‖²
    alpha: float
    p: float
    zeta: float

    def measure(self, state: SMRState) -> Record:
        return {"objective": state.objective, "change": state.change}

    def weights(self, P: FloatArray) -> FloatArray:
        """Return d_ij (M × N) at P (c × M × N)."""
        return self.p / 2 * (np.einsum("rij,rij->ij", P, P) + self.zeta) ** (self.p / 2 - 1)

    def penalty(self, P: FloatArray) -> float:
        """Return the smoothed ‖P‖₂,ₚᵖ."""
        return float(np.sum((np.einsum("rij,rij->ij", P, P) + self.zeta) ** (self.p / 2)))

    def update_factor(
        self, V: FloatArray, D: FloatArray, transpose: bool = False
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return V made orthonormal (c × N × k), the best U for it (c × M × k), and the loss.

        With `transpose` the roles are swapped: `V` holds the given U's, and the best V is returned
        second.
        """
        V = np.linalg.qr(V)[0]
        factors = self.systems.solve(V, D.T if transpose else D, self.alpha, transpose)
        U, losses = zip(*factors, strict=True)
        return V, np.stack(U), float(np.sum(losses)) + self.y_norm2

    def step(self, state: SMRState) -> SMRState:
        """Run one round: u-step, D, v-step, D."""
        V, U, _ = self.update_factor(state.V, state.D)
        U, V, loss = self.update_factor(U, self.weights(product(U, V)), transpose=True)
        P = product(U, V)
        objective = loss + self.alpha * self.penalty(P)
        change = abs(state.objective - objective) / abs(objective)
        return SMRState(U, V, self.weights(P), objective, change)


# --- estimator ------------------------------------------------------------------------------------


class SMR(Selector):
    """Choose the pixels of images by sparse matrix regression.

    The weights of each class are an M × N matrix of rank k, and one penalty over all classes
    chooses the pixels [1]_. The samples may be any M × N matrices. The method is supervised.
    Unlabeled samples are left out. A forbidden pixel is blank in every image.

    Parameters
    ----------
    sample_shape : tuple of int or None, default=None
        Shape (M, N) of a sample, with M·N features. None takes plain vectors, (n_features, 1). The
        shape that a store declares is in `corpus.spec["sample_shape"]`.
    order : {"C", "F"}, default="C"
        "C" if pixel (i, j) is column iN + j of X, "F" if it is column jM + i, as MATLAB flattens
        images. A wrong order raises no error.
    alpha : float, default=1.0
        Weight of the penalty. The loss is a sum over the samples, so twice the samples need twice
        alpha.
    k : int, default=4
        Rank of the weights of each class. More than min(M, N) is the same as min(M, N). k = 1 is
        the paper's GBR.
    p : float, default=1.0
        Exponent of the ℓ2,p penalty, in (0, 2]. Below 1 the weights are sparser, and the problem is
        not convex even for fixed V. 2 is a ridge penalty.
    gram : {"auto", "kernel", "covariance", "samples"}, default="auto"
        "kernel" keeps the samples and solves systems of as many rows. "covariance" keeps the
        covariance of the pixels, from one pass over X. "samples" reads X twice per round. "auto"
        takes the first that fits in a quarter of the memory, and "kernel" only for at most
        k·max(M, N) samples.
    tol : float, default=1e-6
        Relative change of the objective at which to stop. The default is the paper's.
    max_iter : int, default=30
        Maximum number of rounds. The default is the paper's.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Norm of each pixel's weights over the classes. Larger is better.
    score_map_ : ndarray of shape (M, N)
        The scores as an image.
    U_ : ndarray of shape (n_classes, M, k)
        Left factors of the weights.
    V_ : ndarray of shape (n_classes, N, k)
        Right factors of the weights.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts b.
    %(classes)s
    %(n_rounds)s
    result_ : bigfs.result.Result
        Status and history, with the objective and its relative change after each round. The stats
        have ζ and the route.

    See Also
    --------
    SparGE : Choose columns of any X together.
    Fisher : Score pixels one at a time.

    Notes
    -----
    The problem is eq. 11 of [1]_, with X_i the sample i as a matrix and P the weights of all
    classes::

        min_{U, V, b}  Σ_r Σ_i (tr(U_rᵀ X_i V_r) + b_r − y_ir)² + α‖P‖₂,ₚᵖ,    p_r = vec(U_r V_rᵀ)

    The penalty is smoothed by ζ. The objective never rises, but the problem is not convex, and the
    paper's rule to stop is no certificate: a run ends with the status FINISHED.

    References
    ----------
    .. [1] C. Hou, Y. Jiao, F. Nie, T. Luo and Z.-H. Zhou, "2D feature selection by sparse matrix
       regression", IEEE Transactions on Image Processing, 2017, Alg. 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bigfs import SMR
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = SMR(sample_shape=(8, 8), n_features_to_select=10, tol=1e-3).fit(X, y)
    >>> model.score_map_.shape
    (8, 8)
    >>> model.selected_[:4]
    array([38, 47, 14, 57])
    """

    sample_shape: tuple[int, int] | None = None
    order: Literal["C", "F"] = "C"
    alpha: float = 1.0
    k: int = 4
    p: float = 1.0
    gram: Literal["auto", "kernel", "covariance", "samples"] = "auto"
    tol: float = 1e-6
    max_iter: int = 30

    _needs_one_scale = True
    _cost = Cost("1, or 2 per round", "n d, d², or 3 c (k max(M, N))²")
    _parameter_constraints: ClassVar[Allowed] = {
        "sample_shape": ["array-like"],
        "alpha": [Interval(Real, 0, LARGEST_ALPHA, closed="right")],
        "k": COUNT,
        "p": [Interval(Real, 0, 2, closed="right")],
    }

    def _fit(self, X: Matrix, y: Any) -> None:
        layout = self._layout(X.shape[1])
        X, self.classes_, codes = labeled_part(X, y)
        blank = self._constraints.absent
        Y = one_hot(codes, len(self.classes_))
        mu, y_mean = X.means, Y.mean(axis=0)
        Y -= y_mean
        systems = self._systems(X, Y, layout)
        problem, start = self._start(systems, layout, Y.shape[1], float(np.sum(Y**2)))
        state = self._iterate(problem, start, stop="change", reached=Status.FINISHED)
        self.result_.stats.update(zeta=problem.zeta, route=systems.route)
        self.U_, self.V_ = state.U, state.V
        P = layout.flatten(product(self.U_, self.V_))
        P[:, blank] = 0
        self.scores_ = np.linalg.norm(P, axis=0)
        self.score_map_ = layout.fold(self.scores_)
        self.intercept_ = y_mean - P @ mu

    def _layout(self, d: int) -> ImageLayout:
        shape = (d, 1) if self.sample_shape is None else tuple(self.sample_shape)
        if len(shape) != 2 or shape[0] * shape[1] != d:
            raise ValueError(
                f"sample_shape must be (M, N) with M·N = {d}, the columns of X; got {shape}"
            )
        return ImageLayout(int(shape[0]), int(shape[1]), self.order)

    def _start(
        self, systems: ImageSystems, layout: ImageLayout, c: int, y_norm2: float
    ) -> tuple[SMRProblem, SMRState]:
        """Run one round from V = [I_k; 0] with unit weights, and derive D and ζ from its P.

        ζ then stays fixed, so that the objective does not change between rounds. The paper takes D
        from the first half of that round, when only k columns of P are not zero. The weights of all
        other columns are then larger by about 1/√ζ.
        """
        k = min(self.k, layout.M, layout.N)
        D = np.ones((layout.M, layout.N))
        problem = SMRProblem(systems, y_norm2, float(self.alpha), float(self.p), 0.0)
        first_V = np.broadcast_to(np.eye(layout.N, k), (c, layout.N, k))
        V, U, _ = problem.update_factor(first_V, D)
        U, V, _ = problem.update_factor(U, D, transpose=True)
        P = product(U, V)
        if not P.any():
            raise ValueError(
                "no pixel of X is correlated with y, so every weight is zero: check X and y"
            )
        typical_norm2 = float(np.mean(np.einsum("rij,rij->ij", P, P)))
        problem = problem._replace(zeta=max(SMOOTHING**2 * typical_norm2, np.finfo(float).tiny))
        return problem, SMRState(U, V, problem.weights(P), np.inf, np.inf)

    def _systems(self, X: Matrix, Y: FloatArray, layout: ImageLayout) -> ImageSystems:
        """Return the systems on the way that `gram` says."""
        n, d = X.shape
        size = min(self.k, layout.M, layout.N) * max(layout.M, layout.N)
        # gathered, dense and centered, and the arrays of one class
        kernel_bytes = PEAK_ENTRY_BYTES * X.nnz + 8 * (2 * n * d + 3 * n * size + 2 * n**2)
        is_small = n <= size and kernel_bytes <= engine.planned_memory() / 4
        if self.gram == "kernel" or (self.gram == "auto" and is_small):
            engine.require_memory(kernel_bytes, f"{n} dense samples and their kernel")
            Xc = X.columns(np.arange(d)).toarray() - X.means
            Xc[:, self._constraints.absent] = 0
            return KernelSystems(layout.fold(Xc), Y)
        covariance_bytes = 5 * 8 * d**2  # C, the partial sums of its tiles, and one contraction
        is_large = covariance_bytes > engine.planned_memory() / 4
        if self.gram == "samples" or (self.gram == "auto" and is_large):
            c = Y.shape[1]
            engine.require_memory(
                3 * 8 * c * size**2,
                f"SMR's Grams of {c} classes, {size} × {size} each (a smaller k needs less)",
            )
            return SampleSystems(X, Y, layout, self._constraints.absent)
        engine.require_memory(
            covariance_bytes,
            f"the {d} × {d} covariance of the pixels (gram='samples' avoids it)",
        )
        return CovarianceSystems(X, Y, layout, self._constraints.absent)
