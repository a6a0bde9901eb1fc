"""JGSC, RJGSC and GSC: atoms of a dictionary that code the samples smoothly over their kNN graph.

    JGSC    min_S ‖Xᵀ − BS‖²    + α tr(S L Sᵀ) + λ‖S‖₂,₁     [eq. 6; Table I has the losses swapped]
    RJGSC   min_S ‖Xᵀ − BS‖₂,₁ + α tr(S L Sᵀ) + λ‖S‖₂,₁                       [eq. 7]
    GSC     min_S ‖Xᵀ − BS‖²    + α tr(S L Sᵀ) + λ‖S‖₁

[Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016; GSC: Zheng and others, IEEE Transactions on Image
Processing 2011]. B (d × m) are atoms learned from X (`coding.dictionary`), S (m × n) the codes of
the samples, and L the Laplacian of their kNN graph. `coding.codes` has the first two problems and
their step, `coding.sparse_codes` the third. The atoms of largest ‖s_i‖ are kept, and the atoms of
largest max_i |s_ki| in GSC, the rule of MCFS.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from bigfs import engine
from bigfs.coding.codes import CodingState, JointCoding, L21Loss, SquaredLoss, row_dots
from bigfs.coding.dictionary import default_atoms, learn_atoms
from bigfs.coding.sparse_codes import INNER_STEPS, SparseCoding, lasso_codes
from bigfs.graph import Metric, Weights, affinity, laplacian
from bigfs.matrix import Matrix
from bigfs.result import Result
from bigfs.selectors.base.estimator import Cost, MatrixInput
from bigfs.selectors.base.parameters import COUNT, NOT_NEGATIVE, POSITIVE, Allowed
from bigfs.selectors.base.sample_graph import neighbors_of
from bigfs.types import FloatArray, IntArray
from bigfs.validation import explain_singular

SAMPLE_COPIES = 10  # n × m arrays alive at once in a step
FEATURE_COPIES = 4  # d × m arrays


class JGSC(MatrixInput, TransformerMixin, BaseEstimator):
    """Choose the atoms of a dictionary that code the samples jointly and smoothly over a graph.

    Joint graph sparse coding [1]_ is unsupervised. The method selects atoms of the dictionary,
    not columns of X. `transform` gives the codes on the kept atoms, and `column_importance_` ranks
    columns through them.

    Parameters
    ----------
    %(atoms)s
    lam : float, default=1.0
        Weight λ of the row sparsity.
    %(select_atoms)s
    %(sylvester)s

    Attributes
    ----------
    %(joint_atoms)s

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
    %(iris)s
    >>> from bigfs import JGSC
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
    _parameter_constraints: ClassVar[Allowed] = {
        "n_atoms": COUNT,
        "alpha": NOT_NEGATIVE,
        "dictionary": ["array-like"],
        "dictionary_lam": POSITIVE,
        "epochs": COUNT,
        "batch_rows": COUNT,
        "tol": POSITIVE,
        "random_state": ["random_state"],
    }
    _supervised = False
    _loss: ClassVar[Any] = SquaredLoss

    @engine.session()
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
        SpamsMissingError
            The atoms are to be learned and SPAMS is not installed.
        MemoryLimitError
            The codes do not fit in memory.
        """
        self._validate_params()
        X, _ = self._as_matrix(X, None)
        before, whole = X.passes, X.shape[1]
        self._leave_out_constants(X)
        columns, X = self._allowed_columns(X), self._allowed(X)
        B = self._atoms(X, columns)
        (n, d), m = X.shape, B.shape[1]
        n_kept = self._count(m, "the dictionary has only {} atoms")
        engine.require_memory(
            8 * m * (SAMPLE_COPIES * n + FEATURE_COPIES * d),
            f"the codes of {n} samples on {m} atoms over {d} features",
        )
        neighbors, stats = neighbors_of(X, self.n_neighbors, self.metric)
        problem = self._problem(X, B, laplacian(affinity(neighbors, self.weights)))
        if not problem.R.any():
            raise ValueError(
                "no sample shares a feature with the atoms, so every code is "
                "zero: check X and the dictionary"
            )
        state = self._iterate(problem, problem.start, stop="violation")
        self.components_ = self._of_all_columns(B, columns).T
        self.scores_ = self._atom_scores(state.S)
        if not self.scores_.any():
            raise ValueError(f"lam={self.lam:g} leaves every code at zero: choose a smaller one")
        self.selected_ = np.argsort(-self.scores_, kind="stable")[:n_kept]
        self.support_ = np.isin(np.arange(m), self.selected_)
        self.codes_ = state.S[:, self.support_]
        self._keep_coder(B, state, columns)
        shares = np.full(whole, np.nan)
        shares[columns] = self._explained_shares(X, B[:, self.support_])
        self.column_importance_ = np.where(np.isnan(shares), np.nanmin(shares) - 1, shares)
        self.result_.stats.update(passes=X.passes - before, **stats)
        return self

    def _atoms(self, X: Matrix, columns: IntArray) -> FloatArray:
        """Return B (d × m), given or learned, of these columns."""
        n, d = X.shape[0], self.n_features_in_
        self.dictionary_result_: Result[FloatArray] | None = None
        if self.dictionary is not None:
            atoms = check_array(self.dictionary, dtype=np.float64)
            if atoms.shape[1] != d:
                raise ValueError(
                    f"dictionary must have shape (m, {d}), one atom per row; got {atoms.shape}"
                )
            return atoms[:, columns].T
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

    def _problem(self, X: Matrix, B: FloatArray, L: sp.csr_array) -> Any:
        """Return the problem of the codes S (n × m)."""
        return JointCoding(self._loss(X, B), L, float(self.alpha), float(self.lam))

    def _atom_scores(self, S: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.norm(S, axis=0))

    def _of_all_columns(self, B: FloatArray, columns: IntArray) -> FloatArray:
        """Return rows of all columns of X, zero at those that take no part."""
        if len(columns) == self.n_features_in_:
            return B
        whole = np.zeros((self.n_features_in_, B.shape[1]))
        whole[columns] = B
        return whole

    def _keep_coder(self, B: FloatArray, state: CodingState, columns: IntArray) -> None:
        """Set `coder_` to the columns of DB(BᵀDB + λC)⁻¹ that belong to the kept atoms."""
        with explain_singular("the system of the codes"):
            factor = scipy.linalg.cho_factor(state.H + np.diag(self.lam * state.c))
        kept = scipy.linalg.cho_solve(factor, np.eye(B.shape[1])[:, self.support_])
        self.coder_ = self._of_all_columns(state.d[:, None] * (B @ kept), columns)

    def _explained_shares(self, X: Matrix, B_kept: FloatArray) -> FloatArray:
        """Return the share of each column's variance that the kept atoms explain. Reads X once.

        The residual of a centered column is x_j − Cb_j, with C the centered codes. The share is
        negative where a fit is worse than the mean, and NaN for an empty column.
        """
        C = self.codes_ - self.codes_.mean(axis=0)
        squares, fitted = X.deviations, B_kept @ (C.T @ C)
        explained = row_dots(2 * np.asarray(X.T @ C) - fitted, B_kept)
        unknown = np.full(len(squares), np.nan)
        return np.asarray(np.divide(explained, squares, out=unknown, where=squares > 0))

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
        return self._code_samples(self._samples(X))

    def _code_samples(self, X: Matrix) -> FloatArray:
        return np.asarray(X @ self.coder_)

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
        MemoryLimitError
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


class RJGSC(JGSC):
    """Choose atoms as `JGSC` does, with a loss that weighs badly fitted features less.

    The loss of robust joint graph sparse coding [1]_ is a norm per feature and not squared. The
    same effect therefore needs smaller α and λ than in `JGSC`. It is unsupervised.

    Parameters
    ----------
    %(atoms)s
    lam : float, default=1.0
        Weight λ of the row sparsity.
    %(select_atoms)s
    %(sylvester)s

    Attributes
    ----------
    %(joint_atoms)s

    See Also
    --------
    JGSC : The same with a squared loss, in one pass over X.

    Notes
    -----
    The problem is eq. 7 of [1]_, with B the atoms, S the codes, and L the Laplacian of the graph::

        min_S  ‖Xᵀ − BS‖₂,₁ + α tr(SLSᵀ) + λ‖S‖₂,₁

    Each Sylvester equation needs two passes over X.

    References
    ----------
    .. [1] X. Zhu, X. Li, S. Zhang, C. Ju and X. Wu, "Robust joint graph sparse coding for
       unsupervised spectral feature selection", IEEE Transactions on Neural Networks and Learning
       Systems, 2016, Alg. 1.

    Examples
    --------
    %(iris)s
    >>> from bigfs import RJGSC
    >>> model = RJGSC(dictionary=X[::30], alpha=0.1, lam=0.1, n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.result_.converged
    True
    """

    _cost = Cost("pairs + 2 per step", "a (n + d)")
    _loss: ClassVar[Any] = L21Loss


class GSC(JGSC):
    """Choose the atoms of a dictionary that code samples sparsely and smoothly over a graph.

    Graph sparse coding [1]_ is unsupervised. As with `JGSC`, it selects atoms of the
    dictionary, and `column_importance_` ranks columns through them. Each sample chooses its own
    atoms here.

    Parameters
    ----------
    %(atoms)s
    lam : float, default=0.1
        Weight λ of the sparsity of each code.
    %(select_atoms)s
    max_iter : int, default=100
        Maximum number of steps of ten proximal steps.
    %(atoms_seed)s

    Attributes
    ----------
    %(components)s
    scores_ : ndarray of shape (n_atoms,)
        Largest absolute code of each atom, the rule by which MCFS scores [2]_.
    %(selected_atoms)s
    %(column_importance)s
    %(n_steps)s
    result_ : bigfs.result.Result
        Status and history of the coding. Each record of the history has the objective, the
        violation of optimality, and the number of "codes" that are not zero.
    %(dictionary_result)s

    See Also
    --------
    JGSC : Atoms that all samples choose together.

    Notes
    -----
    The problem, with B the atoms, S the codes, and L the Laplacian of the graph::

        min_S  ‖Xᵀ − BS‖² + α tr(SLSᵀ) + λ Σ |s_ki|

    The atoms are learned before the codes, where [1]_ takes both in turn. New samples have no place
    in the graph, and their codes solve the problem with α = 0. The coding reads X once.

    References
    ----------
    .. [1] M. Zheng, J. Bu, C. Chen, C. Wang, L. Zhang, G. Qiu and D. Cai, "Graph regularized sparse
       coding for image representation", IEEE Transactions on Image Processing, 2011.
    .. [2] X. Zhu, X. Li, S. Zhang, C. Ju and X. Wu, "Robust joint graph sparse coding for
       unsupervised spectral feature selection", IEEE Transactions on Neural Networks and Learning
       Systems, 2016, section V.

    Examples
    --------
    %(iris)s
    >>> from bigfs import GSC
    >>> model = GSC(dictionary=X[::30], n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    """

    lam: float = 0.1

    def _problem(self, X: Matrix, B: FloatArray, L: sp.csr_array) -> Any:
        R, total = np.asarray(X @ B), float(X.stats.sums_of_squares.sum())
        return SparseCoding(B.T @ B, R, total, L, float(self.alpha), float(self.lam))

    def _atom_scores(self, S: FloatArray) -> FloatArray:
        return np.asarray(np.abs(S).max(axis=0))

    def _keep_coder(self, B: FloatArray, state: CodingState, columns: IntArray) -> None:
        """Keep nothing: the code of a sample is no linear function of it."""

    def _code_samples(self, X: Matrix) -> FloatArray:
        B = self.components_.T
        R, n_sweeps = np.asarray(X @ B), INNER_STEPS * self.max_iter
        return lasso_codes(B.T @ B, R, float(self.lam), self.tol, n_sweeps)[:, self.support_]
