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
