"""The page of JHLSR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import jhlsr
from benchmarks.papers.claims import Outcome, Verdict, above, above_on, all_curves, all_of, items
from benchmarks.papers.experiments import Experiment
from benchmarks.papers.measures import average, best, best_curves
from benchmarks.papers.pages import Paper, by_data, curves, mean_error, repetitions, table
from benchmarks.papers.results import printed

# --- values of the cells, and the checks of the claims --------------------------------------------

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


def compare_with(mode: str, others: tuple[str, ...], choice: str) -> Outcome:
    """Return whether JHLSR is above the others on each data set."""
    return above_on(
        jhlsr.DATA, lambda data, method: score(mode, data, method, choice), "JHLSR", others
    )


def variants(choice: str) -> Outcome:
    """Return whether JHLSR is above HYPER and GRAPH in each mode."""
    outcomes = []
    for mode in MODES:
        outcome = compare_with(mode, ("HYPER", "GRAPH"), choice)
        if outcome.evidence:
            outcomes.append(outcome._replace(evidence=f"{mode}: {outcome.evidence}"))
    return all_of(outcomes)


def learned(metric: str, degrees: str, check: Callable[[np.ndarray], bool], text: str) -> Outcome:
    """Return in how many fits a metric of the learned hypergraph passes a check."""
    keep = f"degrees={degrees}".__eq__
    return all_curves(jhlsr.WEIGHTS.results(), jhlsr.SMALL, metric, "JHLSR", check, text, keep)


def settles(change: np.ndarray) -> bool:
    """Return whether the fifth change of S is below 1 % of the first."""
    return bool(change[4] <= 0.01 * change[0])


def more_penalties() -> Outcome:
    """Return whether nine penalties are above one."""
    outcomes = []
    for data in jhlsr.SMALL:
        found = jhlsr.NUMBER.results().runs("accuracy", data, "JHLSR")
        if {"penalties=1", "penalties=9"} <= set(found):
            few, many = (
                {r: float(c.mean()) for r, c in found[q].items()}
                for q in ("penalties=1", "penalties=9")
            )
            outcomes.append(above(many, {"one penalty": few}, data))
    return all_of(outcomes) if outcomes else Outcome(Verdict.NOT_RUN, "")


# --- sections -------------------------------------------------------------------------------------


def mode_section(folder: Path, mode: str, figure: str) -> str:
    experiment: Experiment = MODES[mode]
    methods = ("JHLSR", "HYPER", "GRAPH", *PEERS[mode], *EXTRA)
    if not MODES[mode].results().datasets():
        return ""

    def means(choice: str) -> str:
        return by_data(
            methods, jhlsr.DATA, lambda d, m: mean_error(score(mode, d, m, choice).values())
        )

    printed_means = ", ".join(
        f"{method} by {v:.2f}" for method in methods for v in printed("jhlsr", "all", method)
    )
    panels = {
        data: {
            m: (jhlsr.COUNTS, lines) for m in methods if (lines := best_curves(runs(mode, data, m)))
        }
        for data in jhlsr.DATA
    }
    return "\n".join(
        [
            f"## {mode.capitalize().replace('Semi', 'Semi-supervised')} ({figure})\n",
            f"{repetitions(experiment)} Mean over 10, 20, 40, …, 200 features.",
            f"As printed, JHLSR is above {printed_means} points.\n" if printed_means else "",
            "At the best parameters on the test data, as in the paper:\n",
            means("test"),
            "In the mean over the parameters:\n",
            means("mean"),
            curves(
                panels,
                ("features", "accuracy"),
                folder,
                f"jhlsr-{mode}",
                "Accuracy against the number of features",
                columns=2,
            ),
        ]
    )


def hypergraph_section(folder: Path) -> str:
    store, rows = jhlsr.WEIGHTS.results(), []
    weights, nonzero, change = {}, {}, {}
    for data in jhlsr.SMALL:
        row = [data]
        for degrees in ("incidence", "weighted"):
            keep = f"degrees={degrees}".__eq__
            found = {
                metric: list(store.runs(metric, data, "JHLSR", keep).values())
                for metric in ("identity", "common", "nonzero", "weights", "change")
            }
            if not found["identity"]:
                continue
            values = {metric: list(v[0].values()) for metric, v in found.items()}
            edges = [v[0] for v in values["nonzero"]]
            left = [v[-1] for v in values["nonzero"]]
            row += [
                f"{np.mean(values['identity']):.2g}",
                f"{np.mean(values['common']):.0f}",
                f"{np.mean(left):.0f} of {np.mean(edges):.0f}",
            ]
            if degrees == "weighted":
                weights[data] = {"w": (np.linspace(0, 1, 50), values["weights"])}
                nonzero[data] = {"w > 0": (range(len(values["nonzero"][0])), values["nonzero"])}
                change[data] = {"change": (range(1, 11), values["change"])}
        rows.append(row)
    if len(rows[0]) < 7:
        return ""
    head = ["data"]
    for degrees in ("incidence", "weighted"):
        head += [
            f"{degrees}: norm of I − L_H for equal w",
            "pixels or genes in common with HYPER, of 100",
            "hyperedges that keep a weight",
        ]
    plots = [
        curves(
            change,
            ("round", "squared change of S"),
            folder,
            "jhlsr-change",
            "Change of S from round to round",
            columns=4,
            yscale="log",
        ),
        curves(
            weights,
            ("share of the hyperedges", "weight × hyperedges"),
            folder,
            "jhlsr-weights",
            "Sorted weights of the hyperedges",
            columns=4,
        ),
        curves(
            nonzero,
            ("round", "hyperedges with a weight"),
            folder,
            "jhlsr-nonzero",
            "Hyperedges that keep a weight",
            columns=4,
        ),
    ]
    return "\n".join(
        [
            "## The learned hypergraph (Figs. 7, 10 and 11)\n",
            f"{repetitions(jhlsr.WEIGHTS)} Semi-supervised, μ = 1, λ = 0.1, γ = 0.01, 20 rounds. "
            "The paper has both readings of the degrees. With incidence degrees L_H is nearly the "
            "identity, and JHLSR chooses as HYPER does. The plots are of weighted degrees.\n",
            table(head, rows),
            *plots,
        ]
    )


def penalties_section(folder: Path) -> str:
    panels = {}
    for data in jhlsr.SMALL:
        found = jhlsr.NUMBER.results().runs("accuracy", data, "JHLSR")
        at = {int(q.split("=")[1]): c for q, c in found.items()}
        if sorted(at) == list(range(1, 10)):
            done = sorted(set.intersection(*(set(c) for c in at.values())))
            if done:
                lines = [[at[count][r].mean() for count in sorted(at)] for r in done]
                panels[data] = {"JHLSR": (sorted(at), lines)}
    plot = curves(
        panels,
        ("penalties", "accuracy"),
        folder,
        "jhlsr-penalties",
        "Accuracy against the number of penalties",
    )
    if not plot:
        return ""
    return f"## The number of penalties (Fig. 9)\n\n{repetitions(jhlsr.NUMBER)}\n\n{plot}"


FEW = "A case is a split."


def mode_checks(mode: str) -> tuple[Callable[[], Outcome], ...]:
    peers = (partial(compare_with, mode, PEERS[mode], choice) for choice in ("test", "mean"))
    return (*peers, partial(compare_with, mode, ("random",), "mean"))


def few_left(nonzero: np.ndarray) -> bool:
    """Return whether less than a tenth of the hyperedges keep a weight."""
    return bool(nonzero[-1] < 0.1 * nonzero[0])


CHECKS = {
    **dict.fromkeys(("Fig. 4", "Table 3"), mode_checks("supervised")),
    **dict.fromkeys(("Fig. 5", "Table 4"), mode_checks("semi")),
    **dict.fromkeys(("Fig. 6", "Table 5"), mode_checks("unsupervised")),
    "Fig. 7": (
        partial(learned, "change", "weighted", settles, FEW),
        partial(learned, "change", "incidence", settles, FEW),
    ),
    "Fig. 8": (partial(variants, "test"), partial(variants, "mean")),
    "Fig. 9": (more_penalties,),
    "Fig. 10": (partial(learned, "nonzero", "weighted", lambda v: bool(v[-1] < v[0]), FEW),),
    "Fig. 11": (
        partial(learned, "nonzero", "weighted", lambda v: bool(np.all(np.diff(v) <= 0)), FEW),
        partial(learned, "nonzero", "weighted", few_left, FEW),
        partial(learned, "nonzero", "incidence", few_left, FEW),
    ),
}

PAPER = Paper(
    key="jhlsr",
    title="JHLSR",
    reference='Z. Zhang, L. Bai, Y. Liang and E. Hancock, "Joint hypergraph learning and sparse '
    'regression for feature selection", Pattern Recognition, 2017.',
    experiments=(jhlsr.WEIGHTS, jhlsr.SEMI, jhlsr.UNSUPERVISED, jhlsr.SUPERVISED, jhlsr.NUMBER),
    repetitions=10,
    items=items("jhlsr", CHECKS),
    sections=(
        partial(mode_section, mode="semi", figure="Table 4, Figs. 5 and 8"),
        partial(mode_section, mode="unsupervised", figure="Table 5, Figs. 6 and 8"),
        partial(mode_section, mode="supervised", figure="Table 3, Figs. 4 and 8"),
        hypergraph_section,
        penalties_section,
    ),
)
