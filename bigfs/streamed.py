"""A linear SVM on all features where the samples do not fit in one process.

    svm   the machines of `bigfs.linalg.svm`, by tiles: the objective of `bigfs.models`, exactly
    sgd   dask-ml passes the blocks of `Matrix.to_dask` to scikit-learn's `SGDClassifier`

The first has n + d numbers of each machine in the driving process. The second has d of each class
in one worker, so it takes more features. It is approximate: the hinge takes the place of its
square, and where the rows are sorted by class it comes less close in the same passes.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.linalg.svm import VECTORS_OF_FEATURES, VECTORS_OF_SAMPLES, fit_svm
from bigfs.matrix import Block, Matrix
from bigfs.models import LinearModel
from bigfs.splits import labeled_rows
from bigfs.types import FloatArray, IntArray

SVM, SGD = "svm", "sgd"
PASSES = 8  # of the stochastic gradient descent
SGD_VECTORS = 6  # per class: coefficients, their averages, and what a copy of them takes
TOLERANCE, MAX_STEPS = 1e-4, 100  # of the exact machines


def way_of(X: Matrix, y: IntArray) -> str | None:
    """Return how `fit` can train on all features in half of one process's memory.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The training rows.
    y : ndarray of int of shape (n,)
        Their class codes, −1 if unlabeled.

    Returns
    -------
    str or None
        "svm", or "sgd" where dask-ml is installed and only its model fits. None where neither does.
    """
    n, d = X.shape
    room = engine.memory_limit() / 2
    if _bytes_of_machines(n, d, 1) < room:
        return SVM
    n_classes = len(np.unique(y[labeled_rows(y)]))
    n_models = 1 if n_classes == 2 else n_classes
    if find_spec("dask_ml") is not None and 8 * SGD_VECTORS * d * n_models < room:
        return SGD
    return None


def fit(X: Matrix, y: IntArray, way: str, index: IntArray | None = None) -> LinearModel:
    """Train a linear SVM on all features, or on some by the exact machines.

    Parameters
    ----------
    X : Matrix of shape (n, d)
        The training rows. Those without a class are left out.
    y : ndarray of int of shape (n,)
        Their class codes, −1 if unlabeled.
    way : {"svm", "sgd"}
        What `way_of` returned.
    index : ndarray of int or None, default=None
        The features that may have a weight, with "svm". None takes all.

    Returns
    -------
    LinearModel
        The fitted model of all columns.
    """
    is_labeled = labeled_rows(y)
    if not is_labeled.all():
        X, y = X.take_rows(is_labeled), y[is_labeled]
    classes, none = np.unique(y), np.empty(0)
    if way == SVM:
        coef, intercept = _fit_machines(X, np.searchsorted(classes, y), len(classes), index)
    else:
        ((coef, intercept),) = engine.map_tiles(_descend, [X], y, classes, local=X.local)
    return LinearModel("class", classes, coef, intercept, none, none)


def decide(X: Matrix, model: LinearModel) -> FloatArray:
    """Return the decision values of rows, (n,) or (n, k), in one pass."""
    decision: FloatArray = X @ model.coef.T + model.intercept
    return decision.ravel() if len(model.coef) == 1 else decision


def _bytes_of_machines(n: int, d: int, r: int) -> int:
    return 8 * r * (VECTORS_OF_SAMPLES * n + VECTORS_OF_FEATURES * d)


def _fit_machines(
    X: Matrix, codes: IntArray, n_classes: int, index: IntArray | None
) -> tuple[FloatArray, FloatArray]:
    """Train the machines, all at once or, if they do not fit together, one after the other."""
    features = None if index is None else np.isin(np.arange(X.shape[1]), index)
    if n_classes == 2 or _bytes_of_machines(*X.shape, n_classes) < engine.memory_limit() / 2:
        targets = [(codes, n_classes)]
    else:
        targets = [((codes == k).astype(np.int64), 2) for k in range(n_classes)]
    parts = [
        fit_svm(
            *(X, target, count),
            C=1.0,
            tol=TOLERANCE,
            max_iter=MAX_STEPS,
            name="SVM by tiles",
            features=features,
        ).value
        for target, count in targets
    ]
    return np.concatenate([s.W.T for s in parts]), np.concatenate([s.b for s in parts])


def _descend(X: Matrix, y: IntArray, classes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Run the passes of stochastic gradient descent, one block in memory at a time."""
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier

    n, d = X.shape
    meta = sp.csr_array((0, d))
    blocks = X.to_dask().map_blocks(_with_float64, dtype=meta.dtype, meta=meta)
    targets = engine.dask_vector(y, blocks.chunks[0])
    machine = SGDClassifier(loss="hinge", alpha=1 / n, average=n, random_state=0)
    model = Incremental(machine, shuffle_blocks=True, random_state=0)
    with engine.in_this_process():
        for _ in range(PASSES):
            model.partial_fit(blocks, targets, classes=classes)
    return model.estimator_.coef_, model.estimator_.intercept_


def _with_float64(block: Block) -> sp.csr_array:
    return sp.csr_array(block, dtype=np.float64)
