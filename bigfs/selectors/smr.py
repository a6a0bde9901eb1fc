"""SMR: sparse matrix regression on two-dimensional samples [Hou, Jiao, Nie, Luo, Zhou, IEEE TIP
2017].

With X_i the M × N sample i and r a class (eq. 11; k = 1 is GBR):

    min_{U, V, b}  Σ_r Σ_i (tr(UᵣᵀX_iVᵣ) + b_r − y_ir)² + α‖P‖₂,ₚᵖ,      p_r = vec(UᵣVᵣᵀ),  P: MN ×
        c

‖P‖₂,ₚᵖ is smoothed, Σ_ij (‖P_ij‖² + ζ)^(p/2), and majorized by Σ_ij d_ij ‖P_ij‖², d_ij = p/2
(‖P_ij‖² + ζ)^(p/2−1), so that each half of a round (u-step, D, v-step, D) is a ridge problem and
never raises the objective. With F_r = [X_iv_1; …; X_iv_k]:

    u_r = (F_r L_c F_rᵀ + αA)⁻¹ F_r L_c y_rᵀ  (eq. 23, corrected),   A_ab = diag_i(Σ_j v_ja v_jb
        d_ij)

F_r L_c F_rᵀ = (V_r ⊗ I)ᵀ C (V_r ⊗ I) with C = XcᵀXc, so where the d × d covariance of the pixels
fits in memory, one pass over the data serves every round ("covariance"); else each half round
accumulates the kM × kM Grams over the tiles ("samples").

P does not change if V is made orthonormal and U takes up the rest. Doing so before each step keeps
A positive definite when P loses rank, where the printed system is singular.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions
from threadpoolctl import threadpool_limits

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.result import Record, iterate
from bigfs.selectors.base import Selector, at_least_two
from bigfs.types import FloatArray
from bigfs.validation import factorized

GROUP = 8  # classes a task
ROWS = 256  # samples that are dense at once
SMOOTHING = 1e-5  # √ζ over the norm of a typical row of the first P


# --- problem ------------------------------------------------------------------------------------


class Moments(Protocol):
    """What a half round needs of the data: Grams of F_r (c × kM × kM); of G_r = [X_iᵀu_1; …] when
    `across`.
    """

    def grams(self, V: FloatArray, across: bool) -> FloatArray: ...


class Images(NamedTuple):
    """How a row of X is an M × N image."""

    M: int
    N: int
    order: str  # "C": pixel (i, j) is column iN + j; "F", MATLAB's: column jM + i

    def fold(self, Z: FloatArray) -> FloatArray:
        """(…, MN) to (…, M, N)."""
        lead = Z.shape[:-1]
        return (
            Z.reshape(*lead, self.M, self.N)
            if self.order == "C"
            else Z.reshape(*lead, self.N, self.M).swapaxes(-1, -2)
        )

    def flat(self, P: FloatArray) -> FloatArray:
        """(…, M, N) to (…, MN), the order of the columns of X."""
        return (P if self.order == "C" else P.swapaxes(-1, -2)).reshape(
            *P.shape[:-2], self.M * self.N
        )


class Covariance(NamedTuple):
    """Grams out of C = XcᵀXc: 2·MN·N·k(M + k) flops a class, no data."""

    C: FloatArray  # M × N × M × N

    def grams(self, V: FloatArray, across: bool) -> FloatArray:
        C = self.C.transpose(1, 0, 3, 2) if across else self.C
        return np.concatenate(engine.map_tiles(_contract, _groups(V), np.ascontiguousarray(C)))


class Samples(NamedTuple):
    """Grams accumulated over the tiles: 2·n·kM(N + kM) flops a class and a pass over X, no d × d
    array.
    """

    X: Matrix
    mu: FloatArray
    images: Images

    def grams(self, V: FloatArray, across: bool) -> FloatArray:
        return np.asarray(self.X.reduce_rows(_gram_of_tile, self.mu, V, self.images, across))


def _contract(V: FloatArray, C: FloatArray) -> FloatArray:
    """(V_r ⊗ I)ᵀ C (V_r ⊗ I) for a few classes: V is g × N × k, C is M × N × M × N; blocks by
    column of V.
    """
    M, N = C.shape[:2]
    g, _, k = V.shape
    right = C.reshape(M * N * M, N) @ V.transpose(1, 0, 2).reshape(N, g * k)
    right = np.ascontiguousarray(right.reshape(M, N, M, g, k).transpose(3, 1, 0, 2, 4)).reshape(
        g, N, M * M * k
    )
    both = V.transpose(0, 2, 1) @ right  # g × k × (M, M, k)
    return both.reshape(g, k, M, M, k).transpose(0, 1, 2, 4, 3).reshape(g, k * M, k * M)


def _gram_of_tile(
    block: Any, start: int, stop: int, mu: FloatArray, V: FloatArray, images: Images, across: bool
) -> FloatArray:
    rows, k = (images.N if across else images.M), V.shape[2]
    total = np.zeros((len(V), k * rows, k * rows))
    for a in range(0, stop - start, ROWS):
        part = block[a : a + ROWS]
        Xc = images.fold((part.toarray() if sp.issparse(part) else np.asarray(part)) - mu)
        Xc = np.ascontiguousarray(Xc.swapaxes(-1, -2) if across else Xc)
        for r, Vr in enumerate(V):
            F = (Xc @ Vr).swapaxes(-1, -2).reshape(len(Xc), k * rows)
            total[r] += F.T @ F
    return total


class Problem(NamedTuple):
    moments: Moments
    T: FloatArray  # c × M × N: Xᵀ(y_r − ȳ_r) as images
    energy: float  # Σ_r ‖y_r − ȳ_r‖²
    alpha: float
    p: float
    zeta: float

    def weights(self, P: FloatArray) -> FloatArray:
        """d_ij, M × N; P is c × M × N."""
        return self.p / 2 * (np.einsum("rij,rij->ij", P, P) + self.zeta) ** (self.p / 2 - 1)

    def penalty(self, P: FloatArray) -> float:
        return float(np.sum((np.einsum("rij,rij->ij", P, P) + self.zeta) ** (self.p / 2)))

    def half(
        self, V: FloatArray, D: FloatArray, across: bool = False
    ) -> tuple[FloatArray, FloatArray, float]:
        """The best U for V: orthonormal V (c × N × k), U (c × M × k), and the loss Σ(tr(UᵀXV) + b −
        y)².

        `across` swaps the roles: V holds the given U's, and what comes back is the best V.
        """
        V = np.linalg.qr(V)[0]
        T, D = (self.T.swapaxes(-1, -2), D.T) if across else (self.T, D)
        grams = self.moments.grams(V, across)
        solved = engine.map_tiles(
            _solve, _groups(V), D, self.alpha, each=[_groups(grams), _groups(T)]
        )
        U, losses = zip(*(each for group in solved for each in group), strict=True)
        return V, np.stack(U), float(np.sum(losses)) + self.energy


def _groups(stack: FloatArray) -> list[FloatArray]:
    """A stack over the classes, cut for the tasks."""
    return [stack[g : g + GROUP] for g in range(0, len(stack), GROUP)]


def _solve(
    V: FloatArray, grams: FloatArray, T: FloatArray, D: FloatArray, alpha: float
) -> list[tuple[FloatArray, float]]:
    return [_solve_class(*each, D, alpha) for each in zip(V, grams, T, strict=True)]


def _solve_class(
    V: FloatArray, G: FloatArray, T: FloatArray, D: FloatArray, alpha: float
) -> tuple[FloatArray, float]:
    """U_r (M × k), and uᵀGu − 2uᵀt: what class r's loss is more than ‖y_r − ȳ_r‖²."""
    k, M = V.shape[1], len(D)
    A = np.einsum("ij,ja,jb->abi", D, V, V)  # its k × k blocks are diagonal
    K, t = G.reshape(k, M, k, M).copy(), (T @ V).T.ravel()
    i = np.arange(M)
    K[:, i, :, i] += alpha * A.transpose(2, 0, 1)
    with factorized("SMR's ridge system"):
        u = scipy.linalg.cho_solve(
            scipy.linalg.cho_factor(K.reshape(k * M, k * M), lower=True, overwrite_a=True), t
        )
    return u.reshape(k, M).T, float(u @ (G @ u) - 2 * u @ t)


# --- step ---------------------------------------------------------------------------------------


class Factors(NamedTuple):
    U: FloatArray  # c × M × k
    V: FloatArray  # c × N × k
    D: FloatArray  # M × N
    objective: float
    change: float  # relative, of the objective


def product(U: FloatArray, V: FloatArray) -> FloatArray:
    """P as c × M × N."""
    return U @ V.swapaxes(-1, -2)


def a_round(problem: Problem, now: Factors) -> Factors:
    """u-step, D, v-step, D."""
    V, U, _ = problem.half(now.V, now.D)
    U, V, loss = problem.half(U, problem.weights(product(U, V)), across=True)
    P = product(U, V)
    objective = loss + problem.alpha * problem.penalty(P)
    return Factors(
        U, V, problem.weights(P), objective, abs(now.objective - objective) / abs(objective)
    )


# --- estimator ----------------------------------------------------------------------------------


class SMR(Selector):
    """Choose the pixels of images by sparse matrix regression.

    The weights of each class are an M × N matrix of rank k, and one penalty over all classes
    chooses the pixels [1]_. The samples may be any M × N matrices. The method is supervised.

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
    gram : {"auto", "covariance", "samples"}, default="auto"
        "covariance" keeps the covariance of the pixels, from one pass over X. "samples" reads X
        twice per round. "auto" takes the covariance where it fits in a quarter of the memory.
    tol : float, default=1e-6
        Relative change of the objective at which to stop. The default is the paper's.
    max_iter : int, default=30
        Maximum number of rounds. The default is the paper's.
    n_features_to_select : int, float or None, default=None
        Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
        half of them.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Norm of each pixel's weights over the classes. Larger is better.
    selected_ : ndarray of shape (n_selected,)
        Indices of the chosen features, best first. Equal scores are ordered by index.
    support_ : ndarray of shape (n_features,)
        Mask of the chosen features.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.
    score_map_ : ndarray of shape (M, N)
        The scores as an image.
    U_ : ndarray of shape (n_classes, M, k)
        Left factors of the weights.
    V_ : ndarray of shape (n_classes, N, k)
        Right factors of the weights.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts b.
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    n_iter_ : int
        Number of rounds.
    result_ : bigfs.result.Result
        Status and history, with the objective and its relative change after each round. The stats
        have ζ and the route.

    See Also
    --------
    SparGE : Choose columns of any X together.
    Fisher : Score pixels one at a time.

    Notes
    ----- The problem is eq. 11 of [1]_, with X_i the sample i as a matrix and P the weights of all
    classes::

        min_{U, V, b}  Σ_r Σ_i (tr(U_rᵀ X_i V_r) + b_r − y_ir)² + α‖P‖₂,ₚᵖ,    p_r = vec(U_r V_rᵀ)

    The penalty is smoothed by ζ. The objective never rises, but the problem is not convex: a run
    that converged is at a stationary point.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Selector._parameter_constraints,
        "sample_shape": ["array-like", None],
        "order": [StrOptions({"C", "F"})],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "k": [Interval(Integral, 1, None, closed="left")],
        "p": [Interval(Real, 0, 2, closed="right")],
        "gram": [StrOptions({"auto", "covariance", "samples"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        sample_shape: tuple[int, int] | None = None,
        order: str = "C",
        alpha: float = 1.0,
        k: int = 4,
        p: float = 1.0,
        gram: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 30,
        n_features_to_select: int | float | None = None,
    ) -> None:
        self.sample_shape = sample_shape
        self.order = order
        self.alpha = alpha
        self.k = k
        self.p = p
        self.gram = gram
        self.tol = tol
        self.max_iter = max_iter
        self.n_features_to_select = n_features_to_select

    def _fit(self, X: Matrix, y: Any) -> None:
        images = self._images(X.shape[1])
        self.classes_, code = at_least_two(y)
        if np.any(code < 0):
            raise ValueError(
                f"SMR needs a label for every sample, but {np.sum(code < 0)} samples are "
                f"unlabelled (−1): leave them out"
            )
        Y = np.eye(len(self.classes_))[code]
        mu, y_mean = X.means, Y.mean(axis=0)
        T = images.fold((X.T @ (Y - y_mean)).T)
        moments = self._moments(X, images)
        with threadpool_limits(1, "blas"):  # systems of kM × kM are too small for threads
            problem, start = self._start(
                moments, images, np.ascontiguousarray(T), float(np.sum((Y - y_mean) ** 2))
            )
            self.result_ = iterate(
                lambda now: a_round(problem, now),
                start,
                measure=_record,
                stop="change",
                tol=self.tol,
                max_iter=self.max_iter,
                name="SMR",
            )
        self.n_iter_ = len(self.result_.history)
        self.result_.stats.update(zeta=problem.zeta, route=type(problem.moments).__name__.lower())
        self.U_, self.V_ = self.result_.value.U, self.result_.value.V
        P = product(self.U_, self.V_)
        self.scores_ = np.linalg.norm(images.flat(P), axis=0)
        self.score_map_ = images.fold(self.scores_)
        self.intercept_ = y_mean - images.flat(P) @ mu

    def _images(self, d: int) -> Images:
        shape = (d, 1) if self.sample_shape is None else tuple(self.sample_shape)
        if len(shape) != 2 or shape[0] * shape[1] != d:
            raise ValueError(
                f"sample_shape must be (M, N) with M·N = {d}, the columns of X; got {shape}"
            )
        return Images(int(shape[0]), int(shape[1]), self.order)

    def _start(
        self, moments: Moments, images: Images, T: FloatArray, energy: float
    ) -> tuple[Problem, Factors]:
        """A round from V = [I_k; 0] at D = 1; from its P come D, and ζ, which is fixed from there
        on, or the objective would move.

        The paper takes D from the first half of that round, when P is zero but for k columns: they
        then weigh 1/√ζ of the others.
        """
        k, c, D = min(self.k, images.M, images.N), len(T), np.ones((images.M, images.N))
        problem = Problem(moments, T, energy, float(self.alpha), float(self.p), 0.0)
        V, U, _ = problem.half(np.broadcast_to(np.eye(images.N, k), (c, images.N, k)), D)
        U, V, _ = problem.half(U, D, across=True)
        P = product(U, V)
        if not P.any():
            raise ValueError(
                "no pixel of X is correlated with y, so every weight is zero: check X and y"
            )
        problem = problem._replace(
            zeta=max(
                SMOOTHING**2 * float(np.mean(np.einsum("rij,rij->ij", P, P))), np.finfo(float).tiny
            )
        )
        return problem, Factors(U, V, problem.weights(P), np.inf, np.inf)

    def _moments(self, X: Matrix, images: Images) -> Moments:
        # C, its tiles' partial sums, and one contraction
        d, need = X.shape[1], 5 * 8 * X.shape[1] ** 2
        if self.gram == "samples" or (self.gram == "auto" and need > engine.memory_limit() / 4):
            c, side = len(self.classes_), min(self.k, images.M, images.N) * max(images.M, images.N)
            engine.require_memory(
                3 * 8 * c * side**2,
                f"SMR's Grams of {c} classes, {side} × {side} each (a smaller k needs less)",
            )
            return Samples(X, X.means, images)
        engine.require_memory(
            need, f"the {d} × {d} covariance of the pixels (gram='samples' avoids it)"
        )
        C = X.reduce_rows(_covariance_of_tile, X.means, label="covariance")
        folded = images.fold(images.fold(C).transpose(1, 2, 0)).transpose(2, 3, 0, 1)
        return Covariance(np.ascontiguousarray(folded))


def _covariance_of_tile(block: Any, start: int, stop: int, mu: FloatArray) -> FloatArray:
    """Σ (x_i − μ)(x_i − μ)ᵀ over the tile, from a few dense rows at a time."""
    total = np.zeros((len(mu), len(mu)))
    for a in range(0, stop - start, ROWS):
        part = block[a : a + ROWS]
        Xc = (part.toarray() if sp.issparse(part) else np.asarray(part)) - mu
        total += Xc.T @ Xc
    return total


def _record(now: Factors) -> Record:
    return {"objective": now.objective, "change": now.change}
