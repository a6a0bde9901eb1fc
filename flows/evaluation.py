"""How a run is measured: on which samples, with which rivals, and the words for it.

An accuracy is never measured on the samples that chose the features. A corpus's own test half is
used where there is one. Else the features are chosen again inside each fold. Where that is too much
work, one fold is held out and the features are chosen once more without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation import METRICS, is_non_negative
from bigfs.selectors.registry import Method
from bigfs.splits import Split, labelled_rows, stratified_folds, target_kind, testable_rows, varies

FOLDS = 5
# over the stored values: what choosing features takes, roughly, where the pairs of samples do not
# matter
PASSES = 200
# multiplications that choosing features in all folds may take; a minute or two on two cores
MOST_WORK = 5e10
MODELS = {
    "class": "Linear SVM",
    "multilabel": "One linear SVM per label",
    "real": "Ridge regression",
}
SIMPLE = ("anova", "chi2")


class Plan(NamedTuple):
    """The splits to measure on, and what run.json says of them."""

    splits: list[Split]
    measured: dict[str, Any]


def plan_for(corpus: Any, train: Any, method: Method, folds: int = FOLDS) -> Plan:
    """Decide where a run is measured.

    Parameters
    ----------
    corpus : storage.Corpus
        All of it.
    train : storage.Corpus
        Its training part.
    method : Method
        How its work grows decides between folds and one held-out share, by counts alone: the same
        corpus is always measured in the same way.
    folds : int, default=5
        Number of folds where there is no test half.

    Returns
    -------
    Plan
        Without splits where nothing can be predicted; `measured["how"]` is then "not" and
        `measured["why"]` says why.
    """
    kind, known, testable = target_kind(train.y), labelled_rows(train.y), testable_rows(train.y)
    measured: dict[str, Any] = {"metrics": list(METRICS[kind]), "model": MODELS[kind]}
    if not varies(train.y, np.flatnonzero(known)):
        return Plan([], {"how": "not", "why": "no labels, or all the same: nothing to predict"})
    if corpus.has_test_half:
        test = corpus.part("test")
        if _has_targets(test.y):
            sizes = {"train": train.X.shape[0], "test": int(labelled_rows(test.y).sum())}
            return Plan(
                [Split(train.X, train.y, test.X, test.y)], measured | {"how": "test half"} | sizes
            )
    if not varies(train.y, testable):
        return Plan(
            [],
            {
                "how": "not",
                "why": "no test half, and fewer than two classes of two "
                "samples: nothing to test on",
            },
        )
    splits = stratified_folds(train.X, train.y, folds)
    measured |= {"folds": len(splits), "untested": int(known.sum()) - len(testable)}
    if work(train.X, method) * len(splits) <= MOST_WORK:
        return Plan(splits, measured | {"how": "nested folds"})
    held = splits[0]
    sizes = {"train": held.X_train.shape[0], "test": held.X_test.shape[0]}
    return Plan(
        [held],
        measured | {"how": "held-out share", "share": sizes["test"] / train.X.shape[0]} | sizes,
    )


def _has_targets(y: Any) -> bool:
    return bool(y.nnz) if target_kind(y) == "multilabel" else bool(labelled_rows(y).any())


def work(X: Any, method: Method) -> float:
    """Return roughly how many multiplications it takes to choose features: by pairs of samples or
    by passes.
    """
    return float(X.nnz) * (method.pairs * X.shape[0] or PASSES)


def rivals(train: Any, method: str) -> tuple[str, ...]:
    """Return the simple scores to compare with: ANOVA and, of non-negative features, χ².

    They need classes.

    ANOVA and Fisher rank alike, so Fisher's rival is χ² only.
    """
    if target_kind(train.y) != "class":
        return ()
    there = [
        name for name in SIMPLE if name != method and not (name == "anova" and method == "fisher")
    ]
    return tuple(name for name in there if name != "chi2" or is_non_negative(train.X))


def sentence(measured: dict[str, Any], baselines: tuple[str, ...]) -> str:
    """Return how the figures were measured, in words for the terminal, the report and Prefect."""
    if measured["how"] == "not":
        return f"Not evaluated: {measured['why']}."
    parts = [f"{measured['model']}, {_samples(measured)}."]
    if measured.get("untested"):
        alone = f"{measured['untested']:,} samples are the only ones of their class and were"
        alone = (
            "1 sample is the only one of its class and was" if measured["untested"] == 1 else alone
        )
        parts.append(f"{alone} trained on, never tested.")
    if measured.get("not_converged"):
        parts.append(
            f"In {measured['not_converged']} of the selections the method "
            f"stopped before its tolerance."
        )
    if not baselines:
        parts.append("No simple score is compared: ANOVA, Fisher and χ² need one class per sample.")
    return " ".join(parts)


def _samples(measured: dict[str, Any]) -> str:
    if measured["how"] == "test half":
        return (
            f"trained on the {measured['train']:,} training samples, tested on "
            f"the {measured['test']:,} held out"
        )
    if measured["how"] == "held-out share":
        return (
            f"tested on {measured['test']:,} samples that were held out (a share of "
            f"{measured['share']:.2f}, fixed seed), "
            f"trained on the other {measured['train']:,}; for this the "
            f"features were chosen on those only"
        )
    return (
        f"{measured['folds']} folds; the features were chosen anew in each "
        f"fold, without its test samples"
    )
