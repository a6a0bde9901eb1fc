"""The linear models that score a selection: fitted on gathered columns, kept as plain arrays.

    classes       linear SVM, or logistic regression where it is asked for
    label sets    one of them per label
    real values   ridge regression on columns of unit variance

A model is its arrays, so a model that was saved predicts what it predicted before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.svm import LinearSVC

from bigfs import engine
from bigfs.cards import brief
from bigfs.evaluation.metrics import REAL
from bigfs.evaluation.splits import labeled_rows, target_kind
from bigfs.linalg import dual_svm
from bigfs.matrix import Block, Matrix
from bigfs.matrix.gathering import hold_columns
from bigfs.settings import Setting
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray

# Columns from which liblinear solves the dual of a model. By scikit-learn's rule it does so only
# where there are fewer rows than columns: on 48,542 rows of 103 classes, 47,236 columns took 156 s
# so, and 31 s by the dual.
WIDE_FROM = 1000
# bytes that liblinear takes: its float64 copy, its nodes and our copy, and of each sample the nodes
# of its intercept, its target and its numbers in the solver (measured)
BYTES_PER_VALUE = Setting(40)
BYTES_PER_SAMPLE = 140
# of a logistic regression: arrays of X's type per sample and class, and bytes per weight (measured)
LOGISTIC_VECTORS, LOGISTIC_BYTES_PER_WEIGHT = 4, 240
BYTES_PER_OWN_VALUE = 28  # of classifiers that are trained together: the values twice, and squares
BYTES_PER_FEATURE = 96  # of all, that a task has in the statistics of the two parts (measured)
ROWS = Setting(1 << 12)  # that are predicted at a time
TOLERANCE = 1e-6  # their relative duality gap: as near to the optimum as liblinear comes

Classifier = tuple[FloatArray, FloatArray]  # coefficients (1, m) and intercept (1,)


class LinearModel(NamedTuple):
    """A fitted linear model of m columns."""

    kind: str  # kind of the target
    classes: IntArray  # (n_classes,): codes of the classes or labels
    coef: FloatArray  # (k, m): coefficients of each class, label or target
    intercept: FloatArray  # (k,): intercepts
    # of real targets: (m,) the deviation of each column, and (k,) the means, which R² compares with
    scale: FloatArray = np.empty(0)
    target_mean: FloatArray = np.empty(0)
    is_logistic: bool = False  # whether decision values are logits

    def __repr__(self) -> str:
        return brief(self)

    def decision(self, Z: Any) -> FloatArray:
        """Return the decision values or the predicted values, (n,) or (n, k)."""
        if self.kind in REAL:
            Z = Z.astype(np.float64)
            if sp.issparse(Z):
                Z.data *= (1 / self.scale)[Z.indices]
            else:
                Z /= self.scale
            if self.kind == "multioutput":
                return np.asarray(Z @ self.coef.T + self.intercept)
            return np.asarray(Z @ self.coef[0] + self.intercept[0])
        decision: FloatArray = Z @ self.coef.T
        decision += self.intercept
        return decision.ravel() if len(self.coef) == 1 and self.kind == "class" else decision

    def of_columns(self, order: IntArray) -> LinearModel:
        """Return the same model of columns in another order."""
        scale = self.scale[order] if self.kind in REAL else self.scale
        return self._replace(coef=self.coef[:, order], scale=scale)

    def predict(self, Z: Any) -> Any:
        """Return the predicted codes, values, or indicator of label sets (csr)."""
        return self.answer(self.decision(Z))

    def answer(self, decision: FloatArray) -> Any:
        """Return the predictions that follow from decision values."""
        if self.kind in REAL:
            return decision
        if self.kind == "multilabel":
            return sp.csr_array(decision > 0, dtype=np.int8)
        best = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)
        return self.classes[best]

    def estimator(self, class_names: AnyArray | None = None) -> Any:
        """Return scikit-learn's fitted estimator of these arrays, with the names of all codes."""
        names = self.classes if class_names is None else class_names[self.classes]
        unfitted = _logistic if self.is_logistic else _svm

        def fitted(classes: AnyArray, rows: Any = slice(None)) -> Any:
            model = unfitted()
            model.classes_, model.n_features_in_ = classes, self.coef.shape[1]
            model.coef_, model.intercept_ = self.coef[rows], self.intercept[rows]
            model.n_iter_ = np.zeros(1, dtype=np.int32) if self.is_logistic else 0
            return model

        if self.kind == "class":
            return fitted(names)
        if self.kind == "multilabel":
            labels = OneVsRestClassifier(unfitted())
            labels.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(
                sp.csr_matrix(np.eye(len(names), dtype=np.int8))
            )
            labels.estimators_ = [fitted(np.array([0, 1]), [j]) for j in range(len(names))]
            labels.n_features_in_ = self.coef.shape[1]
            return labels
        scaler, ridge = StandardScaler(with_mean=False), Ridge()
        scaler.mean_, scaler.var_, scaler.scale_ = None, self.scale**2, self.scale
        ridge.coef_, ridge.intercept_ = self.coef, self.intercept
        if self.kind == "real":
            ridge.coef_, ridge.intercept_ = self.coef[0], float(self.intercept[0])
        scaler.n_features_in_ = ridge.n_features_in_ = len(self.scale)
        return make_pipeline(scaler, ridge)


def fit(Z: Any, y: Any, *, logistic: bool = False) -> LinearModel:
    """Fit a linear model to gathered columns. Rows without a target are left out."""
    n_values, (n, m) = Z.nnz if sp.issparse(Z) else Z.size, Z.shape
    itemsize = Z.dtype.itemsize if logistic else None
    engine.make_room(fit_memory(n_values, n, m, n_classifiers(y), itemsize))
    is_labeled = labeled_rows(y)
    if not is_labeled.all():
        Z, y = Z[is_labeled], y[is_labeled]
    kind = target_kind(y)
    if kind in REAL:
        pipeline = make_pipeline(StandardScaler(with_mean=False), Ridge())
        scaler, ridge = pipeline.fit(Z.astype(np.float64), y)
        coef, intercept = np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_)
        no_classes, mean = np.empty(0, dtype=np.int64), np.atleast_1d(y.mean(axis=0))
        return LinearModel(kind, no_classes, coef, intercept, scaler.scale_, mean)
    if logistic:
        return _fit_logistic(with_short_indices(Z), y, kind)
    if kind == "multilabel":
        Y = sp.csc_array(y)
        labels = (Y[:, [j]].toarray().ravel() > 0 for j in range(Y.shape[1]))
        return _of_classifiers(kind, np.arange(Y.shape[1]), _fit_labels(Z, labels))
    classes = np.unique(y)
    if sp.issparse(Z) and len(classes) > 2:
        return _of_classifiers(kind, classes, _fit_labels(Z, (y == code for code in classes)))
    svm = _svm(Z).fit(with_short_indices(Z), y)
    return LinearModel(kind, svm.classes_, svm.coef_, svm.intercept_)


def _of_classifiers(kind: str, classes: AnyArray, classifiers: Sequence[Classifier]) -> LinearModel:
    """Return the model of the classifiers of all classes or labels."""
    coef, intercept = (np.concatenate(values) for values in zip(*classifiers, strict=True))
    return LinearModel(kind, classes, coef, intercept)


def n_classifiers(y: Any) -> int:
    """Return how many classifiers, or ridge regressions, a target needs."""
    if target_kind(y) == "class":
        n_classes = len(np.unique(y[labeled_rows(y)]))
        return 1 if n_classes == 2 else n_classes
    return int(y.shape[1]) if y.ndim == 2 else 1


def projected_memory(
    X: Matrix, y: Any, index: IntArray | None = None, *, logistic: bool = False
) -> int:
    """Return the bytes that `fit` takes at most on columns of a matrix, in a task that has it."""
    n, m, r = X.shape[0], X.shape[1] if index is None else len(index), n_classifiers(y)
    itemsize = X.meta.dtype.itemsize if logistic else None

    def of(n_values: int) -> int:
        return fit_memory(n_values, n, m, r, itemsize) + BYTES_PER_FEATURE * X.shape[1]

    if index is None:
        return of(X.nnz)
    if (dense := of(n * m)) < engine.task_memory():
        return dense
    return of(int(X.stats.nnz[index].sum()))


def fit_memory(n_values: int, n: int, m: int, r: int, itemsize: int | None) -> int:
    """Return the bytes of training r classifiers on n × m values, the larger of two ways.

    It counts copies by columns and by rows, with what grows with the samples and the weights. With
    `itemsize` it is a logistic regression of values of so many bytes.
    """
    if itemsize is not None:
        vectors = n * (LOGISTIC_VECTORS * r + 2) * itemsize
        return 2 * n_values * (itemsize + 4) + vectors + m * r * LOGISTIC_BYTES_PER_WEIGHT
    of_group = dual_svm.projected_memory(n, m, min(r, dual_svm.LANES.value)) if r > 1 else 0
    together = n_values * BYTES_PER_OWN_VALUE + of_group
    one_by_one = n_values * BYTES_PER_VALUE.value + n * BYTES_PER_SAMPLE
    return max(together, one_by_one) + m * 64


def fit_columns(X: Matrix, y: Any, index: IntArray, *, logistic: bool = False) -> LinearModel:
    """Fit a linear model to columns of a matrix, in one task."""
    with fitting_columns(X, y, index, logistic=logistic) as fitted:
        return fitted()


@contextlib.contextmanager
def fitting_columns(
    X: Matrix, y: Any, index: IntArray, *, logistic: bool = False
) -> Iterator[Callable[[], LinearModel]]:
    """Fit a linear model to columns in one task, while the block does other work.

    It yields a function that waits for the model.
    """
    held = hold_columns(X, np.unique(index))
    operands = held, y, logistic
    with engine.started_tiles(_gather_and_fit, [index], *operands, local=X.local) as models:
        yield lambda: models()[0]


def _gather_and_fit(index: IntArray, X: Matrix, y: Any, logistic: bool) -> LinearModel:
    return fit(X.columns(index).tocsr(), y, logistic=logistic)


def map_rows(answer: Callable[[Any], Any], X: Matrix, index: IntArray | None = None) -> Any:
    """Return what a model's `predict` or `decision` answers on the columns `index`, or on all."""
    if X.row_tiles:
        return _stack(X.map(_answer_block, 0, answer, index, label="predict"))
    return answer(X.columns(slice(None) if index is None else index).tocsr())


def _answer_block(
    block: Block, start: int, stop: int, answer: Callable[[Any], Any], index: IntArray | None
) -> Any:
    return answer(sp.csr_array(block if index is None else block[:, index]))


def by_rows(answer: Callable[[Any], Any], Z: Any) -> Any:
    """Return what a model answers on gathered columns.

    It takes some rows at a time, because decision values are dense.
    """
    return _stack([answer(Z[a : a + ROWS.value]) for a in range(0, max(Z.shape[0], 1), ROWS.value)])


def _stack(parts: Sequence[Any]) -> Any:
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


# --- training -------------------------------------------------------------------------------------


def _fit_logistic(Z: Any, y: Any, kind: str) -> LinearModel:
    """Fit a multinomial logistic regression of classes, or one of each label."""
    if kind == "class":
        fitted = _logistic().fit(Z, y)
        arrays = fitted.classes_, fitted.coef_, fitted.intercept_
        return LinearModel(kind, *arrays, is_logistic=True)
    Y, classifiers = sp.csc_array(y), []
    for j in range(Y.shape[1]):
        label = Y[:, [j]].toarray().ravel() > 0
        classifier = np.zeros((1, Z.shape[1])), np.array([1.0 if label[0] else -1.0])
        if label.any() and not label.all():
            fitted = _logistic().fit(Z, label)
            classifier = fitted.coef_, fitted.intercept_
        classifiers.append(classifier)
    return _of_classifiers(kind, np.arange(Y.shape[1]), classifiers)._replace(is_logistic=True)


def _fit_labels(Z: Any, labels: Iterable[BoolArray]) -> list[Classifier]:
    """Fit the classifier of each label, groups of them together."""
    Z, labels = with_short_indices(Z), iter(labels)
    classifiers = []
    while group := list(islice(labels, dual_svm.LANES.value)):
        classifiers += _fit_group(Z, np.column_stack(group))
    return classifiers


def _fit_group(Z: Any, labels: BoolArray) -> list[Classifier]:
    """Fit the classifiers of some labels. A label that all rows agree on needs none."""
    constant = np.where(labels[0], 1.0, -1.0)
    classifiers = [(np.zeros((1, Z.shape[1])), constant[[k]]) for k in range(len(constant))]
    varying = np.flatnonzero((labels != labels[0]).any(axis=0))
    if sp.issparse(Z) and len(varying):
        Z = Z if Z.dtype == np.float32 else Z.astype(np.float64)
        U, gap = dual_svm.train(Z, labels[:, varying], tol=TOLERANCE)
        converged = gap <= TOLERANCE
        for k, u in zip(varying[converged], U.T[converged], strict=True):
            classifiers[k] = u[None, :-1], u[-1:]
        varying = varying[~converged]
    if len(varying):
        Z = Z.astype(np.float64)  # liblinear takes no other, so they are converted once
        for k in varying:
            svm = _svm(Z).fit(Z, labels[:, k])
            classifiers[k] = svm.coef_, svm.intercept_
    return classifiers


def with_short_indices(Z: Any) -> Any:
    """Return a sparse array with indices of 32 bits. liblinear takes no others."""
    if not sp.issparse(Z) or Z.indices.dtype == np.int32 or Z.nnz > np.iinfo(np.int32).max:
        return Z
    indices, indptr = Z.indices.astype(np.int32), Z.indptr.astype(np.int32)
    return sp.csr_array((Z.data, indices, indptr), shape=Z.shape)


def _svm(Z: Any = None) -> LinearSVC:
    """Return an unfitted SVM, by the faster of liblinear's two ways for these columns."""
    is_wide = sp.issparse(Z) and Z.shape[1] >= WIDE_FROM
    return LinearSVC(dual=True if is_wide else "auto", random_state=0, max_iter=10_000)


def _logistic() -> LogisticRegression:
    """Return an unfitted logistic regression with scikit-learn's penalty."""
    return LogisticRegression(max_iter=10_000)
