"""The page of the unsupervised methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from benchmarks.papers import unsupervised
from benchmarks.papers.pages import Paper, mean_error, repetitions, table
from benchmarks.papers.unsupervised import DATA, NAMES, NOW

METRICS = {"nmi": "Normalized mutual information", "accuracy": "Accuracy of the best matching"}
EXTRA = ("random", "all features")


def runs(metric: str, data: str, method: str) -> dict[int, float]:
    """Return the mean over the numbers of features, per repetition."""
    found = NOW.results().runs(metric, data, method).get("", {})
    return {r: float(np.mean(values)) for r, values in found.items()}


def ranks(metric: str) -> dict[str, list[float]]:
    """Return the rank of each method on each data set that all of them have, 1 for the best."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for data in DATA:
        means = [np.mean(list(runs(metric, data, n).values()) or [np.nan]) for n in NAMES]
        if not np.isnan(means).any():
            for name, place in zip(NAMES, rankdata([-m for m in means]), strict=True):
                found[name].append(float(place))
    return found


def metric_section(metric: str) -> str:
    """Return the table of a metric."""
    places = ranks(metric)
    order = sorted(NAMES, key=lambda name: float(np.mean(places[name] or [0])))
    rows = [
        [
            method,
            *(mean_error(runs(metric, data, method).values()) for data in DATA),
            mean_error(places.get(method, ()), 1),
        ]
        for method in (*order, *EXTRA)
    ]
    return f"### {METRICS[metric]}\n\n{table(['method', *DATA, 'mean rank'], rows)}"


def now_section(folder: Path) -> str:
    if not NOW.results().datasets():
        return ""
    counts = ", ".join(map(str, unsupervised.COUNTS))
    return "\n".join(
        [
            "## By the clusters of the features\n",
            f"{repetitions(NOW)} A repetition is a stratified draw of 80 % of the samples, at most "
            f"{unsupervised.LARGEST:,}. The mean is over the first {counts} features and "
            f"{unsupervised.STARTS} starts of k-means, which has as many clusters as there are "
            "classes. `n_components` is the number of classes, all else has its default. Of "
            "Reuters the classes with 20 documents or more. The rank is the mean over the data "
            "sets.\n",
            *(metric_section(metric) for metric in METRICS),
        ]
    )


PAPER = Paper(
    key="unsupervised",
    title="Unsupervised methods",
    reference="The unsupervised methods of the five papers and their peers, on the papers' data.",
    items=(),
    repetitions=5,
    experiments=(NOW,),
    sections=(now_section,),
)
