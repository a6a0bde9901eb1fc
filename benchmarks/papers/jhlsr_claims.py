"""JHLSR: what is read from the cells, and the checks of the claims."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.papers import jhlsr
from benchmarks.papers.claims import Outcome, Verdict, above, above_on, all_curves, all_of
from benchmarks.papers.measures import average, best

MODES = {"supervised": jhlsr.SUPERVISED, "semi": jhlsr.SEMI, "unsupervised": jhlsr.UNSUPERVISED}
PEERS = {
    "supervised": ("Fscore", "SPFS", "mRMR", "LLFS", "L21RFS", "Trace ratio"),
    "semi": ("LSDF", "TRCFS"),
    "unsupervised": ("LapScore", "SPEC", "MCFS", "JELSR"),
}
EXTRA = ("random", "all features")
Runs = dict[str, dict[int, np.ndarray]]


def runs(mode: str, data: str, method: str, metric: str = "accuracy") -> Runs:
    """Return the curves of the repetitions in which every cell is there."""
    cells = len(jhlsr.VARIANTS) * len(jhlsr.GRID) + len(PEERS[mode]) + len(EXTRA)
    return MODES[mode].results().complete_runs(metric, data, method, cells)


def score(mode: str, data: str, method: str, choice: str) -> dict[int, float]:
    """Return the mean accuracy over the numbers of features, per repetition."""
    accuracy = runs(mode, data, method)
    return best(accuracy) if choice == "test" else average(accuracy)


def beside(mode: str, others: tuple[str, ...], choice: str) -> Outcome:
    """Return whether JHLSR is above the others on each data set."""
    return above_on(
        jhlsr.DATA, lambda data, method: score(mode, data, method, choice), "JHLSR", others
    )


def variants(choice: str) -> Outcome:
    """Return whether JHLSR is above HYPER and GRAPH in each mode."""
    outcomes = []
    for mode in MODES:
        outcome = beside(mode, ("HYPER", "GRAPH"), choice)
        if outcome.evidence:
            outcomes.append(outcome._replace(evidence=f"{mode}: {outcome.evidence}"))
    return all_of(outcomes)


def learned(metric: str, degrees: str, check: Callable[[np.ndarray], bool], text: str) -> Outcome:
    """Return in how many fits a metric of the learned hypergraph passes a check."""
    keep = f"degrees={degrees}".__eq__
    return all_curves(jhlsr.WEIGHTS.results(), jhlsr.DATA, metric, "JHLSR", check, text, keep)


def settles(change: np.ndarray) -> bool:
    """Return whether the fifth change of S is below 1 % of the first."""
    return bool(change[4] <= 0.01 * change[0])


def more_penalties() -> Outcome:
    """Return whether nine penalties are above one."""
    outcomes = []
    for data in jhlsr.DATA:
        found = jhlsr.NUMBER.results().runs("accuracy", data, "JHLSR")
        if {"penalties=1", "penalties=9"} <= set(found):
            few, many = (
                {r: float(c.mean()) for r, c in found[q].items()}
                for q in ("penalties=1", "penalties=9")
            )
            outcomes.append(above(many, {"one penalty": few}, data))
    return all_of(outcomes) if outcomes else Outcome(Verdict.NOT_RUN, "")
