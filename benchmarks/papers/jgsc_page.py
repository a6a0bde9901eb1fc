"""JGSC and RJGSC [Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import pages
from benchmarks.papers.claims import Outcome, above_on, items, share
from benchmarks.papers.experiments import Experiment
from benchmarks.papers.jgsc import (
    LARGE,
    LARGE_PARAMETERS,
    ON_DATA,
    ON_LARGE,
    ON_TOYS,
    PARAMETERS,
    PERCENT,
    REAL,
)
from benchmarks.papers.pages import Paper

PEERS = ("Original", "LPP", "Laplacian score", "MCFS", "MRSF", "JFS", "UDFS", "GSC")
SETTLED = 30  # iterations
CHANGE = 0.01  # of the objective, below which it is stable
SENSITIVE = 0.05  # accuracy between the best and the worst parameters


def runs(experiment: Experiment, data: str, method: str) -> dict[int, float]:
    """Return the mean accuracy over the shares, per repetition."""
    found = experiment.results().runs("accuracy", data, method).get("", {})
    return {r: float(np.mean(v)) for r, v in found.items()}


# --- claims ---------------------------------------------------------------------------------------


def against(
    experiment: Experiment, method: str, others: Sequence[str], data: Sequence[str]
) -> Outcome:
    """Return whether a method is above others, in the mean over the shares, on each of the data."""
    return above_on(data, lambda name, one: runs(experiment, name, one), method, others)


def settled(method: str, experiment: Experiment = PARAMETERS) -> Outcome:
    """Return whether the objective is stable after 30 rounds, for every α and λ."""
    counts = {}
    for name in experiment.data:
        found = experiment.results().runs("objective", name, method)
        curves = [curve for by_run in found.values() for curve in by_run.values()]
        changes = [
            abs(curve[min(SETTLED, len(curve)) - 1] - curve[-1]) / curve[-1] for curve in curves
        ]
        counts[name] = (sum(change <= CHANGE for change in changes), len(changes))
    return share(
        counts, f"Counted are the pairs of α and λ whose objective is then within {CHANGE}"
    )


def sensitive(method: str, experiment: Experiment = PARAMETERS) -> Outcome:
    """Return whether the accuracy at half of the dimensions depends on the parameters."""
    counts, ranges = {}, []
    for name in experiment.data:
        found = experiment.results().runs("accuracy", name, method)
        values = [float(v[0]) for by_run in found.values() for v in by_run.values()]
        counts[name] = (0, 0)
        if len(values) > 1:
            counts[name] = (int(max(values) - min(values) > SENSITIVE), 1)
            ranges.append(f"{name} {min(values):.3f} to {max(values):.3f}")
    return share(counts, f"Accuracy at 50 %: {', '.join(ranges)}")


# --- sections -------------------------------------------------------------------------------------


def accuracy_section(experiment: Experiment, title: str, folder: Path) -> str:
    """Return the curves and the table of an experiment."""
    found = experiment.results()
    datasets = [name for name in experiment.data if name in found.datasets()]
    if not datasets:
        return ""
    panels, methods = {}, ("JGSC", "RJGSC", *PEERS)
    for name in datasets:
        lines = {}
        for method in methods:
            curves = found.runs("accuracy", name, method).get("", {})
            if curves:
                lines[method] = (PERCENT, [curves[r] for r in sorted(curves)])
        panels[name] = lines
    picture = pages.curves(
        panels, ("dimensions (%)", "accuracy"), folder, experiment.name, f"{title}: accuracy"
    )
    rows = [
        [method, *(pages.mean_error(runs(experiment, name, method).values()) for name in datasets)]
        for method in methods
    ]
    table = pages.table(["mean over the shares", *datasets], rows)
    return f"## {title}\n{picture}\n{table}\n{pages.repetitions(experiment)}"


def parameter_section(folder: Path, experiment: Experiment, title: str) -> str:
    """Return the objective by rounds."""
    found = experiment.results()
    panels = {}
    for name in found.datasets():
        for method in ("JGSC", "RJGSC"):
            curves = found.runs("objective", name, method)
            panels[f"{method}, {name}"] = {
                parameters: (range(1, len(curve) + 1), [curve / curve[-1]])
                for parameters, by_run in curves.items()
                for curve in by_run.values()
                if "alpha=0.1 " in parameters
            }
    picture = pages.curves(
        panels, ("round", "objective over its last"), folder, experiment.name, "convergence"
    )
    return f"## {title}: convergence, α = 0.1\n{picture}" if picture else ""


CHECKS = {
    "Fig. 2": (
        partial(against, ON_TOYS, "JGSC", PEERS, ON_TOYS.data),
        partial(against, ON_TOYS, "RJGSC", ["JGSC"], ("Toy2", "Toy3")),
    ),
    "Fig. 3": (partial(settled, "JGSC"),),
    "Fig. 4": (partial(settled, "RJGSC"),),
    "Fig. 5": (partial(sensitive, "JGSC"),),
    "Fig. 6": (partial(sensitive, "RJGSC"),),
    "Fig. 7": tuple(partial(against, ON_DATA, one, PEERS, REAL) for one in ("JGSC", "RJGSC")),
    "Fig. 8": tuple(partial(settled, one, LARGE_PARAMETERS) for one in ("JGSC", "RJGSC")),
    "Fig. 9": tuple(partial(sensitive, one, LARGE_PARAMETERS) for one in ("JGSC", "RJGSC")),
    "Fig. 10": tuple(partial(against, ON_LARGE, one, PEERS, LARGE) for one in ("JGSC", "RJGSC")),
}

PAPER = Paper(
    key="jgsc",
    title="JGSC and RJGSC",
    reference='X. Zhu, X. Li, S. Zhang, C. Ju and X. Wu, "Robust joint graph sparse coding for '
    'unsupervised spectral feature selection", IEEE TNNLS, 2016.',
    repetitions=10,
    items=items("jgsc", CHECKS),
    experiments=(ON_TOYS, ON_DATA, PARAMETERS, ON_LARGE, LARGE_PARAMETERS),
    sections=(
        lambda folder: accuracy_section(ON_TOYS, "Fig. 2: the toys", folder),
        lambda folder: accuracy_section(ON_DATA, "Fig. 7: accuracy", folder),
        partial(parameter_section, experiment=PARAMETERS, title="Figs. 3 and 4"),
        lambda folder: accuracy_section(ON_LARGE, "Fig. 10: two large corpora", folder),
        partial(parameter_section, experiment=LARGE_PARAMETERS, title="Fig. 8"),
    ),
)
