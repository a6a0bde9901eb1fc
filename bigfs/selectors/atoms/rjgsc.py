"""RJGSC: robust joint graph sparse coding [Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016].

    min_S ‖Xᵀ − BS‖₂,₁ + α tr(S L Sᵀ) + λ‖S‖₂,₁                       [eq. 7]

It is `JGSC` with another loss. `coding.codes` has the problem and its step.
"""

from __future__ import annotations

from typing import Any, ClassVar

from bigfs.coding.codes import L21Loss
from bigfs.selectors.atoms.jgsc import JGSC
from bigfs.selectors.base.estimator import Cost


class RJGSC(JGSC):
    """Choose atoms as `JGSC` does, with a loss that weighs badly fitted features less.

    The loss of robust joint graph sparse coding [1]_ is a norm per feature and not squared. The
    same effect therefore needs smaller α and λ than in `JGSC`. It is unsupervised.

    Parameters
    ----------
    n_atoms : int or None, default=None
        Number m of atoms in the dictionary. None takes min(n_features, n_samples, 256), or fewer
        where memory is short. The paper takes m = n_features, which text does not allow.
    alpha : float, default=1.0
        Weight α of the smoothness over the graph.
    lam : float, default=1.0
        Weight λ of the row sparsity.
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
        Maximum number of Sylvester equations.
    random_state : int, RandomState instance or None, default=0
        Seed of the rows that the atoms start from.

    Attributes
    ----------
    components_ : ndarray of shape (n_atoms, n_features)
        The atoms, Bᵀ.
    scores_ : ndarray of shape (n_atoms,)
        Norm of each atom's codes. Larger is better.
    selected_ : ndarray of shape (n_selected,)
        Indices of the kept atoms, best first.
    support_ : ndarray of shape (n_atoms,)
        Mask of the kept atoms.
    codes_ : ndarray of shape (n_samples, n_selected)
        Codes of the training samples on the kept atoms, with the graph.
    coder_ : ndarray of shape (n_features, n_selected)
        Matrix that takes new samples to their codes.
    column_importance_ : ndarray of shape (n_features,)
        Share of each column's variance that the kept atoms explain. It ranks columns.
    n_iter_ : int
        Number of Sylvester equations solved.
    result_ : bigfs.result.Result
        Status and history of the coding. Each record of the history has the objective, the
        violation, and the relative residual of the Sylvester equation.
    dictionary_result_ : bigfs.result.Result or None
        Status and history of the dictionary learning. None where the atoms were given.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X is a data frame whose column names are strings.

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
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import RJGSC
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = RJGSC(dictionary=X[::30], alpha=0.1, lam=0.1, n_features_to_select=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.result_.converged
    True
    """

    _cost = Cost("pairs + 2 per step", "a (n + d)")
    _loss: ClassVar[Any] = L21Loss
