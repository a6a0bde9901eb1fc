"""A linear model on features where the samples do not fit in one process.

    svm    the classifiers of `bigfs.linalg.svm`, by tiles: exactly the objective of `linear_model`,
           for classes and for label sets
    ridge  the ridge regression of `linear_model` on real targets, by `bigfs.linalg.ridge`
    sgd    dask-ml passes the blocks of `Matrix.to_dask` to scikit-learn's `SGDClassifier` or
           `SGDRegressor`

The first two have n + d numbers of each classifier in the driving process. As many classifiers
as fit there are trained at a time, on the chosen columns alone, which it has in a temporary file.
The last has d of each class, label or target in one worker, so it takes more features. It is
approximate: the hinge takes the place of its square, and where the rows are sorted by class it
comes less close in the same passes.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation import linear_model
from bigfs.evaluation.linear_model import LinearModel
from bigfs.evaluation.metrics import REAL
from bigfs.evaluation.splits import MOST_TRAINING, labeled_rows, target_kind
from bigfs.linalg.ridge import Ridge
from bigfs.linalg.ridge.operator import centering
from bigfs.linalg.svm import VECTORS_OF_FEATURES, VECTORS_OF_SAMPLES, fit_svm, positive_classes
from bigfs.matrix import Block, Matrix
from bigfs.matrix.gathering import rows_on_disk
from bigfs.result import scope, warn_early_end
from bigfs.settings import Setting
from bigfs.types import FloatArray, IntArray

IN_MEMORY, SVM, RIDGE, SGD = "in memory", "svm", "ridge", "sgd"
PASSES = 8  # of the stochastic gradient descent
SGD_VECTORS = 6  # per class: coefficients, their averages, and what a copy of them takes
TOLERANCE, MAX_STEPS = 1e-4, 100  # of the exact models
EXACT_PASSES = 100  # that the exact classifiers take, roughly
# multiplications of the exact classifiers: some minutes on two cores (measured)
MOST_WORK = Setting(5e9)
# numbers that a tile of rows may add to a sum: half of a store's tile
MAX_SUMS = 1 << 20


def choose_strategy(
    X: Matrix, y: Any, index: IntArray | None = None, *, logistic: bool = False
) -> str | None:
    """Return how a model is trained on all features, or on chosen ones, in the memory of one task.

    "in memory" by `linear_model`, "svm", "ridge" or "sgd" by `fit`, and None where all features fit
    in no way. Chosen features that do not fit are refused.
    """
    needed = linear_model.projected_memory(X, y, index, logistic=logistic)
    n_models, room = linear_model.n_classifiers(y), engine.task_memory()
    if needed < room:
        return IN_MEMORY
    if logistic:
        if index is None:
            return None
        raise engine.MemoryLimitError(
            f"a logistic regression on {len(index)} features of {X.shape[0]} samples is fitted "
            f"in memory. It needs {engine.format_bytes(needed)} in one process and "
            f"{engine.format_bytes(int(room))} is allowed: raise --memory-limit, choose fewer "
            f"features, or score by svm"
        )
    exact: str | None = RIDGE if target_kind(y) in REAL else SVM
    if _bytes_of_classifiers(X.shape[0], X.shape[1] if index is None else len(index), 1) >= room:
        exact = None
    if index is not None:
        if exact is None:
            what = f"a linear model on {len(index)} of the features"
            engine.require_memory(needed, what, int(room))
        return exact
    if exact is not None and X.nnz * n_models * EXACT_PASSES <= MOST_WORK.value:
        return exact
    if engine.lazy_inputs(X.row_tiles):  # one task cannot wait for each block in turn
        return None
    beside = 0 if engine.client() is None else engine.TILE_TASK  # in a worker, which reads tiles
    descent = 8 * SGD_VECTORS * X.shape[1] * n_models + beside
    if find_spec("dask_ml") is not None and descent < room:
        return SGD
    return None


def require_trainable(n: int, m: int, y: Any, *, logistic: bool = False) -> None:
    """Refuse m features of n samples where no model on them fits, however few values they have."""
    r = linear_model.n_classifiers(y)
    n = min(n, MOST_TRAINING.value // max(r, 1))
    needed = linear_model.fit_memory(0, n, m, r, 4 if logistic else None)
    if not logistic:
        needed = min(needed, _bytes_of_classifiers(n, m, 1))
    what = f"scoring {m} features by a model of {n} training samples"
    engine.require_memory(needed, what, int(engine.task_memory()))


def fit(X: Matrix, y: Any, way: str, index: IntArray | None = None) -> LinearModel:
    """Train a linear model on all features, or an exact one on some, in increasing order."""
    is_labeled = labeled_rows(y)
    if not is_labeled.all():
        X, y = X.take_rows(is_labeled), y[is_labeled]
    if index is None:
        return _fit(X, y, way)
    with rows_on_disk(X.take_columns(index)) as chosen:
        return _fit(chosen, y, way)


def _fit(X: Matrix, y: Any, way: str) -> LinearModel:
    room = engine.task_memory()
    kind = target_kind(y)
    if kind in REAL:
        return _fit_real(X, y, way)
    if kind == "class":
        classes = np.unique(y)
        classifiers = _fit_classes(X, np.searchsorted(classes, y), len(classes), way, room)
        return LinearModel(kind, classes, *classifiers)
    Y, parts = sp.csc_array(y), []
    for j in range(Y.shape[1]):
        codes = (Y[:, [j]].toarray().ravel() > 0).astype(np.int64)
        if codes.min() == codes.max():  # all rows agree on the label, so it needs no classifier
            parts.append((np.zeros((1, X.shape[1])), np.where(codes[:1] > 0, 1.0, -1.0)))
            continue
        with scope(f"label {j + 1}"):
            parts.append(_fit_classes(X, codes, 2, way, room))
    coef, intercept = (np.concatenate(values) for values in zip(*parts, strict=True))
    return LinearModel(kind, np.arange(Y.shape[1]), coef, intercept)


def fit_columns(X: Matrix, y: Any, index: IntArray, *, logistic: bool = False) -> LinearModel:
    """Fit a linear model to columns of a matrix, in one task or, if they do not fit, by tiles."""
    way = choose_strategy(X, y, index, logistic=logistic)
    if way is None or way == IN_MEMORY:
        return linear_model.fit_columns(X, y, index, logistic=logistic)
    return fit(X, y, way, index)


def predict(X: Matrix, model: LinearModel) -> Any:
    """Return the predictions of rows, in one pass."""
    if X.row_tiles:
        return linear_model.map_rows(model.predict, X)
    return model.answer(decide(X, model))


def decide(X: Matrix, model: LinearModel) -> FloatArray:
    """Return the decision values or predicted values of rows, (n,) or (n, k), in one pass."""
    coef = model.coef / model.scale if model.kind in REAL else model.coef
    engine.require_memory(
        2 * 8 * X.shape[0] * len(coef),  # of the tiles, and of all samples
        f"{len(coef)} decision values of {X.shape[0]} samples each",
    )
    decision: FloatArray = X @ coef.T
    decision += model.intercept
    return decision.ravel() if len(coef) == 1 and model.kind in ("class", "real") else decision


def _bytes_of_classifiers(n: int, d: int, r: int) -> int:
    return 8 * r * (VECTORS_OF_SAMPLES * n + VECTORS_OF_FEATURES * d)


def _fit_classes(
    X: Matrix, codes: IntArray, n_classes: int, way: str, room: float
) -> tuple[FloatArray, FloatArray]:
    """Train the classifiers, as many at a time as fit in `room` bytes."""
    if way == SGD:
        return _descend_in_worker(X, codes, np.arange(n_classes), np.empty(0))
    positive = positive_classes(n_classes)
    size = max(int(room // _bytes_of_classifiers(*X.shape, 1)), 1)
    parts = []
    for first in range(0, len(positive), size):
        some = positive[first : first + size]
        part = f"classes {some[0] + 1} to {some[-1] + 1}"
        with scope(part) if len(some) < len(positive) else nullcontext():
            result = fit_svm(
                *(X, codes, n_classes),
                C=1.0,
                tol=TOLERANCE,
                max_iter=MAX_STEPS,
                name="SVM by tiles",
                one_pass=bool(X.row_tiles) and X.shape[1] * len(some) <= MAX_SUMS,
                positive=some,
            )
        parts.append(result.value)
    return np.concatenate([s.W.T for s in parts]), np.concatenate([s.b for s in parts])


def _fit_real(X: Matrix, y: FloatArray, way: str) -> LinearModel:
    """Regress real targets on columns of unit variance, with a penalty of 1."""
    n = X.shape[0]
    scale = np.sqrt(np.where(X.deviations > 0, X.deviations / n, 1))
    mean = np.atleast_1d(y.mean(axis=0))
    Y = y.reshape(n, -1)
    if way == RIDGE:
        near = X.near_zero()
        with engine.limit_memory(int(engine.task_memory())):
            ridge = Ridge(near, centering(n))
        solution = ridge.prepare(scale**2).solve(Y - mean)
        if not solution.residual <= TOLERANCE:
            residual = f"residual {solution.residual:.2e}, tolerance {TOLERANCE:.0e}"
            warn_early_end(f"the ridge regression by tiles {solution.status} ({residual})")
        W = solution.W.T  # k × d, of the columns as they are
        coef, intercept = W * scale, mean - W @ X.means
    else:
        none = np.empty(0, dtype=np.int64)
        parts = [_descend_in_worker(X, target, none, scale) for target in Y.T]
        coef, intercept = (np.concatenate(values) for values in zip(*parts, strict=True))
    no_classes = np.empty(0, dtype=np.int64)
    return LinearModel(target_kind(y), no_classes, coef, intercept, scale, mean)


def _descend_in_worker(
    X: Matrix, y: Any, classes: IntArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    ((coef, intercept),) = engine.map_tiles(_descend, [X], y, classes, scale, local=X.local)
    return coef, intercept


def _descend(
    X: Matrix, y: Any, classes: IntArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Run the passes of stochastic gradient descent, one block in memory at a time. Without classes
    it is a regression on the columns divided by `scale`."""
    from dask_ml.wrappers import Incremental
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    n, d = X.shape
    meta = sp.csr_array((0, d))
    blocks = X.to_dask().map_blocks(_with_float64, scale, dtype=meta.dtype, meta=meta)
    options = {"alpha": 1 / n, "average": n, "random_state": 0}
    if len(classes):
        estimator, shift, unit = SGDClassifier(loss="hinge", **options), 0.0, 1.0
        known = {"classes": classes}
    else:  # the step lengths suit targets of unit variance
        estimator, shift, unit, known = SGDRegressor(**options), y.mean(), y.std() or 1.0, {}
        y = (y - shift) / unit
    model = Incremental(estimator, shuffle_blocks=True, random_state=0)
    targets = engine.dask_slices(y, (blocks.chunks[0],))
    with engine.in_this_process():
        for _ in range(PASSES):
            model.partial_fit(blocks, targets, **known)
    fitted = model.estimator_
    return np.atleast_2d(fitted.coef_) * unit, np.atleast_1d(fitted.intercept_) * unit + shift


def _with_float64(block: Block, scale: FloatArray) -> sp.csr_array:
    block = sp.csr_array(block, dtype=np.float64)
    return sp.csr_array(block.multiply(1 / scale)) if len(scale) else block
