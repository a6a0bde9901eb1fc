"""The page of JHLSR."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import jhlsr
from benchmarks.papers.claims import Claim, Item
from benchmarks.papers.experiments import Experiment
from benchmarks.papers.jhlsr_claims import (
    EXTRA,
    MODES,
    PEERS,
    beside,
    learned,
    more_penalties,
    runs,
    score,
    settles,
    variants,
)
from benchmarks.papers.measures import best_curves
from benchmarks.papers.pages import Paper, curves, mean_error, repetitions, table

# printed gains of the mean over nine data sets, in per cent points
PRINTED = {
    "Fscore": 5.95,
    "LLFS": 3.46,
    "L21RFS": 4.77,
    "mRMR": 4.06,
    "Trace ratio": 5.59,
    "SPFS": 3.96,
}
MISSING = "Prostate-GE, GLIOMA, SMK-CAN, MNIST, Caltech256, Scene15 and ALLAML"


# --- sections -------------------------------------------------------------------------------------


def mode_section(folder: Path, mode: str, figure: str) -> str:
    experiment: Experiment = MODES[mode]
    methods = ("JHLSR", "HYPER", "GRAPH", *PEERS[mode], *EXTRA)
    rows = []
    for method in methods:
        row = [method]
        if mode == "supervised":
            row.append(f"{PRINTED[method]:.2f}" if method in PRINTED else "")
        for data in jhlsr.DATA:
            row.append(mean_error(score(mode, data, method, "test").values()))
            row.append(mean_error(score(mode, data, method, "mean").values()))
        rows.append(row)
    if not any(cell for row in rows for cell in row[2:]):
        return ""
    panels = {
        data: {
            m: (jhlsr.COUNTS, lines) for m in methods if (lines := best_curves(runs(mode, data, m)))
        }
        for data in jhlsr.DATA
    }
    head = ["method", *(["printed: JHLSR is above it by (points)"] * (mode == "supervised"))]
    head += [f"{d}: {c}" for d in jhlsr.DATA for c in ("best on the test", "mean")]
    return "\n".join(
        [
            f"## {mode.capitalize().replace('Semi', 'Semi-supervised')} ({figure})\n",
            f"{repetitions(experiment)} Mean over 10, 20, 40, …, 200 features: at the best "
            "parameters on the test, and in the mean over the parameters.\n",
            table(head, rows),
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
    for data in jhlsr.DATA:
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
    for data in jhlsr.DATA:
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


CHOICES = (
    ("the best parameters on the test data, as in the paper", "test", True),
    ("the mean over the parameters", "mean", False),
)


def mode_claims(mode: str) -> tuple[Claim, ...]:
    name, others = f"the {len(PEERS[mode])} others", PEERS[mode]
    return (
        *(
            Claim(f"JHLSR is above {name}: {text}", partial(beside, mode, others, choice), counts)
            for text, choice, counts in CHOICES
        ),
        Claim("JHLSR is above random features", partial(beside, mode, ("random",), "mean"), False),
    )


def items() -> tuple[Item, ...]:
    modes = []
    names = (("supervised", "seven"), ("semi", "three"), ("unsupervised", "five"))
    for number, (mode, count) in enumerate(names):
        name = "semi-supervised" if mode == "semi" else mode
        modes += [
            Item(
                f"Fig. {4 + number}",
                f"{name}: accuracy against the number of features",
                mode_claims(mode),
                missing=MISSING,
            ),
            Item(
                f"Table {3 + number}",
                f"{name}: mean accuracy of {count} methods",
                mode_claims(mode),
                missing=MISSING,
            ),
        ]
    few = "A case is a split."
    return (
        Item("Fig. 1", "faces under varying light", no_claim=True),
        Item("Fig. 2", "a drawing of a hypergraph", no_claim=True),
        Item("Fig. 3", "a flow chart", no_claim=True),
        Item("Table 1", "the notation", no_claim=True),
        Item("Table 2", "the data", no_claim=True),
        *modes,
        Item(
            "Fig. 7",
            "convergence",
            (
                Claim(
                    "S hardly changes after four rounds: the fifth change is 1 % of the first",
                    partial(learned, "change", "weighted", settles, few),
                ),
                Claim(
                    "the same with incidence degrees",
                    partial(learned, "change", "incidence", settles, few),
                    False,
                ),
            ),
            missing="GLIOMA",
        ),
        Item(
            "Fig. 8",
            "JHLSR beside HYPER and GRAPH",
            tuple(
                Claim(f"JHLSR is above both: {text}", partial(variants, choice), counts)
                for text, choice, counts in CHOICES
            ),
            missing="one of the three sets",
        ),
        Item(
            "Fig. 9",
            "accuracy against the number of penalties",
            (Claim("nine penalties are better than one", more_penalties),),
            missing=MISSING,
        ),
        Item(
            "Fig. 10",
            "the learned weights of the hyperedges",
            (
                Claim(
                    "some hyperedges lose their weight",
                    partial(learned, "nonzero", "weighted", lambda v: bool(v[-1] < v[0]), few),
                ),
            ),
            missing=MISSING,
        ),
        Item(
            "Fig. 11",
            "the number of hyperedges that keep a weight",
            (
                Claim(
                    "it falls from round to round",
                    partial(
                        learned, "nonzero", "weighted", lambda v: bool(np.all(np.diff(v) <= 0)), few
                    ),
                ),
                Claim(
                    "less than a tenth keep a weight",
                    partial(learned, "nonzero", "weighted", lambda v: v[-1] < 0.1 * v[0], few),
                ),
                Claim(
                    "less than a tenth, with incidence degrees",
                    partial(learned, "nonzero", "incidence", lambda v: v[-1] < 0.1 * v[0], few),
                    False,
                ),
            ),
            missing=MISSING,
        ),
    )


PAPER = Paper(
    key="jhlsr",
    title="JHLSR",
    reference='Z. Zhang, L. Bai, Y. Liang and E. Hancock, "Joint hypergraph learning and sparse '
    'regression for feature selection", Pattern Recognition, 2017.',
    experiments=(jhlsr.WEIGHTS, jhlsr.SEMI, jhlsr.UNSUPERVISED, jhlsr.SUPERVISED, jhlsr.NUMBER),
    repetitions=10,
    items=items(),
    sections=(
        partial(mode_section, mode="semi", figure="Table 4, Figs. 5 and 8"),
        partial(mode_section, mode="unsupervised", figure="Table 5, Figs. 6 and 8"),
        partial(mode_section, mode="supervised", figure="Table 3, Figs. 4 and 8"),
        hypergraph_section,
        penalties_section,
    ),
)
