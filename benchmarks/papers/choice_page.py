"""The section on SparGE's defaults: which are the best by nested folds, and who is ahead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.papers.choice import CHOICE, DENSE, NEWS, UNIT, UNITS, methods
from benchmarks.papers.pages import mean_error, table
from benchmarks.papers.results import settings

PEERS = ("χ²", "ANOVA", "ℓ2", "ℓ1", "SVM-RFE")
DEFAULT = "gamma=1.0 loss=squared ranking=elimination"
CHOSEN, FIXED = "SparGE, chosen by the folds", "SparGE, γ = 1"

Case = tuple[str, int]  # data and repetition
Scores = dict[Case, dict[tuple[str, str], float]]  # (family, parameters) → mean over the sizes


def scores(metric: str) -> Scores:
    """Return the accuracies of the splits in which every method is there."""
    found: Scores = {}
    for experiment in (CHOICE, NEWS):
        for key, values in experiment.results().cells.items():
            case = found.setdefault((key.data, key.repetition), {})
            case[key.method, key.parameters] = float(values[metric].mean())
    order = (*CHOICE.data, *NEWS.data)
    return {
        case: found[case]
        for case in sorted(found, key=lambda c: (order.index(c[0]), c[1]))
        if len(found[case]) == sum(1 for _ in methods(case[0]))
    }


def best_setting(inner: Mapping[tuple[str, str], float], family: str) -> tuple[str, str]:
    """Return the method of a family with the best accuracy in the inner folds."""
    return max((key for key in inner if key[0] == family), key=inner.__getitem__)


def on_test() -> dict[str, dict[Case, float]]:
    """Return the test accuracies by what chose: the default, or the inner folds of each split."""
    inner, test = scores("inner"), scores("test")
    columns = {FIXED: {case: by["SparGE", DEFAULT] for case, by in test.items()}}
    for label, family in ((CHOSEN, "SparGE"), *((peer, peer) for peer in PEERS)):
        columns[label] = {case: test[case][best_setting(inner[case], family)] for case in test}
    return columns


def by_data(values: Mapping[Case, float], kind: str = "all") -> dict[str, list[float]]:
    """Return the values of each data set of a kind: text, dense or all."""
    found: dict[str, list[float]] = {}
    for (data, _), value in values.items():
        if kind == "all" or (data in DENSE) == (kind == "dense"):
            found.setdefault(data, []).append(value)
    return found


def signed(values: list[float]) -> str:
    """Return the mean with its sign and its standard error."""
    text = mean_error(values)
    return text if text.startswith("-") else f"+{text}"


def default_section() -> str:
    """Return the accuracy of the inner folds for every setting that all data sets have."""
    inner = scores("inner")
    columns = {
        parameters: by_data({case: by["SparGE", parameters] for case, by in inner.items()})
        for _, parameters in chosen_by_all(inner)
    }
    default, rows = columns[DEFAULT], []
    for parameters, found in columns.items():
        gaps = [np.mean(found[name]) - np.mean(default[name]) for name in found]
        words = settings(parameters)
        rows.append(
            [
                words["gamma"],
                words.get("loss", "squared").replace("_", " "),
                words.get("ranking", "elimination"),
                words.get("class_weight", "balanced"),
                *(f"{np.mean(values):.3f}" for values in found.values()),
                f"{np.mean([np.mean(values) for values in found.values()]):.3f}",
                "" if parameters == DEFAULT else signed(gaps),
            ]
        )
    head = ["γ", "loss", "ranking", "weights", *default, "mean", "over the default"]
    return (
        "Accuracy of the inner folds, which alone choose the default. The error is over the data "
        f"sets.\n\n{table(head, rows)}"
    )


def chosen_by_all(inner: Scores) -> list[tuple[str, str]]:
    """Return the settings of SparGE that every split has."""
    common = set.intersection(*(set(by) for by in inner.values()))
    return sorted(key for key in common if key[0] == "SparGE")


def peers_section() -> str:
    """Return the test accuracies, and SparGE against each peer."""
    columns = on_test()
    names = list(by_data(columns[FIXED]))
    counts = [f"{name} ({len(by_data(columns[FIXED])[name])})" for name in names]
    rows = [
        [label, *(mean_error(by_data(values)[name]) for name in names)]
        for label, values in columns.items()
    ]
    text = (
        "Test accuracy, mean over 10, 20 and 50 features, with its standard error over the splits "
        f"(their number in brackets).\n\n{table(['', *counts], rows)}\n"
        "Wins and losses of data sets in the mean, of splits, and the mean difference with its "
        "standard error over the data sets.\n\n"
    )
    rows = []
    for ours in (FIXED, CHOSEN):
        for kind in ("text", "dense", "all"):
            for peer in PEERS:
                gaps = by_data(
                    {case: columns[ours][case] - columns[peer][case] for case in columns[ours]},
                    kind,
                )
                means = [float(np.mean(values)) for values in gaps.values()]
                splits = [value for values in gaps.values() for value in values]
                if means:
                    rows.append([ours, kind, peer, wins(means), wins(splits), signed(means)])
    head = ["", "data", "against", "data sets", "splits", "mean difference"]
    return text + table(head, rows)


def wins(gaps: list[float]) -> str:
    """Return how many differences are positive and how many negative."""
    return f"{sum(gap > 0 for gap in gaps)} won, {sum(gap < 0 for gap in gaps)} lost"


def choice_section(folder: Path) -> str:
    """Return the defaults and the peers."""
    if not scores("test"):
        return ""
    return f"""## The defaults, and five peers, by nested folds

Not in the paper. A split has two thirds of the samples to choose and train on, and one third to
test on (20 Newsgroups: by date). Two folds of the two thirds choose C of the peers, and γ, loss,
ranking and class weights of SparGE where these are chosen. `LinearSVC()` scores the first 10, 20
and 50 features of an order of 50. Text is tf-idf, other data is standardized. The thinned groups
have class sizes that fall to a fortieth. The classes are balanced where nothing else is said, as
they were by default until 2026-11-25. [The race](../measured/choosing.md) has today's default on
more sets, beside peers that do not choose their C.

{default_section()}
{peers_section()}
{unit_table()}"""


def unit_table() -> str:
    """Return the accuracy of the inner folds by the unit of γ, on few samples."""
    found, rows, means = UNIT.results(), [], []
    names = [f"unit={'Σv' if share is None else f'{share:g}'}" for share in UNITS]
    for data in UNIT.data:
        curves = found.runs("inner", data, "SparGE")
        if set(names) <= set(curves):
            done = set.intersection(*(set(curves[name]) for name in names))
            row = [[float(curves[name][r].mean()) for r in done] for name in names]
            rows.append([data, len(done), *(mean_error(values) for values in row)])
            means.append([float(np.mean(values)) for values in row])
    if not rows:
        return ""
    rows.append(["mean", "", *(f"{value:.3f}" for value in np.mean(means, axis=0))])
    head = ["", "splits", *(name.removeprefix("unit=") for name in names)]
    return (
        "The unit of γ, in Σs²/Σs with s the centered columns' sums of squares, or Σv, the sum of "
        f"the variances: accuracy of the inner folds.\n\n{table(head, rows)}"
    )
