"""The page of SMR."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import smr
from benchmarks.papers.claims import (
    Outcome,
    above,
    above_on,
    all_curves,
    all_of,
    items,
    never_rises,
)
from benchmarks.papers.measures import best, best_curves
from benchmarks.papers.pages import Paper, curves, mean_error, repetitions, table
from benchmarks.papers.results import printed, settings

# --- values of the cells, and the checks of the claims --------------------------------------------

SELECTORS = ("SMR", "IG", "ReliefF", "Fisher", "RFS", "GLSPFS", "random")
OTHERS = ("2DLDA", "all pixels")  # no selectors
DATA = smr.ACCURACY.data
REDUNDANT = {"PIE": "PIE", "USPS 2007": "USPS"}  # our name and the paper's
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


def compare_with(others: tuple[str, ...], choice: str) -> Outcome:
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
    for data in smr.GRID.data:
        lines = {k: runs_ for k, runs_ in grid(data).items() if k > 1}
        if len(lines) < 5:
            continue
        done = sorted(set.intersection(*(set(c) for c in lines.values())))
        spread = {r: np.ptp([c[r] for c in lines.values()], axis=0) for r in done}
        small = {r: float(v[:4].mean()) for r, v in spread.items()}
        large = {r: float(v[5:].mean()) for r, v in spread.items()}
        outcomes.append(above(small, {"the spread at large α": large}, data))
    return all_of(outcomes)


# --- sections -------------------------------------------------------------------------------------


def eyes_section(folder: Path) -> str:
    store, rows = smr.EYES_TWO.results(), []
    for data, name in EYES.items():
        for method in ("SMR", "IG", "ReliefF", "Fisher", "RFS", "random"):
            found = store.runs("covered", data, method)
            counts = [c for curve in found.values() for c in curve.values()]
            if counts:
                means = np.mean(counts, axis=0)
                fewest = mean_error(covered(data, method)["best"].values(), 1)
                rows.append([name, method, *(f"{v:.1f}" for v in means), fewest])
    if not rows:
        return ""
    head = ["images", "method", *(f"of {m}" for m in smr.EYE_COUNTS), "best parameters, mean"]
    return "\n".join(
        [
            "## Covered eyes (Fig. 3)\n",
            f"{repetitions(smr.EYES_TWO)} Covered pixels among the chosen ones: the mean over the "
            "parameters and repetitions, and the mean over the three numbers at the parameters "
            "with the fewest. 144 of the 1,024 pixels are covered.\n",
            table(head, rows),
        ]
    )


def accuracy_section(folder: Path) -> str:
    rows, panels, red = [], {}, {}
    for method in (*SELECTORS, *OTHERS):
        row = [method]
        for data in DATA:
            row += [mean_error(score(data, method, choice).values()) for choice in ("test", "cv")]
        rows.append(row)
    for data in DATA:
        panels[data] = {
            m: (smr.counts(data), lines)
            for m in (*SELECTORS, *OTHERS)
            if (lines := best_curves(runs(data, m, "accuracy")))
        }
        red[data] = {
            m: (smr.counts(data), lines) for m in SELECTORS if (lines := redundancy(data, m))
        }
    head = ["method", *(f"{d}: {c}" for d in DATA for c in ("chosen on the test", "nested"))]
    tables = []
    for data, name in REDUNDANT.items():
        numbers = list(range(0, 7, 2))
        compared = [
            [m, *([f"{v:.3f}" for v in printed("smr", name, m, "redundancy")[::2]] or [""] * 4)]
            + [mean_error(c[i] for c in redundancy(data, m)) for i in numbers]
            for m in SELECTORS
        ]
        sizes = [smr.counts(data)[i] for i in numbers]
        columns = [f"{text}, {m}" for text in (f"{name}: printed", "ours") for m in sizes]
        tables.append(table(["method", *columns], compared))
    plots = [
        curves(panels, ("pixels", "accuracy"), folder, "smr-accuracy", "Accuracy of 1-NN"),
        curves(red, ("pixels", "redundancy"), folder, "smr-redundancy", "Redundancy rate"),
    ]
    if not any(plots):
        return ""
    return "\n".join(
        [
            "## Accuracy (Fig. 4)\n",
            f"{repetitions(smr.ACCURACY)} Mean over 50, 100, …, 600 pixels, of "
            "USPS over 10, 20, …, 120. Nested: the parameters "
            "of the best accuracy of the nearest other training image.\n",
            table(head, rows),
            plots[0],
            "## Redundancy (Table II)\n",
            "At the parameters of the best accuracy on the test.\n",
            *tables,
            plots[1],
        ]
    )


def grid_section(folder: Path) -> str:
    panels = {
        data: {f"k = {k}": (smr.ALPHAS, list(lines.values())) for k, lines in grid(data).items()}
        for data in smr.GRID.data
    }
    objective = {
        data: {
            q: (range(1, 31), [np.r_[c[0], np.full(30 - len(c[0]), c[0][-1])]])
            for q, c in smr.ACCURACY.results().runs("objective", data, "SMR").items()
            if 0 in c and q in ("k=4 alpha=0.01", "k=4 alpha=1", "k=4 alpha=100")
        }
        for data in DATA
    }
    plots = [
        curves(
            panels,
            ("α", "mean accuracy"),
            folder,
            "smr-grid",
            "Accuracy against α and k",
            xscale="log",
        ),
        curves(objective, ("round", "objective"), folder, "smr-objective", "Objective"),
    ]
    if not any(plots):
        return ""
    return "## α, k and convergence (Figs. 5 and 6)\n\n" + "\n".join(plots)


def time_section(folder: Path) -> str:
    rows = []
    for m in SELECTORS[:-1]:
        row = [m]
        for data in DATA:
            row += [f"{v:.2f}" for v in printed("smr", data, m, "seconds")] or [""]
            found = smr.ACCURACY.results().runs("seconds", data, m)
            row.append(mean_error((c[0] for q in found.values() for c in q.values()), 2))
        rows.append(row)
    return "\n".join(
        [
            "## Time (Table III)\n",
            "Processor seconds of a fit, the mean over the parameters, with other work beside it. "
            "The printed ones are MATLAB's on another machine. 2DLDA selects nothing.\n",
            table(["method", *(f"{d}: {of}" for d in DATA for of in ("printed", "ours"))], rows),
        ]
    )


PEERS = SELECTORS[1:6]

CHECKS = {
    "Fig. 3": (partial(fewer_covered, "best"), partial(fewer_covered, "mean")),
    "Fig. 4": (
        *(partial(compare_with, PEERS, choice) for choice in ("test", "cv")),
        *(partial(compare_with, ("all pixels",), choice) for choice in ("test", "cv")),
        partial(compare_with, ("random",), "test"),
    ),
    "Table II": (partial(less_redundant, PEERS), partial(less_redundant, ("random",))),
    "Fig. 5": (falls,),
    "Fig. 6": (k_matters_less,),
    "Table III": (partial(slower, PEERS),),
}

PAPER = Paper(
    key="smr",
    title="SMR",
    reference='C. Hou, Y. Jiao, F. Nie, T. Luo and Z.-H. Zhou, "2D feature selection by sparse '
    'matrix regression", IEEE TIP, 2017.',
    experiments=(smr.EYES_TWO, smr.ACCURACY, smr.GRID),
    repetitions=20,
    items=items("smr", CHECKS),
    sections=(eyes_section, accuracy_section, grid_section, time_section),
)
