"""How a run is scored: on which samples, against which baselines, and in which words.

Scores are never measured on the samples that selected the features. The test samples of the corpus
are used if it has any. Otherwise the features are selected again inside each fold. If that costs
too much, one fold is held out and the features are selected once more without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation import METRICS, is_non_negative
from bigfs.selectors.registry import Method
from bigfs.splits import Split, labeled_rows, stratified_folds, target_kind, testable_rows, varies

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
    """Decide which samples a run is scored on.

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
    kind, known, testable = target_kind(train.y), labeled_rows(train.y), testable_rows(train.y)
    measured: dict[str, Any] = {"metrics": list(METRICS[kind]), "model": MODELS[kind]}
    if not varies(train.y, np.flatnonzero(known)):
        return Plan([], {"how": "not", "why": "there are no labels, or all labels are equal"})
    if corpus.has_test_half:
        test = corpus.part("test")
        if _has_targets(test.y):
            sizes = {"train": train.X.shape[0], "test": int(labeled_rows(test.y).sum())}
            return Plan(
                [Split(train.X, train.y, test.X, test.y)], measured | {"how": "test half"} | sizes
            )
    if not varies(train.y, testable):
        return Plan(
            [],
            {
                "how": "not",
                "why": "there are no test samples, and fewer than two classes have two samples",
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
    return bool(y.nnz) if target_kind(y) == "multilabel" else bool(labeled_rows(y).any())


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
        alone = f"{measured['untested']:,} samples are the only ones of their class. They were"
        alone = (
            "1 sample is the only one of its class. It was" if measured["untested"] == 1 else alone
        )
        parts.append(f"{alone} used for training only.")
    if measured.get("not_converged"):
        parts.append(
            f"The method stopped before it reached its tolerance in "
            f"{measured['not_converged']} of the selections."
        )
    if not baselines:
        parts.append(
            "There are no baselines, because ANOVA, Fisher and χ² need one class per sample."
        )
    return " ".join(parts)


def _samples(measured: dict[str, Any]) -> str:
    if measured["how"] == "test half":
        return (
            f"trained on {measured['train']:,} training samples, tested on "
            f"{measured['test']:,} test samples"
        )
    if measured["how"] == "held-out share":
        return (
            f"trained on {measured['train']:,} samples, "
            f"tested on {measured['test']:,} held-out samples "
            f"(a share of {measured['share']:.2f}, drawn with a fixed seed). The features were "
            f"selected again without the held-out samples"
        )
    return (
        f"{measured['folds']} folds. The features were selected again in each "
        f"fold without its test samples"
    )
