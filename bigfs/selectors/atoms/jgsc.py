"""JGSC: joint graph sparse coding [Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016].

    min_S ‖Xᵀ − BS‖² + α tr(S L Sᵀ) + λ‖S‖₂,₁        [eq. 6; Table I has the losses swapped]

B (d × m) are atoms learned from X (`coding.dictionary`), S (m × n) the codes of the samples, and L
the Laplacian of their kNN graph. `coding.codes` has the problem and its step. The atoms of largest
‖s_i‖ are kept.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bigfs import engine
from bigfs.coding.codes import CodingState, SquaredLoss, fit_codes, row_dots
from bigfs.coding.dictionary import default_atoms, learn_atoms
from bigfs.graph import Metric, Weights, affinity, knn, laplacian
from bigfs.matrix import Matrix
from bigfs.result import Result
from bigfs.selectors.base.estimator import Cost, MatrixInput, is_dask
from bigfs.selectors.base.parameters import COUNT, NOT_NEGATIVE, POSITIVE
from bigfs.types import FloatArray
from bigfs.validation import explain_singular

SAMPLE_COPIES = 8  # n × m arrays alive at once in a step
FEATURE_COPIES = 4  # d × m arrays


class JGSC(MatrixInput, TransformerMixin, BaseEstimator):
    """Choose the atoms of a dictionary that code the samples jointly and smoothly over a graph.

    Joint graph sparse coding [1]_ is unsupervised. What is selected are atoms of the dictionary,
    not columns of X. `transform` gives the codes on the kept atoms, and `column_importance_` ranks
    columns through them.

    Parameters
    ----------
    %(n_atoms)s
    %(smoothness)s
    lam : float, default=1.0
        Weight λ of the row sparsity.
    %(select_atoms)s
    %(n_neighbors)s
    %(metric)s
    %(weights)s
    %(dictionary)s
    max_iter : int, default=100
        Maximum number of Sylvester equations.
    %(atoms_seed)s

    Attributes
    ----------
    %(components)s
    scores_ : ndarray of shape (n_atoms,)
        Norm of each atom's codes. Larger is better.
    %(selected_atoms)s
    coder_ : ndarray of shape (n_features, n_selected)
        Matrix that takes new samples to their codes.
    %(column_importance)s
    n_iter_ : int
        Number of Sylvester equations solved.
    result_ : bigfs.result.Result
        Status and history of the coding. Each record of the history has the objective, the
        violation, and the relative residual of the Sylvester equation.
    %(dictionary_result)s

    See Also
    --------
    RJGSC : The same with a loss that weighs badly fitted features less.
    SparGE : With `embedding="pca"` or `"lpp"`, choose columns of X without labels.

    Notes
    -----
    The problem is eq. 6 of [1]_, with B the atoms, S the codes, and L the Laplacian of the graph::

        min_S  ‖Xᵀ − BS‖² + α tr(SLSᵀ) + λ‖S‖₂,₁

    Every code is zero from λ = 2 max_i ‖(XB)_i‖ on. New samples have no place in the graph. Their
    codes s solve (BᵀDB + λC) s = BᵀDx, which the training codes satisfy where α = 0. The coding
    reads X once, and the ranking of the columns once more.

    References
    ----------
    .. [1] X. Zhu, X. Li, S. Zhang, C. Ju and X. Wu, "Robust joint graph sparse coding for
       unsupervised spectral feature selection", IEEE Transactions on Neural Networks and Learning
       Systems, 2016, Alg. 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import JGSC
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = JGSC(dictionary=X[::30], n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.column_importance_.round(2)
    array([-2.59, -0.54,  0.47,  0.81])
    """

    n_atoms: int | None = None
    alpha: float = 1.0
    lam: float = 1.0
    n_features_to_select: int | float | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    weights: Weights = "heat"
    dictionary: Any = None
    dictionary_lam: float = 0.05
    epochs: int | None = None
    batch_rows: int = 512
    tol: float = 1e-3
    max_iter: int = 100
    random_state: Any = 0

    _cost = Cost("pairs + 2", "a (n + d)")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_atoms": [*COUNT, None],
        "alpha": NOT_NEGATIVE,
        "lam": POSITIVE,
        "dictionary": ["array-like", None],
        "dictionary_lam": POSITIVE,
        "epochs": [*COUNT, None],
        "batch_rows": COUNT,
        "tol": POSITIVE,
        "random_state": ["random_state"],
    }
    _supervised = False
    _loss: ClassVar[Any] = SquaredLoss

    @engine.one_blas_thread()
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the atoms, build the graph, and code every sample.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples. X is never changed.
        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        Self
            The fitted model.

        Raises
        ------
        ValueError
            X holds NaN or infinity, the dictionary does not fit X, or no sample has anything in
            common with the atoms.
        NoSpams
            The atoms are to be learned and SPAMS is not installed.
        NotEnoughMemory
            The codes do not fit in memory.
        """
        self._validate_params()
        X, _ = self._as_matrix(X, None)
        B = self._atoms(X)
        (n, d), m = X.shape, B.shape[1]
        n_kept = self._count(m, "the dictionary has only {} atoms")
        engine.require_memory(
            8 * m * (SAMPLE_COPIES * n + FEATURE_COPIES * d),
            f"the codes of {n} samples on {m} atoms over {d} features",
        )
        self.result_ = self._code(X, B, self._laplacian(X))
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        self.components_ = B.T
        self.scores_ = self._atom_scores(state.S)
        self.selected_ = np.argsort(-self.scores_, kind="stable")[:n_kept]
        self.support_ = np.isin(np.arange(m), self.selected_)
        self.codes_ = state.S[:, self.support_]
        self._keep_coder(B, state)
        self.column_importance_ = self._explained_shares(X, B[:, self.support_])
        return self

    def _atoms(self, X: Matrix) -> FloatArray:
        """Return B (d × m), given or learned."""
        n, d = X.shape
        self.dictionary_result_: Result[FloatArray] | None = None
        if self.dictionary is not None:
            atoms = check_array(self.dictionary, dtype=np.float64)
            if atoms.shape[1] != d:
                raise ValueError(
                    f"dictionary must have shape (m, {d}), one atom per row; got {atoms.shape}"
                )
            return atoms.T
        m = default_atoms(n, d) if self.n_atoms is None else self.n_atoms
        learned = learn_atoms(
            X,
            m,
            lam=self.dictionary_lam,
            epochs=self.epochs,
            batch_rows=self.batch_rows,
            seed=check_random_state(self.random_state),
        )
        # the atoms alone: the statistics would be d × m again
        self.dictionary_result_ = Result(learned.value.D, learned.status, learned.history)
        return learned.value.D

    def _laplacian(self, X: Matrix) -> sp.csr_array:
        k = min(self.n_neighbors, X.shape[0] - 1)
        neighbors = knn(X, k, metric=self.metric, method="auto")
        return laplacian(affinity(neighbors, self.weights))

    def _code(self, X: Matrix, B: FloatArray, L: sp.csr_array) -> Result[Any]:
        """Code every sample. The value of the result has the codes S (n × m)."""
        return fit_codes(
            self._loss(X, B),
            L,
            float(self.alpha),
            float(self.lam),
            self.tol,
            self.max_iter,
            type(self).__name__,
        )

    def _atom_scores(self, S: FloatArray) -> FloatArray:
        """Return the score of each atom."""
        return np.asarray(np.linalg.norm(S, axis=0))

    def _keep_coder(self, B: FloatArray, state: CodingState) -> None:
        """Set `coder_` to the columns of DB(BᵀDB + λC)⁻¹ that belong to the kept atoms."""
        with explain_singular("the system of the codes"):
            factor = scipy.linalg.cho_factor(state.H + np.diag(self.lam * state.c))
        columns = scipy.linalg.cho_solve(factor, np.eye(B.shape[1])[:, self.support_])
        self.coder_ = state.d[:, None] * (B @ columns)

    def _explained_shares(self, X: Matrix, B_kept: FloatArray) -> FloatArray:
        """Return the share of each column's variance that the kept atoms explain. Reads X once.

        The residual of a centered column is x_j − Cb_j, with C the centered codes. The share is
        negative where a fit is worse than the mean, and a constant column has the least of all.
        """
        C = self.codes_ - self.codes_.mean(axis=0)
        squares, fitted = X.deviations, B_kept @ (C.T @ C)
        explained = row_dots(2 * np.asarray(X.T @ C) - fitted, B_kept)
        shares = np.divide(explained, squares, out=np.zeros(len(squares)), where=squares > 0)
        shares[squares == 0] = shares.min(initial=0.0)
        return shares

    def transform(self, X: Any) -> FloatArray:
        """Code samples on the kept atoms, without the graph.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Samples with the features seen during `fit`. They are read once.

        Returns
        -------
        ndarray of shape (n_samples, n_selected)
            The codes.
        """
        check_is_fitted(self)
        return np.asarray(self._new_samples(X) @ self.coder_)

    def inverse_transform(self, codes: Any) -> FloatArray:
        """Reconstruct samples from their codes on the kept atoms.

        Parameters
        ----------
        codes : array-like of shape (n_samples, n_selected)
            Codes, from `transform` or `codes_`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The reconstruction, dense.

        Raises
        ------
        ValueError
            The codes do not have one column per kept atom.
        NotEnoughMemory
            The dense reconstruction does not fit in memory.
        """
        check_is_fitted(self)
        codes = check_array(codes, dtype=np.float64)
        kept = self.components_[self.support_]
        if codes.shape[1] != len(kept):
            raise ValueError(
                f"codes must have {len(kept)} columns, one per kept atom; got {codes.shape[1]}"
            )
        engine.require_memory(
            8 * len(codes) * kept.shape[1],
            f"a dense reconstruction of {len(codes)} × {kept.shape[1]}",
        )
        return np.asarray(codes @ kept)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name the kept atoms.

        Parameters
        ----------
        input_features : Ignored
            Not used, present for API consistency.

        Returns
        -------
        ndarray of str of shape (n_selected,)
            "atom0", "atom1" and so on, by the atoms' rows in `components_`.
        """
        check_is_fitted(self)
        return np.array([f"atom{i}" for i in np.flatnonzero(self.support_)], dtype=object)

    def _new_samples(self, X: Any) -> Any:
        """Return X as something that `@` takes, once its number of features is checked."""
        if isinstance(X, Matrix) or is_dask(X):
            self._check_width(X)
            return X if isinstance(X, Matrix) else Matrix.from_dask(X)
        return validate_data(
            self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
        )
