"""The page of SRLSR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import srlsr
from benchmarks.papers.claims import Claim, Item, Outcome, all_curves, never_rises
from benchmarks.papers.measures import best, best_curves, mean_over
from benchmarks.papers.pages import Paper, curves, mean_error, repetitions, table
from benchmarks.papers.results import settings
from benchmarks.papers.srlsr_claims import (
    OURS,
    PEERS,
    PRINTED,
    beside,
    best_setting,
    concentration,
    grid,
    runs,
    score,
    settles,
    shares,
    times,
)

# --- sections -------------------------------------------------------------------------------------


def accuracy_section(folder: Path) -> str:
    rows = []
    for method in ("SRLSR", *PEERS, *OURS):
        row = [method]
        for data in srlsr.DATA:
            printed = PRINTED[data].get(method)
            row.append("" if printed is None else f"{printed:.3f}")
            row += [mean_error(score(data, method, choice).values()) for choice in ("test", "cv")]
        rows.append(row)
    head = ["method"]
    for data in srlsr.DATA:
        used = ", ".join(map(str, shares(data))) or "none"
        head += [f"{data}: printed", f"ours, chosen on the test ({used} % labels)", "ours, nested"]
    panels = {
        f"{data}, 40 % labels": {
            method: (srlsr.COUNTS, best_curves(found))
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
            "The printed Isolet has 7,797 samples and ours 1,560. The printed colon has real "
            "values and ours is discretized. Mean and standard error over repetitions.\n",
            table(head, rows),
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
    for data in srlsr.DATA:
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
            "Mean accuracy over 20 to 200 features at 40 % labels. The paper's BinAlpha and CNAE-9 "
            "are not available.\n",
            table(head, rows),
        ]
    )


def theta_section(folder: Path) -> str:
    store = srlsr.THETA.results()
    theta, objective = {}, {}
    for data in srlsr.THETA.data:
        for gamma in ("0.01", "10") if data == "Isolet" else ():
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
CHOICES = (
    ("parameters chosen on the test data", "test", True),
    ("parameters chosen by the folds of the labeled samples", "cv", False),
    ("the mean over all parameters, as the text says", "mean", False),
)


def accuracy_claims(labeled: int | None, least: int = 1) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            f"SRLSR is above {name}: {text}",
            partial(beside, others, choice, labeled, least),
            counts,
        )
        for name, others in (("RLSR", ("RLSR",)), ("the seven others", PEERS[1:]))
        for text, choice, counts in CHOICES
    )


OTHER_DATA = "BinAlpha, CNAE-9, Segment, CS, USPS and Srbct"


def convergence(check: Callable[[np.ndarray], bool], text: str) -> Outcome:
    """Return in how many settings the objective behaves so."""
    return all_curves(srlsr.THETA.results(), srlsr.THETA.data, "objective", "SRLSR", check, text)


PAPER = Paper(
    key="srlsr",
    title="SRLSR",
    reference='X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse '
    'rescaled linear square regression", IEEE TKDE, 2018.',
    experiments=(srlsr.THETA, srlsr.FORTY, srlsr.SHARED, srlsr.GRID),
    repetitions=10,
    items=(
        Item("Fig. 1", "a drawing of labeled and unlabeled data", no_claim=True),
        Item("Table 1", "the data", no_claim=True),
        Item(
            "Fig. 2",
            "accuracy against the share of labels",
            accuracy_claims(None, least=2),
            missing=OTHER_DATA,
        ),
        Item("Table 2", "mean accuracy of nine methods", accuracy_claims(None), missing=OTHER_DATA),
        Item(
            "Fig. 3",
            "accuracy against the number of features",
            accuracy_claims(40),
            missing=OTHER_DATA,
        ),
        Item(
            "Fig. 4",
            "θ against p and γ",
            (
                Claim("fewer features hold the weight as γ grows", partial(concentration, "gamma")),
                Claim("fewer features hold the weight as p falls", partial(concentration, "p")),
            ),
            missing="CS, in whose place Isolet and colon stand",
        ),
        Item(
            "Fig. 5",
            "time of eight methods",
            tuple(
                Claim(f"SRLSR takes less time than {name}", partial(times, name, TIMES))
                for name in TIMES
            ),
            missing=OTHER_DATA,
        ),
        Item(
            "Fig. 6",
            "accuracy against γ and the number of features",
            (
                Claim(
                    "the best γ is large",
                    partial(best_setting, "gamma", lambda g: g >= 1, "Large: 1 or more."),
                ),
            ),
            missing="BinAlpha and CNAE-9, in whose place Isolet and colon stand",
        ),
        Item(
            "Fig. 7",
            "accuracy against p and the number of features",
            (
                Claim(
                    "the best p is small",
                    partial(best_setting, "p", lambda p: p <= 0.5, "Small: 0.5 or less."),
                ),
                Claim(
                    "the best p is below 1, so SRLSR is better than RLSR",
                    partial(best_setting, "p", lambda p: p < 1, "p has more values than 1 to win."),
                ),
            ),
            missing="BinAlpha and CNAE-9, in whose place Isolet and colon stand",
        ),
        Item(
            "Fig. 8",
            "convergence",
            (
                Claim(
                    "the objective never rises after the first round",
                    partial(
                        convergence,
                        lambda objective: never_rises(objective[1:]),
                        "A case is a pair of p and γ, 20 rounds.",
                    ),
                ),
                Claim(
                    "95 % of the fall of 20 rounds is there after ten",
                    partial(convergence, settles, "The same cases."),
                ),
            ),
            missing="BinAlpha and CNAE-9, in whose place Isolet and colon stand",
        ),
    ),
    sections=(accuracy_section, p_section, theta_section),
)
