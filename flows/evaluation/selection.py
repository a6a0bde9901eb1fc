"""The selector of a run: made by the name of its method, and checked against a corpus."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from bigfs.advice import closest
from bigfs.constraints import Constraints, resolve
from bigfs.evaluation.metrics import REAL, TARGETS
from bigfs.evaluation.splits import Samples, labeled_rows, target_kind, testable_rows, varies
from bigfs.matrix import Matrix, statistics
from bigfs.selectors.base import estimator
from bigfs.selectors.registry import (
    ALTERNATIVES,
    BY_TARGET,
    METHODS,
    SYNONYMS,
    WITHOUT_TARGET,
    canonical_name,
)
from bigfs.selectors.scores.pvalues import SignificanceSelector
from bigfs.storage.corpus import Corpus
from bigfs.storage.scaling import scaling_of

MOST = 500  # features of a run that names no number
AUTO: Final = "auto"  # the number of features, to be chosen by folds of the training samples
SIGNIFICANCE: Final = ("percentile", "fpr", "fdr", "fwe")  # modes that choose the number
Features = int | Literal["auto", "percentile", "fpr", "fdr", "fwe"]
TABLES_OF_TEXT = ("csv", "jsonl", "parquet")  # formats whose columns have roles
CONSTRAINTS = ("keep", "forbid")  # parameters that hold for the rivals of a method as well


def get_method(name: str) -> Any:
    """Return the entry of a method, by its name or a synonym."""
    method = canonical_name(name)
    if method not in METHODS:
        meant = closest(name, [*METHODS, *SYNONYMS])
        raise ValueError(
            f"unknown method {name!r}{meant or '; the methods are ' + ', '.join(METHODS)}"
        )
    return METHODS[method]


def make_selector(method: str, features: Features, parameters: dict[str, Any]) -> Any:
    """Return the estimator of a method with these parameters.

    Where the number of features is "auto" it is as few as may be, until it is chosen. The modes of
    `SIGNIFICANCE` choose it by themselves.
    """
    entry = get_method(method)
    selector = entry.make()
    valid = selector.get_params()
    if unknown := sorted(set(parameters) - set(valid)):
        raise ValueError(
            f"{method} has no parameter {', '.join(unknown)}; it has {', '.join(valid)}"
        )
    for name, value in entry.parameters.items():
        if parameters.get(name, value) != value:
            raise ValueError(
                f"{method} fixes {name}={value!r}: leave {name} out, or choose "
                f"another of `bigfs methods`"
            )
    has_p_values = isinstance(selector, SignificanceSelector)
    if parameters.get("mode", "k_best") != "k_best" and has_p_values:
        raise ValueError(
            f"mode={parameters['mode']!r} chooses the number of features by itself: give it as "
            f"the number, --features {parameters['mode']}"
        )
    if features in SIGNIFICANCE:
        if not has_p_values:
            made = {name: entry.make() for name, entry in METHODS.items()}
            having = [n for n, one in made.items() if isinstance(one, SignificanceSelector)]
            raise ValueError(
                f"--features {features} chooses by p-values, which {method} does not have: "
                f"use one of {', '.join(having)}"
            )
        parameters = {**parameters, "mode": features}
    if given_graph(parameters) is not None:  # `bigfs.flows.steps.select` reads it
        parameters = {name: value for name, value in parameters.items() if name != "graph"}
    selector.set_params(**parameters)
    if entry.scores == "scores_":  # else the estimator keeps something other than columns
        if "n_features_to_select" in parameters:
            raise ValueError(
                f"the number of features is already set to {features}: leave out the "
                f"parameter n_features_to_select"
            )
        if features == AUTO:
            features = max(n_kept(parameters), 1)
        if features not in SIGNIFICANCE:
            selector.set_params(n_features_to_select=features)
    return selector


def given_graph(parameters: dict[str, Any]) -> str | None:
    """Return the name of the graph in `obsp` that the parameter `graph` names, if it names one."""
    graph = parameters.get("graph")
    if not isinstance(graph, str):
        return None
    room, _, name = graph.partition("/")
    if room != "obsp" or not name:
        raise ValueError(
            f"graph must be obsp/NAME, a graph in the AnnData file of the corpus; got {graph!r}"
        )
    return name


def number_of(features: Features | None, corpus: Any) -> Features:
    """Return the number of features, or how it is chosen, where None is the default."""
    return min(MOST, max(1, corpus.X.shape[1] // 2)) if features is None else features


def require_parameters(
    method: str | None, features: Features | None, parameters: dict[str, Any]
) -> None:
    """Check a method, its number of features and its parameters without any data.

    The methods that a corpus may get where none is named have the same parameters.
    """
    method = method or BY_TARGET["class"]
    features = 1 if features is None else features
    if not isinstance(features, str) and features < 1:
        raise ValueError(f"the number of features must be at least 1; got {features}")
    make_selector(method, features, parameters)._validate_params()


def selector_for(corpus: Any, method: str, features: Features, parameters: dict[str, Any]) -> Any:
    """Return the estimator of a method for a corpus. A mismatch is an error before any work."""
    d = corpus.X.shape[1]
    require_target(corpus, method)
    if features == AUTO:
        train = training_part(corpus)
        if not varies(train.y, testable_rows(train.y, train.groups)):
            raise ValueError(
                f"--features auto chooses the number that predicts the labels best, and "
                f"{corpus.uri} has none to predict: give a number"
            )
    elif features not in SIGNIFICANCE and features > d:
        raise ValueError(
            f"the number of features must be at most {d}, the number in {corpus.uri}; "
            f"got {features}"
        )
    selector = make_selector(method, features, parameters)
    if isinstance(features, int):
        constraints_of(corpus.X, parameters).require(features, d)
    else:
        constraints_of(corpus.X, parameters)
    if (
        corpus.spec.get("sample_shape")
        and "sample_shape" in selector.get_params()
        and "sample_shape" not in parameters
    ):
        # the pixels of a store are in column-major order
        selector.set_params(sample_shape=tuple(corpus.spec["sample_shape"]), order="F")
    if "class_weight" in parameters:
        weights = parameters["class_weight"]
        is_list = isinstance(weights, list)
        numbered = [_by_number(corpus, one) for one in (weights if is_list else [weights])]
        selector.set_params(class_weight=numbered if is_list else numbered[0])
    selector._validate_params()
    return selector


def n_kept(parameters: dict[str, Any]) -> int:
    """Return the number of features that the parameters keep."""
    return len(set(parameters.get("keep") or ()))


def constraints_of(X: Any, parameters: dict[str, Any]) -> Constraints:
    """Return the kept and the forbidden features of a matrix."""
    keep, forbid = (parameters.get(name) for name in CONSTRAINTS)
    return resolve(keep, forbid, X.shape[1], X.feature_names)


def constraints_for(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run that hold for another method as well, if it has them."""
    valid = get_method(method).make().get_params()
    return {name: parameters[name] for name in CONSTRAINTS if name in parameters and name in valid}


def _by_number(corpus: Any, weights: Any) -> Any:
    """Return class weights by the numbers of the classes, given by their names.

    JSON has no other keys than texts, and the target of a store holds the numbers.
    """
    if not isinstance(weights, dict):
        return weights
    numbers = {name: number for number, name in enumerate(corpus.class_names)}
    if unknown := [name for name in weights if isinstance(name, str) and name not in numbers]:
        raise ValueError(
            f"class_weight names {unknown[0]!r}, which is no class of {corpus.uri}: its classes "
            f"are {', '.join(numbers)}"
        )
    return {numbers.get(name, name): weight for name, weight in weights.items()}


def accepts_target(corpus: Any, method: str) -> bool:
    """Return whether a method can learn from the kind of target of a corpus."""
    kind, accepted = _target_of(corpus), get_method(method).targets
    optional = kind is None and not needs_target(get_method(method).make())
    return kind in accepted or not accepted or optional


def _target_of(corpus: Any) -> str | None:
    """Return the kind of target of a corpus, None where no sample has a label."""
    kind = corpus.spec["target"]
    return None if kind == "class" and not corpus.class_names else kind


def require_target(corpus: Any, method: str) -> None:
    """Check that a method can learn from the kind of target of a corpus."""
    if accepts_target(corpus, method):
        return
    kind, advice = _target_of(corpus), label_advice(corpus)
    suitable = ALTERNATIVES[kind] if kind else (WITHOUT_TARGET, "laplacian")
    raise ValueError(
        f"{method} cannot learn from {corpus.uri}, which has {TARGETS[kind]}: "
        f"{advice}{advice and ', or '}use --method {' or '.join(suitable)}"
    )


def label_advice(corpus: Any) -> str:
    """Return how to name the labels of a corpus that has none, if its format may have some."""
    source = corpus.spec["source"]
    if _target_of(corpus) is not None:
        return ""
    if columns := source.get("label_columns"):
        return f"give --label, one of {', '.join(columns)}"
    is_table = source.get("format", "").partition("-")[0] in TABLES_OF_TEXT
    return "name the column of the labels, SOURCE?label=COLUMN" if is_table else ""


def default_note(corpus: Any, method: str) -> str:
    """Return why a run that names no method gets this one."""
    advice = label_advice(corpus)
    note = f"{corpus.uri} has {TARGETS[_target_of(corpus)]}, so the method is {method}"
    return f"{note}: for another one {advice}" if advice else note


def needs_target(selector: Any) -> bool:
    return bool(selector.__sklearn_tags__().target_tags.required)


def shape_hint(selector: Any) -> str | None:
    """Return advice for a method of images that was not told their shape."""
    if getattr(selector, "sample_shape", ()) is not None:
        return None
    return (
        "the samples are taken as vectors: for images stage SOURCE?sample_shape=MxN or give "
        "--set sample_shape=[M,N]"
    )


def scale_hint(corpus: Any, train: Any) -> str | None:
    """Return advice for a store of numbers of which some columns vary far more than the others.

    Distances, penalties and the model that scores follow such columns, whatever they say. Text and
    pixels have one unit.
    """
    if not isinstance(corpus, Corpus) or scaling_of(corpus) is not None:
        return None
    if "min_df" in corpus.manifest.settings or corpus.manifest.source.get("sample_shape"):
        return None
    return statistics.scale_hint(train.X)


def in_place_hint(corpus: Any, selector: Any, method: str) -> str | None:
    """Say what a method of several passes costs on a corpus that is not staged."""
    if isinstance(corpus, Corpus) or selector._cost.in_place == "1":
        return None
    return (
        f"{method} reads {corpus.uri} more than once ({selector._cost.in_place}), where it lies: a "
        f"store that `bigfs stage` makes of it is faster to read"
    )


def samples_of(corpus: Any) -> Samples:
    """Return the groups, times and weights of the samples of a corpus."""
    return Samples(corpus.groups, corpus.times, corpus.sample_weight)


def fit_options(selector: Any, X: Matrix, y: Any, samples: Samples) -> dict[str, Any]:
    """Return the facts of the samples X that are `usable`, as far as `fit` takes them."""
    if X.shape[0] != y.shape[0]:
        samples = samples.take(labeled_rows(y))
    return estimator.fit_options(selector, samples)


def weight_hint(corpus: Any, selector: Any, method: str) -> str | None:
    """Say that a method does not use the weights of a corpus, if it has some."""
    if corpus.sample_weight is None or has_fit_parameter(selector, "sample_weight"):
        return None
    return (
        f"{method} does not use sample_weight={corpus.roles['sample_weight']}: all samples weigh 1"
    )


def training_part(corpus: Any) -> Any:
    """Return the training samples, or all samples of a corpus without splits."""
    return corpus if corpus.split is None else corpus.part("train")


def usable(selector: Any, method: str, X: Any, y: Any) -> tuple[Any, Any]:
    """Return the samples and the target that a method can learn from.

    The target is None for an unsupervised method. Rows without a real-valued target are left out.
    """
    kind, labeled = target_kind(y), labeled_rows(y)
    if kind not in get_method(method).targets or not (labeled.any() or needs_target(selector)):
        return X, None
    if kind in REAL and not labeled.all():
        return X.take_rows(labeled), y[labeled]
    return X, y


def ranking(selector: Any, method: str, features: Features) -> Any:
    """Return the best features of a fitted selector, best first. Ties go to the lower index."""
    if get_method(method).scores == "scores_":
        return selector.selected_[: features if isinstance(features, int) else None]
    return np.argsort(-getattr(selector, get_method(method).scores), kind="stable")[:features]
