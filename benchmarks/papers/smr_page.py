"""The page of SMR."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.papers import smr
from benchmarks.papers.claims import Claim, Item
from benchmarks.papers.measures import best_curves
from benchmarks.papers.pages import Paper, curves, mean_error, repetitions, table
from benchmarks.papers.smr_claims import (
    DATA,
    EYES,
    OTHERS,
    SELECTORS,
    beside,
    covered,
    falls,
    fewer_covered,
    grid,
    k_matters_less,
    less_redundant,
    redundancy,
    runs,
    score,
    slower,
)

SCENES = "the photographs of OT and LSP with their SIFT features"
FACES = "PIE, Umist and USPS, in whose place warpPIE10P stands, and DFS"
PRINTED = {  # Table II: PIE, 50, 100, …, 350 pixels
    "IG": (0.6893, 0.6912, 0.6991, 0.6963, 0.6922, 0.6650, 0.6602),
    "ReliefF": (0.4119, 0.3972, 0.3963, 0.3995, 0.4043, 0.4087, 0.4148),
    "Fisher": (0.4762, 0.4766, 0.4752, 0.4721, 0.4693, 0.4674, 0.4640),
    "RFS": (0.4245, 0.4159, 0.4145, 0.4115, 0.4097, 0.4093, 0.4074),
    "GLSPFS": (0.4146, 0.4126, 0.4021, 0.4026, 0.4056, 0.4061, 0.4073),
    "SMR": (0.4079, 0.4038, 0.4009, 0.3980, 0.3939, 0.3910, 0.3904),
}
TIMES = {  # Table III: seconds on ORL
    "IG": 0.47,
    "ReliefF": 1.76,
    "Fisher": 1.85,
    "RFS": 1.21,
    "GLSPFS": 0.95,
    "SMR": 40.36,
}


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
            m: (smr.COUNTS, lines)
            for m in (*SELECTORS, *OTHERS)
            if (lines := best_curves(runs(data, m, "accuracy")))
        }
        red[data] = {m: (smr.COUNTS, lines) for m in SELECTORS if (lines := redundancy(data, m))}
    head = ["method", *(f"{d}: {c}" for d in DATA for c in ("chosen on the test", "nested"))]
    printed = [
        [m, *([f"{v:.3f}" for v in PRINTED[m][::2]] if m in PRINTED else [""] * 4)]
        + [mean_error(c[i] for c in redundancy("warpPIE10P", m)) for i in (0, 2, 4, 6)]
        for m in SELECTORS
    ]
    numbers = [smr.COUNTS[i] for i in (0, 2, 4, 6)]
    plots = [
        curves(panels, ("pixels", "accuracy"), folder, "smr-accuracy", "Accuracy of 1-NN"),
        curves(red, ("pixels", "redundancy"), folder, "smr-redundancy", "Redundancy rate"),
    ]
    if not any(plots):
        return ""
    return "\n".join(
        [
            "## Accuracy (Fig. 4)\n",
            f"{repetitions(smr.ACCURACY)} Mean over 50, 100, …, 600 pixels. Nested: the parameters "
            "of the best accuracy of the nearest other training image.\n",
            table(head, rows),
            plots[0],
            "## Redundancy (Table II)\n",
            "At the parameters of the best accuracy. The printed PIE has 11,554 images of 68 "
            "people, warpPIE10P has 210 of 10, so only the order can be compared.\n",
            table(
                ["method", *(f"PIE printed, {m}" for m in numbers)]
                + [f"warpPIE10P, {m}" for m in numbers],
                printed,
            ),
            plots[1],
        ]
    )


def grid_section(folder: Path) -> str:
    panels = {
        data: {f"k = {k}": (smr.ALPHAS, list(lines.values())) for k, lines in grid(data).items()}
        for data in DATA
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
            ("α", "accuracy, mean over 50 to 600 pixels"),
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
        row = [m, f"{TIMES[m]:.2f}"]
        for data in DATA:
            found = smr.ACCURACY.results().runs("seconds", data, m)
            row.append(mean_error((c[0] for q in found.values() for c in q.values()), 2))
        rows.append(row)
    if not any(row[2] for row in rows):
        return ""
    return "\n".join(
        [
            "## Time (Table III)\n",
            "Processor seconds of a fit, the mean over the parameters, with other work beside it. "
            "The printed ones are MATLAB's on another machine. 2DLDA selects nothing.\n",
            table(["method", "ORL: printed", *(f"{d}: ours" for d in DATA)], rows),
        ]
    )


PEERS = SELECTORS[1:6]
CHOICES = (
    ("parameters chosen on the test data, as in the paper", "test", True),
    ("parameters chosen on the training images", "cv", False),
)

PAPER = Paper(
    key="smr",
    title="SMR",
    reference='C. Hou, Y. Jiao, F. Nie, T. Luo and Z.-H. Zhou, "2D feature selection by sparse '
    'matrix regression", IEEE TIP, 2017.',
    experiments=(smr.EYES_TWO, smr.ACCURACY, smr.GRID),
    repetitions=20,
    items=(
        Item("Fig. 1", "faces with covered eyes", no_claim=True),
        Item("Fig. 2", "a drawing of the method", no_claim=True),
        Item("Table I", "the data", no_claim=True),
        Item(
            "Fig. 3",
            "the chosen pixels of faces with covered eyes",
            (
                Claim(
                    "SMR takes fewer covered pixels than the others, each with its best parameters",
                    partial(fewer_covered, "best"),
                ),
                Claim(
                    "the same in the mean over the parameters",
                    partial(fewer_covered, "mean"),
                    False,
                ),
            ),
        ),
        Item(
            "Fig. 4",
            "accuracy against the number of pixels",
            (
                *(
                    Claim(f"SMR is above {name}: {text}", partial(beside, others, choice), counts)
                    for name, others in (
                        ("the five other selectors", PEERS),
                        ("all pixels", ("all pixels",)),
                    )
                    for text, choice, counts in CHOICES
                ),
                Claim("SMR is above random pixels", partial(beside, ("random",), "test"), False),
            ),
            missing=FACES,
        ),
        Item(
            "Table II",
            "redundancy of the chosen pixels",
            (
                Claim("SMR's pixels are less redundant", partial(less_redundant, PEERS)),
                Claim("also less than random ones", partial(less_redundant, ("random",)), False),
            ),
            missing=FACES,
        ),
        Item("Fig. 5", "convergence", (Claim("the objective never rises", falls),)),
        Item(
            "Fig. 6",
            "accuracy against α and k",
            (Claim("k matters less where α is large", k_matters_less),),
            missing="Umist and USPS, in whose place warpPIE10P and ORL stand",
        ),
        Item(
            "Table III",
            "time of eight methods",
            (Claim("SMR takes longer than the five other selectors", partial(slower, PEERS)),),
            missing=FACES,
        ),
        Item("Fig. 7", "examples of the scenes", no_claim=True),
        Item("Fig. 8", "accuracy on scenes", missing=SCENES),
        Item("Fig. 9", "mean average precision on scenes", missing=SCENES),
    ),
    sections=(eyes_section, accuracy_section, grid_section, time_section),
)
