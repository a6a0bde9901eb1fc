"""The page of SRLSR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import srlsr
from benchmarks.papers.claims import (
    Outcome,
    above,
    above_on,
    all_curves,
    all_of,
    items,
    never_rises,
    share,
)
from benchmarks.papers.measures import average, best, best_curves, mean_over
from benchmarks.papers.pages import Paper, by_data, curves, mean_error, repetitions, table
from benchmarks.papers.results import printed, settings

# --- values of the cells, and the checks of the claims --------------------------------------------

PEERS = ("RLSR", "LSDF", "sSelect", "RRPC", "LS", "MCFS", "UDFS", "RFS")
OURS = ("ANOVA", "random", "all features")  # not in the paper's table
CELLS = 40  # of a share and a repetition
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
    """Return the mean accuracy per repetition, parameters by "test", "cv" or the "mean" of all."""
    parts = []
    for s in shares(data) if labeled is None else [labeled]:
        accuracy = runs(data, method, s, "accuracy")
        if choice == "mean":
            parts.append(average(accuracy))
        else:
            parts.append(best(accuracy, None if choice == "test" else runs(data, method, s, "cv")))
    return mean_over(parts)


def compare_with(
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
    for data in srlsr.GRID.data:
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


# --- sections -------------------------------------------------------------------------------------


def accuracy_section(folder: Path) -> str:
    methods = ("SRLSR", *PEERS, *OURS)

    def as_printed(data: str, method: str) -> str:
        return "".join(f"{v:.3f}" for v in printed("srlsr", data, method))

    used = "; ".join(
        f"{data} {', '.join(map(str, at))}" for data in srlsr.DATA if (at := shares(data))
    )
    panels = {
        f"{data}, 40 % labels": {
            method: (srlsr.counts(data), best_curves(found))
            for method in ("SRLSR", *PEERS, *OURS)
            if any((found := runs(data, method, 40, "accuracy")).values())
        }
        for data in srlsr.DATA
    }
    against = {
        f"{data}, mean over the numbers of features": {
            method: (
                shares(data),
                np.transpose(
                    [
                        list(mean_over([score(data, method, "test", s)]).values())[:common]
                        for s in at
                    ]
                ),
            )
            for method in ("SRLSR", *PEERS, *OURS)
        }
        for data in srlsr.DATA
        if len(at := shares(data)) > 1
        and (common := min(len(score(data, "SRLSR", "test", s)) for s in at))
    }
    return "\n".join(
        [
            "## Accuracy (Table 2, Figs. 2 and 3)\n",
            f"At 40 %: {repetitions(srlsr.FORTY)} At the other shares: {repetitions(srlsr.SHARED)}",
            f"Shares of labels in the tables (%): {used}. Mean and standard error over "
            "repetitions.\n",
            "As printed:\n",
            by_data(methods, srlsr.DATA, as_printed),
            "Ours, parameters chosen on the test data, as in the paper:\n",
            by_data(methods, srlsr.DATA, lambda d, m: mean_error(score(d, m, "test").values())),
            "Ours, parameters chosen by the folds of the labeled samples:\n",
            by_data(methods, srlsr.DATA, lambda d, m: mean_error(score(d, m, "cv").values())),
            curves(
                panels,
                ("features", "accuracy"),
                folder,
                "srlsr-features",
                "Accuracy against the number of features at 40 % labels",
            ),
            curves(
                against,
                ("% of labels", "accuracy"),
                folder,
                "srlsr-shares",
                "Accuracy against the share of labels",
            ),
        ]
    )


def p_section(folder: Path) -> str:
    rows = []
    for data in srlsr.GRID.data:
        found = grid(data)
        for p in sorted({float(settings(q)["p"]) for q in found}, reverse=True):
            here = {q: c for q, c in found.items() if float(settings(q)["p"]) == p}
            row = [data, f"{p:g}", mean_error(best(here).values())]
            chosen = runs(data, "SRLSR", 40, "cv", p)
            row.append(mean_error(best(here, chosen).values()) if set(chosen) >= set(here) else "")
            means = mean_over([{r: c.mean() for r, c in curve.items()} for curve in here.values()])
            rows.append([*row, mean_error(means.values())])
    if not rows:
        return ""
    head = ["data", "p", "best γ on the test", "γ by the folds", "mean over γ"]
    return "\n".join(
        [
            "## Which p? (Figs. 6 and 7)\n",
            "Mean accuracy over 20 to 200 features at 40 % labels.\n",
            table(head, rows),
        ]
    )


def theta_section(folder: Path) -> str:
    store = srlsr.THETA.results()
    theta, objective = {}, {}
    for data in srlsr.THETA.data:
        for gamma in ("0.01", "10") if data == "CS" else ():
            found = store.runs("theta", data, "SRLSR")
            theta[f"{data}, γ = {gamma}"] = {
                f"p = {p}": (range(1, len(c[0]) + 1), list(c.values()))
                for p in ("0.1", "0.5", "0.7", "1")
                if (c := found.get(f"p={p} gamma={gamma}"))
            }
        found = store.runs("objective", data, "SRLSR")
        objective[data] = {
            f"p = {p}": (range(2, len(c[0]) + 1), [v[1:] / v[-1] for v in c.values()])
            for p in ("0.1", "0.5", "0.7", "1")
            if (c := found.get(f"p={p} gamma=0.1"))
        }
    plots = [
        curves(
            theta,
            ("feature", "θ"),
            folder,
            "srlsr-theta",
            "The 70 largest θ",
            columns=2,
            yscale="log",
            ylim=(1e-6, 1.5),
        ),
        curves(
            objective,
            ("round", "objective / its last value"),
            folder,
            "srlsr-objective",
            "Objective against the round, γ = 0.1",
        ),
    ]
    return "## θ and convergence (Figs. 4 and 8)\n\n" + "\n".join(plots) if any(plots) else ""


TIMES = {"sSelect": "share=40 lam=0.1", "RRPC": "share=40"}


def accuracy_checks(labeled: int | None, least: int = 1) -> tuple[Callable[[], Outcome], ...]:
    """RLSR and the seven others; the parameters by the test data, by the folds, and all of them."""
    return tuple(
        partial(compare_with, others, choice, labeled, least)
        for others in (("RLSR",), PEERS[1:])
        for choice in ("test", "cv", "mean")
    )


def falls(objective: np.ndarray) -> bool:
    return never_rises(objective[1:])


def convergence(check: Callable[[np.ndarray], bool], text: str) -> Outcome:
    """Return in how many settings the objective behaves so."""
    return all_curves(srlsr.THETA.results(), srlsr.THETA.data, "objective", "SRLSR", check, text)


CHECKS = {
    "Fig. 2": accuracy_checks(None, least=2),
    "Table 2": accuracy_checks(None),
    "Fig. 3": accuracy_checks(40),
    "Fig. 4": (partial(concentration, "gamma"), partial(concentration, "p")),
    "Fig. 5": tuple(partial(times, name, TIMES) for name in TIMES),
    "Fig. 6": (partial(best_setting, "gamma", lambda g: g >= 1, "Large: 1 or more."),),
    "Fig. 7": (
        partial(best_setting, "p", lambda p: p <= 0.5, "Small: 0.5 or less."),
        partial(best_setting, "p", lambda p: p < 1, "p has more values than 1 to win."),
    ),
    "Fig. 8": (
        partial(convergence, falls, "A case is a pair of p and γ, 20 rounds."),
        partial(convergence, settles, "The same cases."),
    ),
}

PAPER = Paper(
    key="srlsr",
    title="SRLSR",
    reference='X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse '
    'rescaled linear square regression", IEEE TKDE, 2018.',
    experiments=(srlsr.THETA, srlsr.FORTY, srlsr.SHARED, srlsr.GRID),
    repetitions=10,
    items=items("srlsr", CHECKS),
    sections=(accuracy_section, p_section, theta_section),
)
