"""The evaluation protocol of a run: its samples, its baselines, and the sentence that describes it.

Scores are never measured on the samples that selected the features. The test samples of the corpus
are used if it has any. Otherwise the features are selected again inside each fold. If that costs
too much, one fold is held out and the features are selected once more without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigfs.evaluation import large_model
from bigfs.evaluation.curves import is_non_negative
from bigfs.evaluation.metrics import METRIC_NAMES, Scorer, require_metrics
from bigfs.evaluation.splits import (
    Samples,
    Split,
    folds_to_score,
    held_out_split,
    labeled_rows,
    most_folds,
    target_kind,
    testable_rows,
    training_sample,
    varies,
)
from bigfs.flows.evaluation.controls import RANDOM, SHUFFLED
from bigfs.flows.evaluation.selection import Features, require_target, samples_of
from bigfs.selectors.registry import Method
from bigfs.settings import Setting

FOLDS = 5
# passes over the stored values that one selection takes, roughly, if its work does not grow with
# the number of pairs of samples
PASSES = 200
# limit on the multiplications of the selections in all folds: a minute or two on two cores
MAX_WORK = Setting(5e10)
MODELS = {
    "svm": {
        "class": "Linear SVM",
        "multilabel": "One linear SVM per label",
        "real": "Ridge regression",
        "multioutput": "Ridge regression",
    },
    "logistic": {
        "class": "Logistic regression",
        "multilabel": "One logistic regression per label",
    },
}
# of features that do not fit in one process together
ALL_FEATURES = {
    large_model.SVM: "All features do not fit in memory, so their SVM was trained tile by tile.",
    large_model.RIDGE: "All features do not fit in memory, so their ridge regression was solved "
    "tile by tile.",
    large_model.SGD: "All features do not fit in memory, so their model was trained by stochastic "
    f"gradient descent, in {large_model.PASSES} passes.",
    "left out": "All features were left out, because a linear model on them does not fit in "
    "memory or takes too long.",
}
# how the features of a plan were selected again, where they were
AGAIN = {
    "nested folds": "in each fold without its test samples",
    "held-out share": "without the held-out samples",
}
SIMPLE = {
    "class": ("anova", "chi2"),
    "multilabel": ("anova",),
    "real": ("f-regression",),
    "multioutput": (),
}
# figures of a plan that say which samples train and test its models
OF_SPLITS = ("how", "train", "test", "share", "folds", "untested", "trained_on", "classifier")


class Plan(NamedTuple):
    """The splits to measure on, and their description for run.json."""

    splits: list[Split]
    measured: dict[str, Any]


def make_plan(
    corpus: Any,
    train: Any,
    method: Method,
    features: Features,
    choices: Mapping[str, Any],
    *,
    selections: int = 1,
) -> Plan:
    """Decide which samples a run is scored on, by the choices of its scoring."""
    require_choices(corpus, method, features, choices)
    X, y, kind = train.X, train.y, target_kind(train.y)
    folds, classifier = choices.get("folds"), choices.get("classifier", "svm")
    samples = samples_of(train)
    labeled, testable = labeled_rows(y), testable_rows(y, samples.groups)
    measured: dict[str, Any] = {
        "metrics": list(require_metrics(kind, choices.get("metrics", ()), classifier)),
        "model": MODELS[classifier][kind],
    }
    if classifier != "svm":
        measured["classifier"] = classifier
    if not varies(y, np.flatnonzero(labeled)):
        return Plan([], {"how": "not", "why": "there are no labels, or all labels are equal"})
    test = test_part(corpus)
    if test is None and not varies(y, testable):
        two = "two samples" if samples.groups is None else "samples in two groups"
        why = f"there are no test samples, and fewer than two classes have {two}"
        return Plan([], {"how": "not", "why": why})
    if test is not None:
        splits, how = [Split(X, y, test.X, test.y, samples)], "test half"
        if samples.groups is not None:
            measured["groups_in_both"] = len(np.intersect1d(samples.groups, test.groups))
    else:
        how = "held-out share"
        measured["untested"] = int(labeled.sum()) - len(testable)
        if (test_size := choices.get("test_size")) is not None:
            splits = [held_out_split(X, y, test_size, samples=samples)]
        else:
            with_auc = scorer_of(measured).with_auc
            splits, left_out = folds_to_score(X, y, folds or FOLDS, samples, with_auc)
            measured["folds"] = len(splits)
            if _are_all_used(X, method, folds, len(splits) * selections):
                how = "nested folds"
                if left_out:
                    measured["left_out"] = left_out
            else:
                splits = splits[:1] if samples.times is None else splits[-1:]
    measured["how"] = how
    first = splits[0]
    if how != "nested folds":
        measured["train"] = first.X_train.shape[0]
        measured["test"] = int(labeled_rows(first.y_test).sum())
    if how == "held-out share":
        measured["share"] = measured["test"] / X.shape[0]
    if used := {role: name for role, name in corpus.roles.items() if role != "batch"}:
        measured["roles"] = used
    sample, of_sample = training_sample(first.X_train, first.y_train)
    if sample is not first.X_train:
        measured["trained_on"] = int(labeled_rows(of_sample).sum())
    return Plan(splits, measured)


def leave_out(plan: Plan, reasons: Sequence[str]) -> None:
    """Note in a plan that some of its folds were left out when they were measured."""
    if reasons:
        plan.measured["folds"] -= len(reasons)
        plan.measured["left_out"] = [*plan.measured.get("left_out", []), *reasons]


def splits_of(corpus: Any, X: Any, method: Method, choices: Mapping[str, Any]) -> tuple[int, bool]:
    """Return in how many splits `make_plan` scores one selection, and whether by test samples."""
    if test_part(corpus) is not None:
        return 1, True
    n = choices.get("folds") or FOLDS
    is_nested = "test_size" not in choices and _are_all_used(X, method, choices.get("folds"), n)
    return n if is_nested else 1, False


def _are_all_used(X: Any, method: Method, folds: int | None, selections: int) -> bool:
    """Return whether every fold scores, or one of them where all are too much work."""
    return folds is not None or selection_work(X, method) * selections <= MAX_WORK.value


def scorer_of(measured: Mapping[str, Any]) -> Scorer:
    """Return the scorer of a plan."""
    return Scorer(measured.get("classifier", "svm"), "auc" in measured["metrics"])


def test_part(corpus: Any) -> Any:
    """Return the test samples of a corpus, or None if it has none with a target."""
    if not corpus.has_test_half:
        return None
    test = corpus.part("test")
    has_targets = test.y.nnz if target_kind(test.y) == "multilabel" else labeled_rows(test.y).any()
    return test if has_targets else None


def require_choices(
    corpus: Any, method: Method, features: Features, choices: Mapping[str, Any]
) -> None:
    """Refuse choices of the scoring that do not suit a corpus, before any work."""
    target, classifier = corpus.spec["target"] or "class", choices.get("classifier", "svm")
    folds, test_size = choices.get("folds"), choices.get("test_size")
    require_metrics(target, choices.get("metrics", ()), classifier)
    if (folds, test_size) != (None, None) and test_part(corpus) is not None:
        raise ValueError(
            f"{corpus.uri} has test samples, and they score the run: leave out --cv and --test-size"
        )
    train = corpus.part("train") if corpus.has_test_half else corpus
    if folds is not None:
        _require_folds(corpus, train.y, samples_of(train), folds)
    sizes = choices.get("sizes")
    if sizes and not isinstance(features, str) and max(sizes) > features:
        raise ValueError(
            f"--sizes must be at most {features}, the number of features selected; got {max(sizes)}"
        )
    for name in choices.get("baselines") or ():
        require_target(corpus, name)
    if SHUFFLED in choices.get("controls", ()) and target not in method.targets:
        raise ValueError(
            f"--controls {SHUFFLED} is for methods that learn from labels, and this one does not: "
            f"give --controls {RANDOM}"
        )
    if test_part(corpus) is None:
        test_size = test_size or 1 / (folds or FOLDS)
    n = int(labeled_rows(train.y).sum() * (1 - (test_size or 0)))
    m = 1 if isinstance(features, str) else features
    large_model.require_trainable(n, m, train.y, logistic=classifier == "logistic")


def _require_folds(corpus: Any, y: Any, samples: Samples, folds: int) -> None:
    """Refuse more folds than can have test samples."""
    if not varies(y, testable_rows(y, samples.groups)) or folds <= (most := most_folds(y, samples)):
        return
    largest = "in the largest class" if target_kind(y) == "class" else "with a target"
    limit = f"the number of samples {largest}"
    if samples.groups is not None:
        limit += f", or of values of {corpus.roles['group']}"
    if samples.times is not None:
        limit = f"the number of values of {corpus.roles['time']} but the first"
    raise ValueError(f"--cv must be at most {most}, {limit}; got {folds}")


def selection_work(X: Any, method: Method) -> float:
    """Estimate the number of multiplications of one selection, by pairs of samples or by passes."""
    return float(X.nnz) * (method.pairs * X.shape[0] or PASSES)


def default_baselines(train: Any, method: str) -> tuple[str, ...]:
    """Return the simple scores to compare with: ANOVA and, of non-negative features, χ².

    Several labels per sample have ANOVA only, a real target the F statistic of a regression, and
    several real targets none.
    ANOVA and Fisher rank alike, so Fisher's rival is χ² only.
    """
    names = [
        name
        for name in SIMPLE[target_kind(train.y)]
        if name != method and not (name == "anova" and method == "fisher")
    ]
    return tuple(name for name in names if name != "chi2" or is_non_negative(train.X))


def describe(measured: Mapping[str, Any]) -> str:
    """Describe how the figures were measured, for the terminal, the report and Prefect."""
    if measured["how"] == "not":
        return f"Not evaluated: {measured['why']}."
    again, roles = AGAIN.get(measured["how"]), measured.get("roles", {})
    link = " in which" if measured["how"] == "nested folds" else ", where"
    apart = _apart(measured, link, is_given=measured["how"] == "test half")
    parts = [f"{measured['model']}, {_samples(measured)}{apart}."]
    if measured.get("groups_in_both"):
        parts.append(
            f"Of the values of {roles['group']}, {measured['groups_in_both']:,} are in both parts, "
            f"so the scores may be too high for new ones."
        )
    if "sample_weight" in roles:
        parts.append(
            f"The scores weigh all samples alike, whatever their {roles['sample_weight']}."
        )
    if again is not None:
        parts.append(f"The features were selected again {again}.")
    if left_out := measured.get("left_out"):
        were = "was" if len(left_out) == 1 else "were"
        parts.append(
            f"{len(left_out)} of {measured['folds'] + len(left_out)} folds {were} left out: "
            f"{'; '.join(dict.fromkeys(left_out))}."
        )
    if "trained_on" in measured:
        parts.append(
            f"The models were trained on {measured['trained_on']:,} of the training samples, drawn "
            f"from each class, because there are many samples and classes."
        )
    if measured.get("untested"):
        n = measured["untested"]
        subject = f"{n:,} samples are the only ones of their class. They were"
        if "group" in roles:
            subject = f"{n:,} of the samples are of a class that only one {roles['group']} has. "
            subject += "They were"
        elif n == 1:
            subject = "1 sample is the only one of its class. It was"
        parts.append(f"{subject} used for training only.")
    if measured.get("not_converged"):
        parts.append(
            f"The method stopped before it reached its tolerance in "
            f"{measured['not_converged']} of the selections."
        )
    if "all_features" in measured:
        parts.append(ALL_FEATURES[measured["all_features"]])
    if "controls" in measured:
        names, draws = measured["controls"]
        parts.append(
            f"{' and '.join(names)}: the mean of {draws} draws and their standard deviation."
        )
    if measured.get("auto") is not None:
        score, apart = measured.get("auto_metric"), _apart(measured, " in which")
        parts.append(
            f"The number of features is the smallest within one standard error of the best"
            f"{'' if score is None else f' {METRIC_NAMES[score]}'}, by {measured['auto']} folds of "
            f"the training samples{apart}{'' if again is None else f', again {again}'}."
        )
        if measured.get("auto_is_largest"):
            parts.append("It is the largest that was tried.")
    if measured.get("mode") is not None:
        parts.append(f"The number of features is the choice of {measured['mode']}, by p-values.")
        if measured["how"] == "nested folds":
            parts.append(
                "It was made again in each fold, which takes the best feature where none is "
                "accepted."
            )
        elif again is not None:
            parts.append(f"It was made again {again}.")
    return " ".join(parts)


def _apart(measured: Mapping[str, Any], link: str, *, is_given: bool = False) -> str:
    """Say what the two parts of a split do not share. The source may have given the split."""
    parts, roles = [], measured.get("roles", {})
    if "group" in roles and not (is_given and measured["groups_in_both"]):
        parts.append(f"no {roles['group']} is in both parts")
    if "time" in roles and not is_given:
        parts.append(f"the training samples are earlier by {roles['time']}")
    return f"{link} {' and '.join(parts)}" if parts else ""


def _samples(measured: Mapping[str, Any]) -> str:
    if measured["how"] == "nested folds":
        return f"{measured['folds']} folds"
    verb = "features chosen on" if "trained_on" in measured else "trained on"
    train, test = f"{measured['train']:,}", f"{measured['test']:,}"
    if measured["how"] == "test half":
        return f"{verb} {train} training samples, tested on {test} test samples"
    return (
        f"{verb} {train} samples, tested on {test} held-out samples (a share of "
        f"{measured['share']:.2f}, "
        f"{'the latest' if 'time' in measured.get('roles', {}) else 'drawn with a fixed seed'})"
    )
