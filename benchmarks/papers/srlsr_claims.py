"""SRLSR: what is read from the cells, and the checks of the claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.papers import srlsr
from benchmarks.papers.claims import Outcome, above, above_on, all_of, share
from benchmarks.papers.measures import average, best, mean_over
from benchmarks.papers.results import settings

PEERS = ("RLSR", "LSDF", "sSelect", "RRPC", "LS", "MCFS", "UDFS", "RFS")
OURS = ("ANOVA", "random", "all features")  # not in the paper's table
CELLS = 40  # of a share and a repetition
PRINTED = {  # Table 2: mean over shares, numbers of features and parameters
    "colon": dict(
        zip(
            ("LSDF", "sSelect", "RRPC", "LS", "MCFS", "UDFS", "RFS", "RLSR", "SRLSR"),
            (0.685, 0.557, 0.692, 0.637, 0.641, 0.687, 0.722, 0.660, 0.725),
            strict=True,
        )
    ),
    "Isolet": dict(
        zip(
            ("LSDF", "sSelect", "RRPC", "LS", "MCFS", "UDFS", "RFS", "RLSR", "SRLSR"),
            (0.767, 0.468, 0.676, 0.760, 0.787, 0.675, 0.882, 0.885, 0.897),
            strict=True,
        )
    ),
}
Runs = dict[str, dict[int, np.ndarray]]


def of_share(labeled: int) -> Callable[[str], bool]:
    """Return what tells the parameters of a share of labels from others."""
    return lambda parameters: settings(parameters)["share"] == str(labeled)


def complete(data: str, labeled: int) -> set[int]:
    """Return the repetitions in which every cell of a share of labels is there."""
    store = (srlsr.FORTY if labeled == 40 else srlsr.SHARED).results()
    return store.complete(data, CELLS, of_share(labeled))


def runs(data: str, method: str, labeled: int, metric: str, p: float | None = None) -> Runs:
    """Return the curves of the complete repetitions. RLSR is SRLSR with p = 1."""
    if method == "RLSR":
        method, p = "SRLSR", 1.0

    def keep(parameters: str) -> bool:
        chosen = settings(parameters)
        return chosen["share"] == str(labeled) and (p is None or float(chosen["p"]) == p)

    store = (srlsr.FORTY if labeled == 40 else srlsr.SHARED).results()
    whole = complete(data, labeled)
    found = store.runs(metric, data, method, keep)
    return {q: {r: c for r, c in curve.items() if r in whole} for q, curve in found.items()}


def shares(data: str) -> list[int]:
    """Return the shares of labels with at least one complete repetition."""
    return [s for s in sorted((40, *srlsr.SHARES)) if complete(data, s)]


def score(data: str, method: str, choice: str, labeled: int | None = None) -> dict[int, float]:
    """Return the mean accuracy, over the shares too where none is given, per repetition.

    `choice` is "test" or "cv", for what chooses the parameters, or "mean" over all of them.
    """
    parts = []
    for s in shares(data) if labeled is None else [labeled]:
        accuracy = runs(data, method, s, "accuracy")
        if choice == "mean":
            parts.append(average(accuracy))
        else:
            parts.append(best(accuracy, None if choice == "test" else runs(data, method, s, "cv")))
    return mean_over(parts)


def beside(
    others: tuple[str, ...], choice: str, labeled: int | None = None, least: int = 1
) -> Outcome:
    """Return whether SRLSR is above the others, on the data with enough shares."""
    return above_on(
        [data for data in srlsr.DATA if len(shares(data)) >= least],
        lambda data, method: score(data, method, choice, labeled),
        "SRLSR",
        others,
    )


def concentration(sign: str) -> Outcome:
    """Return how often fewer features hold 90 % of θ when γ grows, or p falls, by one step."""
    counts = {}
    for data in srlsr.THETA.data:
        found = srlsr.THETA.results().runs("mass", data, "SRLSR")
        mass = {
            (float(settings(q)["p"]), float(settings(q)["gamma"])): curve[0][0]
            for q, curve in found.items()
        }
        p, gamma = (sorted({key[i] for key in mass}) for i in (0, 1))
        if sign == "gamma":
            pairs = [((a, b), (a, c)) for a in p for b, c in zip(gamma, gamma[1:], strict=False)]
        else:
            pairs = [((c, b), (a, b)) for b in gamma for a, c in zip(p, p[1:], strict=False)]
        pairs = [(x, y) for x, y in pairs if x in mass and y in mass]
        counts[data] = (sum(mass[y] <= mass[x] for x, y in pairs), len(pairs))
    return share(counts, "A case is a step of the grid. One repetition decides, as in the paper.")


def times(other: str, parameters: Mapping[str, str]) -> Outcome:
    """Return whether SRLSR takes less processor time than a method, at 40 % labels."""
    store, outcomes = srlsr.FORTY.results(), []
    for data in srlsr.DATA:
        mine = store.runs("seconds", data, "SRLSR", "share=40 p=0.7 gamma=1".__eq__)
        theirs = store.runs("seconds", data, other, parameters[other].__eq__)
        first, second = (
            {r: float(v[0]) for curves in found.values() for r, v in curves.items()}
            for found in (theirs, mine)
        )
        outcomes.append(above(first, {"SRLSR (seconds)": second}, data))
    return all_of(outcomes)


def grid(data: str) -> Runs:
    """Return the accuracies at 40 % of all p that every repetition has."""
    found = runs(data, "SRLSR", 40, "accuracy")
    more = srlsr.GRID.results().runs("accuracy", data, "SRLSR")
    whole = {r for curve in found.values() for r in curve}
    if len(more) == len(srlsr.OTHER_P) * len(srlsr.GAMMAS):
        done = set.intersection(*(set(c) for c in more.values())) & whole
        if done:
            both = {**found, **more}
            return {q: {r: c[r] for r in done} for q, c in both.items()}
    return found


def best_setting(name: str, good: Callable[[float], bool], text: str) -> Outcome:
    """Return in how many repetitions the best parameters satisfy a condition."""
    counts = {}
    for data in srlsr.DATA:
        found = grid(data)
        repetitions_ = {r for c in found.values() for r in c}
        winners = [
            max((c[r].mean(), q) for q, c in found.items() if r in c)[1] for r in repetitions_
        ]
        counts[data] = (sum(good(float(settings(q)[name])) for q in winners), len(winners))
    return share(counts, text)


def settles(objective: np.ndarray) -> bool:
    """Return whether 95 % of the fall of 20 rounds is there after ten."""
    start, after_ten, end = objective[0], objective[min(9, len(objective) - 1)], objective[-1]
    return bool(start - after_ten >= 0.95 * (start - end))
