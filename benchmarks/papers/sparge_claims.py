"""SparGE: what is read from the cells, and the checks of the claims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.claims import Outcome, above_on, share
from benchmarks.papers.experiments import Experiment
from benchmarks.papers.sparge_cells import (
    CLUSTER_SIZES,
    CLUSTERING,
    FEW,
    INFORMATIVE,
    LABELS,
    TIMES,
    TOY,
)

FASTER = 10  # "an order of magnitude"


def runs(
    experiment: Experiment,
    metric: str,
    data: str,
    method: str,
    parameters: str = "",
    points: Sequence[int] | slice = slice(None),
) -> dict[int, float]:
    """Return the mean over the points of a curve, per repetition."""
    found = experiment.results().runs(metric, data, method, lambda p: p == parameters)
    return {r: float(np.mean(v[points])) for r, v in found.get(parameters, {}).items()}


def toy_choice() -> Outcome:
    """Return whether the plateau is at 50 features for every method."""
    counts = {}
    for method in ("SparGE-PCA", "SPCA", "FPS"):
        found = list(runs(TOY, "true", "toy", method).values())
        counts[method] = (sum(value == 1 for value in found), len(found))
    return share(counts, f"Counted are the runs whose {INFORMATIVE} features are the true ones")


def toy_time() -> Outcome:
    """Return whether SparGE is ten times as fast as SPCA and FPS."""
    ours, counts, ratios = runs(TOY, "seconds", "toy", "SparGE-PCA"), {}, []
    for method in ("SPCA", "FPS"):
        theirs = runs(TOY, "seconds", "toy", method)
        found = [theirs[r] / ours[r] for r in theirs if r in ours]
        counts[method] = (sum(ratio >= FASTER for ratio in found), len(found))
        if found:
            ratios.append(f"{method} {np.median(found):.1f}")
    return share(counts, f"Median of their time over ours: {', '.join(ratios)}")


def against(
    experiment: Experiment, metric: str, first: str, others: Sequence[str], *data: str
) -> Outcome:
    """Return whether a method is above others in the mean over the curve, on each of the data."""
    return above_on(data, lambda name, one: runs(experiment, metric, name, one), first, others)


def baseline() -> Outcome:
    """Return whether 70 pixels cluster as all do."""
    counts, at = {}, [CLUSTER_SIZES.index(70)]
    for name in CLUSTERING.data:
        ours = runs(CLUSTERING, "nmi", name, "SparGE-LPP", points=at)
        every = runs(CLUSTERING, "nmi", name, "all features")
        both = sorted(set(ours) & set(every))
        counts[name] = (sum(ours[r] >= every[r] for r in both), len(both))
    return share(counts, "Counted are the repetitions at 70 pixels")


def few_against(other: str) -> Outcome:
    """Return whether SDA is above another method for every number of labels."""

    def accuracy(case: str, method: str) -> dict[int, float]:
        name, labels = case.removesuffix(" per class").split(", ")
        return runs(FEW, "accuracy", name, method, f"labels={labels}")

    cases = [f"{name}, {labels} per class" for name in FEW.data for labels in LABELS]
    return above_on(cases, accuracy, "SparGE-SDA", [other])


def slower(other: str, first: str, factor: float, *data: str) -> Outcome:
    """Return whether a method takes `factor` times as long as the first, in every run."""
    counts, ratios = {}, []
    for name in data:
        ours, theirs = (runs(TIMES, "seconds", name, method) for method in (first, other))
        found = [theirs[r] / max(ours[r], 1e-3) for r in theirs if r in ours]
        counts[name] = (sum(ratio >= factor for ratio in found), len(found))
        if found:
            ratios.append(f"{name} {np.median(found):.1f}")
    return share(counts, f"Median ratio: {', '.join(ratios)}")
