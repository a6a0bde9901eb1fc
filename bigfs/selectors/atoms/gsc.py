"""GSC: graph sparse coding [Zheng and others, IEEE Transactions on Image Processing 2011].

    min_S ‖Xᵀ − BS‖² + α tr(S L Sᵀ) + λ‖S‖₁

It is `JGSC` with single codes that are zero in place of rows of them. `coding.sparse_codes` has the
problem and its step. The atoms of largest max_i |s_ki| are kept, the rule of MCFS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from bigfs.coding.codes import CodingState
from bigfs.coding.sparse_codes import INNER_STEPS, SparseCoding, fit_sparse_codes, lasso_codes
from bigfs.graph import Metric, Weights
from bigfs.matrix import Matrix
from bigfs.result import Result
from bigfs.selectors.atoms.jgsc import JGSC
from bigfs.types import FloatArray


class GSC(JGSC):
    """Choose the atoms of a dictionary that code samples sparsely and smoothly over a graph.

    Graph sparse coding [1]_ is unsupervised. As with `JGSC`, what is selected are atoms of the
    dictionary, and `column_importance_` ranks columns through them. Each sample chooses its own
    atoms here.

    Parameters
    ----------
    n_atoms : int or None, default=None
        Number m of atoms in the dictionary. None takes min(n_features, n_samples, 256), or fewer
        where memory is short. The paper takes m = n_features, which text does not allow.
    alpha : float, default=1.0
        Weight α of the smoothness over the graph.
    lam : float, default=0.1
        Weight λ of the sparsity of each code.
    n_features_to_select : int, float or None, default=None
        Number of atoms to keep. A float in (0, 1] is a share of the atoms, and None keeps half of
        them.
    n_neighbors : int, default=5
        Number of neighbors of each sample in the kNN graph.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance of the kNN graph.
    weights : {"binary", "cosine", "heat"}, default="heat"
        Weights of the graph's edges: 1, 1 − distance (for the cosine metric only), or
        exp(−distance²/2t²) with t the mean distance to a neighbor.
    dictionary : array-like of shape (n_atoms, n_features) or None, default=None
        Atoms to use, for instance the `components_` of a scikit-learn decomposition. None learns
        them with SPAMS, which the extra `bigfs[jgsc]` installs.
    dictionary_lam : float, default=0.05
        Weight of the ℓ1 penalty of the codes while the dictionary is learned.
    epochs : int or None, default=None
        Number of passes over X while the dictionary is learned. None takes 1, or as many as
        the dictionary needs for 32 updates.
    batch_rows : int, default=512
        Number of samples per update of the dictionary.
    tol : float, default=1e-3
        Relative violation of optimality at which the coding stops.
    max_iter : int, default=100
        Maximum number of steps of ten proximal steps.
    random_state : int, RandomState instance or None, default=0
        Seed of the rows that the atoms start from.

    Attributes
    ----------
    components_ : ndarray of shape (n_atoms, n_features)
        The atoms, Bᵀ.
    scores_ : ndarray of shape (n_atoms,)
        Largest absolute code of each atom, the rule by which MCFS scores [2]_.
    selected_ : ndarray of shape (n_selected,)
        Indices of the kept atoms, best first.
    support_ : ndarray of shape (n_atoms,)
        Mask of the kept atoms.
    codes_ : ndarray of shape (n_samples, n_selected)
        Codes of the training samples on the kept atoms, with the graph.
    column_importance_ : ndarray of shape (n_features,)
        Share of each column's variance that the kept atoms explain. It ranks columns.
    n_iter_ : int
        Number of steps.
    result_ : bigfs.result.Result
        Status and history of the coding. Each record of the history has the objective, the
        violation of optimality, and the number of "codes" that are not zero.
    dictionary_result_ : bigfs.result.Result or None
        Status and history of the dictionary learning. None where the atoms were given.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.

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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import GSC
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = GSC(dictionary=X[::30], n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        *,
        n_atoms: int | None = None,
        alpha: float = 1.0,
        lam: float = 0.1,
        n_features_to_select: int | float | None = None,
        n_neighbors: int = 5,
        metric: Metric = "cosine",
        weights: Weights = "heat",
        dictionary: Any = None,
        dictionary_lam: float = 0.05,
        epochs: int | None = None,
        batch_rows: int = 512,
        tol: float = 1e-3,
        max_iter: int = 100,
        random_state: Any = 0,
    ) -> None:
        self.n_atoms = n_atoms
        self.alpha = alpha
        self.lam = lam
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.weights = weights
        self.dictionary = dictionary
        self.dictionary_lam = dictionary_lam
        self.epochs = epochs
        self.batch_rows = batch_rows
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def _code(self, X: Matrix, B: FloatArray, L: sp.csr_array) -> Result[Any]:
        R = np.asarray(X @ B)
        if not R.any():
            raise ValueError(
                "no sample shares a feature with the atoms, so every code is "
                "zero: check X and the dictionary"
            )
        total = float(X.stats.sums_of_squares.sum())
        problem = SparseCoding(B.T @ B, R, total, L, float(self.alpha), float(self.lam))
        return fit_sparse_codes(problem, self.tol, self.max_iter, "GSC")

    def _atom_scores(self, S: FloatArray) -> FloatArray:
        return np.asarray(np.abs(S).max(axis=0))

    def _keep_coder(self, B: FloatArray, state: CodingState) -> None:
        """Keep nothing: the code of a sample is no linear function of it."""

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
        B = self.components_.T
        R = np.asarray(self._new_samples(X) @ B)
        S = lasso_codes(B.T @ B, R, float(self.lam), self.tol, INNER_STEPS * self.max_iter)
        return S[:, self.support_]
