"""SMR: what is read from the cells, and the checks of the claims."""

from __future__ import annotations

import numpy as np

from benchmarks.papers import smr
from benchmarks.papers.claims import Outcome, above, above_on, all_curves, all_of, never_rises
from benchmarks.papers.measures import best
from benchmarks.papers.results import settings

SELECTORS = ("SMR", "IG", "ReliefF", "Fisher", "RFS", "GLSPFS", "random")
OTHERS = ("2DLDA", "all pixels")  # no selectors
DATA = smr.ACCURACY.data
CELLS = 20  # of a data set and a repetition
Runs = dict[str, dict[int, np.ndarray]]


def runs(data: str, method: str, metric: str) -> Runs:
    """Return the curves of the repetitions in which every cell is there."""
    return smr.ACCURACY.results().complete_runs(metric, data, method, CELLS)


def score(data: str, method: str, choice: str) -> dict[int, float]:
    """Return the mean accuracy over the numbers of pixels, per repetition."""
    accuracy = runs(data, method, "accuracy")
    by_test = choice == "test" or method == "2DLDA"
    return best(accuracy, None if by_test else runs(data, method, "cv"))


def beside(others: tuple[str, ...], choice: str) -> Outcome:
    """Return whether SMR is above the others on each data set."""
    return above_on(DATA, lambda data, m: score(data, m, choice), "SMR", others)


def redundancy(data: str, method: str) -> list[np.ndarray]:
    """Return the redundancy at the parameters of the best accuracy on the test."""
    accuracy, found = runs(data, method, "accuracy"), runs(data, method, "redundancy")
    chosen = {}
    for r in sorted({r for c in accuracy.values() for r in c}):
        q = max((c[r].mean(), q) for q, c in accuracy.items() if r in c)[1]
        chosen[r] = found[q][r]
    return [chosen[r] for r in sorted(chosen)]


def less_redundant(others: tuple[str, ...]) -> Outcome:
    """Return whether SMR's pixels are less redundant, up to 350 of them as in the paper."""

    def negative(data: str, method: str) -> dict[int, float]:
        return {r: -float(c[:7].mean()) for r, c in enumerate(redundancy(data, method))}

    return above_on(DATA, negative, "SMR", others)


def covered(data: str, method: str) -> dict[str, dict[int, float]]:
    """Return the mean number of covered pixels: with the best parameters, and over all."""
    found = smr.EYES_TWO.results().runs("covered", data, method)
    repetitions_ = sorted({r for curve in found.values() for r in curve})
    values = {r: [c[r].mean() for c in found.values() if r in c] for r in repetitions_}
    return {
        "best": {r: float(min(v)) for r, v in values.items()},
        "mean": {r: float(np.mean(v)) for r, v in values.items()},
    }


EYES = {"ORL-two": "the two classes alone", "ORL-all": "all 40 classes"}


def fewer_covered(which: str) -> Outcome:
    """Return whether the other methods take more covered pixels than SMR."""
    outcomes = []
    for data, name in EYES.items():
        mine = {r: -v for r, v in covered(data, "SMR")[which].items()}
        theirs = {
            m: {r: -v for r, v in covered(data, m)[which].items()}
            for m in ("IG", "ReliefF", "Fisher", "RFS")
        }
        outcomes.append(above(mine, theirs, name))
    return all_of(outcomes)


def falls() -> Outcome:
    """Return in how many fits the objective never rises."""
    text = "A case is a fit of 30 rounds at most."
    return all_curves(smr.ACCURACY.results(), DATA, "objective", "SMR", never_rises, text)


def slower(others: tuple[str, ...]) -> Outcome:
    """Return whether SMR takes more processor time than the others."""

    def seconds(data: str, method: str) -> dict[int, float]:
        found = smr.ACCURACY.results().runs("seconds", data, method)
        all_runs = sorted({r for c in found.values() for r in c})
        return {r: float(np.mean([c[r][0] for c in found.values() if r in c])) for r in all_runs}

    return above_on(DATA, seconds, "SMR", others)


def grid(data: str) -> dict[int, dict[int, np.ndarray]]:
    """Return k → repetition → mean accuracy for each α, where all of them are there."""
    found = {
        **smr.ACCURACY.results().runs("accuracy", data, "SMR"),
        **smr.GRID.results().runs("accuracy", data, "SMR"),
    }
    lines = {}
    for k in (1, 2, 4, 6, 8, 10):
        at = {float(settings(q)["alpha"]): c for q, c in found.items() if f"k={k} " in q}
        if len(at) == len(smr.ALPHAS):
            done = sorted(set.intersection(*(set(c) for c in at.values())))
            if done:
                lines[k] = {r: np.array([at[a][r].mean() for a in smr.ALPHAS]) for r in done}
    return lines


def k_matters_less() -> Outcome:
    """Return whether the spread over k is less for α of 100 and more than for α of 1 and less."""
    outcomes = []
    for data in DATA:
        lines = {k: runs_ for k, runs_ in grid(data).items() if k > 1}
        if len(lines) < 5:
            continue
        done = sorted(set.intersection(*(set(c) for c in lines.values())))
        spread = {r: np.ptp([c[r] for c in lines.values()], axis=0) for r in done}
        small = {r: float(v[:4].mean()) for r, v in spread.items()}
        large = {r: float(v[5:].mean()) for r, v in spread.items()}
        outcomes.append(above(small, {"the spread at large α": large}, data))
    return all_of(outcomes)
