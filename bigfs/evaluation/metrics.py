"""The metrics of predictions, from counts that add up over folds.

accuracy            Σ_c TP_c / n
balanced_accuracy   mean over the tested classes of the recall TP_c / (TP_c + FN_c)
micro_f1            2 Σ TP / (2 Σ TP + Σ FP + Σ FN), over all classes or labels together
macro_f1            mean over the tested classes or labels of 2 TP_c / (2 TP_c + FP_c + FN_c)
auc                 area under the ROC curve of each class against the rest, mean over the
                    classes, mean over the test samples of the folds
neg_log_loss        mean over the test samples of log p, the probability of the sample's own class;
                    of a logistic model only
r2                  1 − Σ (y − ŷ)² / Σ (y − mean of the training y)², mean over the targets
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax

from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

ROWS = Setting(1 << 12)  # whose probabilities are computed at a time
METRICS: dict[str, tuple[str, ...]] = {
    "class": ("accuracy", "balanced_accuracy", "micro_f1", "macro_f1", "auc", "neg_log_loss"),
    "multilabel": ("micro_f1", "macro_f1"),
    "real": ("r2",),
    "multioutput": ("r2",),
}
DEFAULT_METRICS: dict[str, tuple[str, ...]] = {
    "class": ("accuracy",),
    "multilabel": ("micro_f1", "macro_f1"),
    "real": ("r2",),
    "multioutput": ("r2",),
}
# of a logistic model of classes, whose fields report them
LOGISTIC_METRICS = ("accuracy", "auc", "neg_log_loss")
METRIC_NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "auc": "AUC",
    "neg_log_loss": "negative log loss",
    "r2": "R²",
}
TARGETS: dict[str | None, str] = {
    None: "no labels",
    "class": "one class per sample",
    "multilabel": "several labels per sample",
    "real": "real-valued targets",
    "multioutput": "several real targets per sample",
}


REAL = ("real", "multioutput")  # kinds of targets that a regression predicts


class Scorer(NamedTuple):
    """The model that scores features, and whether it measures the AUC."""

    model: str = "svm"  # of classes and label sets, or "logistic"
    with_auc: bool = False

    @property
    def is_logistic(self) -> bool:
        return self.model == "logistic"


def require_metrics(
    kind: str, metrics: Sequence[str], classifier: str | None = None
) -> tuple[str, ...]:
    """Return the metrics of a kind of target: the given ones, or the default without any."""
    if unknown := [name for name in metrics if name not in METRICS[kind]]:
        raise ValueError(
            f"{unknown[0]} is no metric of {TARGETS[kind]}; these are {', '.join(METRICS[kind])}"
        )
    if classifier == "logistic" and kind in REAL:
        raise ValueError(
            "the classifier logistic predicts classes or labels, and the targets are real"
        )
    if "neg_log_loss" in metrics and classifier == "svm":
        raise ValueError("neg_log_loss is of probabilities: give --classifier logistic too")
    default = DEFAULT_METRICS[kind]
    if classifier == "logistic" and kind == "class":
        default = LOGISTIC_METRICS
    return tuple(dict.fromkeys(metrics)) or default


def count_classes(predicted: IntArray, y: IntArray, n_classes: int) -> FloatArray:
    """Return the true positives, false positives and false negatives of each class (3 × c)."""
    right = np.bincount(y[predicted == y], minlength=n_classes)
    answered, true = (np.bincount(codes, minlength=n_classes) for codes in (predicted, y))
    return np.stack([right, answered - right, true - right]).astype(np.float64)


def count_labels(predicted: Any, Y: Any) -> FloatArray:
    """Return the true positives, false positives and false negatives of each label (3 × c)."""
    predicted, Y = sp.csc_array(predicted, dtype=bool), sp.csc_array(Y, dtype=bool)
    right, answered, true = (
        np.asarray(part.sum(axis=0), dtype=np.float64).ravel()
        for part in (predicted.multiply(Y), predicted, Y)
    )
    return np.stack([right, answered - right, true - right])


def sum_residuals(predicted: FloatArray, y: FloatArray, mean: FloatArray) -> FloatArray:
    """Return Σ (y − ŷ)² and Σ (y − mean)² of each target, with the mean of the training y."""
    return np.array([np.sum((y - predicted) ** 2, axis=0), np.sum((y - mean) ** 2, axis=0)])


def losses_of(predicted: Any, y: Any, kind: str) -> AnyArray:
    """Return the loss of each sample, by which two methods are compared sample by sample."""
    if kind == "multilabel":
        wrong = sp.csr_array(predicted, dtype=bool) != sp.csr_array(y, dtype=bool)
        return np.asarray(wrong.sum(axis=1)).ravel().astype(np.int32)
    if kind == "multioutput":  # in units of each target
        variance = y.var(axis=0)
        return np.asarray(((y - predicted) ** 2 / np.where(variance > 0, variance, 1)).mean(axis=1))
    return (y - predicted) ** 2 if kind == "real" else (predicted != y).astype(np.uint8)


def sum_auc(
    decision: FloatArray, y: IntArray, classes: IntArray, logits: bool = False
) -> FloatArray:
    """Return n times the AUC, and n. Both are zero if all test samples are of one class.

    Logits of three or more classes compare within a sample alone, so samples are ordered by the
    probabilities.
    """
    from sklearn.metrics import roc_auc_score  # the names of the metrics need no scikit-learn

    if decision.ndim == 1:
        decision = np.column_stack([-decision, decision])
    elif logits:
        decision = log_probabilities(decision)
    areas = [
        roc_auc_score(y == code, values)
        for code, values in zip(classes, decision.T, strict=True)
        if 0 < np.count_nonzero(y == code) < len(y)
    ]
    return len(y) * np.array([np.mean(areas), 1.0]) if areas else np.zeros(2)


def sum_log_loss(decision: FloatArray, y: IntArray, classes: IntArray) -> FloatArray:
    """Return Σ log p of the own classes of n samples, and n. A class that the model has not seen
    has the least probability that a number can be told from zero."""
    if decision.ndim == 1:
        decision = np.column_stack([np.zeros(len(decision)), decision])
    own = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    logs = log_probabilities(decision)[np.arange(len(y)), own]
    least = np.log(np.finfo(np.float64).eps)
    return np.array([np.sum(np.where(classes[own] == y, logs, least).clip(min=least)), len(y)])


def log_probabilities(logits: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities of the classes (n × r), some rows at a time."""
    logs = np.empty_like(logits)
    for a in range(0, len(logits), ROWS.value):
        logs[a : a + ROWS.value] = log_softmax(logits[a : a + ROWS.value], axis=1)
    return logs


def scores_of(total: FloatArray, kind: str) -> dict[str, float]:
    """Return the scores of summed counts (3 × c), or of summed squares for real targets. Those of
    classes are NaN where no test sample has a label."""
    if kind in REAL:
        left, whole = total.reshape(2, -1)
        some = whole > 0
        return {"r2": float(np.where(some, 1 - left / np.where(some, whole, 1), 0).mean())}
    right, missed = total[0], total[2]
    is_tested = right + missed > 0  # classes or labels that some test sample has
    f1 = {
        "micro_f1": float(_f1(total.sum(axis=1))),
        "macro_f1": float(np.mean(_f1(total[:, is_tested]))) if is_tested.any() else 0.0,
    }
    if kind == "multilabel":
        return f1
    if not is_tested.any():
        return dict.fromkeys(("accuracy", "balanced_accuracy", *f1), float("nan"))
    recall = right[is_tested] / (right + missed)[is_tested]
    accuracy = float(right.sum() / (right.sum() + missed.sum()))
    return {"accuracy": accuracy, "balanced_accuracy": float(recall.mean())} | f1


def mean_of(total: FloatArray) -> float:
    """Return a mean of its sum and its count, NaN if no fold could measure it."""
    return float(total[0] / total[1]) if total[1] > 0 else float("nan")


def _f1(counts: FloatArray) -> FloatArray:
    """Return F1 from true positives, false positives and false negatives, and 0 if all are zero."""
    right, errors = 2 * counts[0], counts[1] + counts[2]
    return np.asarray(right / np.maximum(right + errors, 1))
