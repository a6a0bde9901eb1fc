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
    %(n_atoms)s
    %(smoothness)s
    lam : float, default=0.1
        Weight λ of the sparsity of each code.
    %(select_atoms)s
    %(n_neighbors)s
    %(metric)s
    %(weights)s
    %(dictionary)s
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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import GSC
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = GSC(dictionary=X[::30], n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    """

    n_atoms: int | None = None
    alpha: float = 1.0
    lam: float = 0.1
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
