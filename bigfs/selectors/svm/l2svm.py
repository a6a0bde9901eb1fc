"""Features ranked by ‖w_j‖ in linear SVMs, one per class against the rest.

min  ½‖W‖² + ½‖b‖² + C Σ_ik max(0, 1 − y_ik(w_k·x_i + b_k))²,    y_ik = 1 in class k, else −1
"""

from __future__ import annotations

from typing import Any, ClassVar

from bigfs.linalg.prox import row_norms
from bigfs.linalg.svm import fit_svm
from bigfs.matrix import Matrix
from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import labeled_part
from bigfs.selectors.base.parameters import POSITIVE, Allowed


class L2SVM(Selector):
    """Rank features by their weights in a linear SVM with the squared hinge loss.

    Unlabeled samples are left out.

    Parameters
    ----------
    max_iter : int, default=100
        Maximum number of Newton steps.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Norm of each feature's weights over the classes. Larger is better.
    %(classes)s
    coef_ : ndarray of shape (n_features, n_classifiers)
        Weights of the classifier of each class against the rest. Two classes have one classifier.
    intercept_ : ndarray of shape (n_classifiers,)
        Intercepts.
    n_iter_ : int
        Number of Newton steps.
    result_ : bigfs.result.Result
        Status and history. Each record of the history has the objective of all classifiers and the
        largest gap. The stats have the passes over X.

    See Also
    --------
    SVMRFE : Remove features and train again.
    RLSR : A row-sparse classifier by least squares.

    Notes
    -----
    The classifiers equal `sklearn.svm.LinearSVC`, whose intercept is penalized like a
    weight. The gradient bounds the distance to the optimum exactly: the duality gap is half of its
    squared norm. A step [1]_ reads X once, and twice per iteration of its conjugate gradients. All
    classes share the passes. Where there are fewer samples than features, and few of them, the
    classifiers are trained by the kernel of the samples [2]_, and X is read twice in all. A Dask
    array, and a store with the layout by rows alone, have a kernel where they fit in memory.

    References
    ----------
    .. [1] S. S. Keerthi and D. DeCoste, "A modified finite Newton method for fast solution of large
       scale linear SVMs", Journal of Machine Learning Research, 2005.
    .. [2] O. Chapelle, "Training a support vector machine in the primal", Neural Computation, 2007.

    Examples
    --------
    %(iris)s
    >>> from bigfs import L2SVM
    >>> selector = L2SVM(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([3, 2])
    """

    C: float = 1.0
    tol: float = 1e-4
    max_iter: int = 100

    _needs_one_scale = True
    _cost = Cost("1 per step, 2 per CG step", "(12 n + 9 d) c")
    _parameter_constraints: ClassVar[Allowed] = {"tol": POSITIVE}

    def _fit(self, X: Matrix, y: Any) -> None:
        X, self.classes_, codes = labeled_part(X, y)
        features = X.deviations > 0  # a constant one would take the place of the intercept
        features[self._constraints.absent] = False
        self.result_ = fit_svm(
            X,
            codes,
            len(self.classes_),
            features=None if features.all() else features,
            C=self.C,
            tol=self.tol,
            max_iter=self.max_iter,
            name=type(self).__name__,
        )
        state = self.result_.value
        self.n_iter_ = len(self.result_.history)
        self.coef_, self.intercept_ = state.W, state.b
        self.scores_ = row_norms(state.W)
