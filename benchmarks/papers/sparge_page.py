"""SparGE [Chen, Tsang, Tan, Cham, IEEE TKDE 2015]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.papers import pages, sparge
from benchmarks.papers.choice import CHOICE, UNIT
from benchmarks.papers.choice import NEWS as CHOICE_NEWS
from benchmarks.papers.choice_page import choice_section
from benchmarks.papers.claims import Outcome, Verdict, above_on, items, share
from benchmarks.papers.experiments import Experiment
from benchmarks.papers.pages import Paper
from benchmarks.papers.results import printed

# --- values of the cells, and the checks of the claims --------------------------------------------

FACE_METHODS = ("SparGE-LPP", "MCFS", "Laplacian score", "random")
FASTER = 10  # "an order of magnitude"


def runs(
    experiment: Experiment,
    metric: str,
    data: str,
    method: str,
    parameters: str = "",
    points: Sequence[int] | slice = slice(None),
) -> dict[int, float]:
    """Return the mean over the points of a curve, per repetition."""
    found = experiment.results().runs(metric, data, method, lambda p: p == parameters)
    return {r: float(np.mean(v[points])) for r, v in found.get(parameters, {}).items()}


def toy_choice() -> Outcome:
    """Return whether the plateau is at 50 features for every method."""
    counts = {}
    for method in ("SparGE-PCA", "SPCA", "FPS"):
        found = list(runs(sparge.TOY, "true", "toy", method).values())
        counts[method] = (sum(value == 1 for value in found), len(found))
    return share(
        counts, f"Counted are the runs whose {sparge.INFORMATIVE} features are the true ones"
    )


def toy_time() -> Outcome:
    """Return whether SparGE is ten times as fast as SPCA and FPS."""
    ours, counts, ratios = runs(sparge.TOY, "seconds", "toy", "SparGE-PCA"), {}, []
    for method in ("SPCA", "FPS"):
        theirs = runs(sparge.TOY, "seconds", "toy", method)
        found = [theirs[r] / ours[r] for r in theirs if r in ours]
        counts[method] = (sum(ratio >= FASTER for ratio in found), len(found))
        if found:
            ratios.append(f"{method} {np.median(found):.1f}")
    return share(counts, f"Median of their time over ours: {', '.join(ratios)}")


def against(
    experiment: Experiment, metric: str, first: str, others: Sequence[str], *data: str
) -> Outcome:
    """Return whether a method is above others in the mean over the curve, on each of the data."""
    return above_on(data, lambda name, one: runs(experiment, metric, name, one), first, others)


def baseline() -> Outcome:
    """Return whether 70 pixels cluster as all do."""
    counts, at = {}, [sparge.CLUSTER_SIZES.index(70)]
    for name in sparge.CLUSTERING.data:
        ours = runs(sparge.CLUSTERING, "nmi", name, "SparGE-LPP", points=at)
        every = runs(sparge.CLUSTERING, "nmi", name, "all features")
        both = sorted(set(ours) & set(every))
        counts[name] = (sum(ours[r] >= every[r] for r in both), len(both))
    return share(counts, "Counted are the repetitions at 70 pixels")


def few_against(other: str) -> Outcome:
    """Return whether SDA is above another method for every number of labels."""

    def accuracy(case: str, method: str) -> dict[int, float]:
        name, labels = case.removesuffix(" per class").split(", ")
        return runs(sparge.FEW, "accuracy", name, method, f"labels={labels}")

    cases = [f"{name}, {labels} per class" for name in sparge.FEW.data for labels in sparge.LABELS]
    return above_on(cases, accuracy, "SparGE-SDA", [other])


def slower(other: str, first: str, factor: float, *data: str) -> Outcome:
    """Return whether a method takes `factor` times as long as the first, in every run."""
    counts, ratios = {}, []
    for name in data:
        ours, theirs = (runs(sparge.TIMES, "seconds", name, method) for method in (first, other))
        found = [theirs[r] / max(ours[r], 1e-3) for r in theirs if r in ours]
        counts[name] = (sum(ratio >= factor for ratio in found), len(found))
        if found:
            ratios.append(f"{name} {np.median(found):.1f}")
    return share(counts, f"Median ratio: {', '.join(ratios)}")


FEW_METHODS = ("SparGE-SDA", "SVM-RFE", "Fisher score")
TIMED_METHODS = ("SparGE-LDA", "SVM-RFE", "Fisher score")

# --- sections -------------------------------------------------------------------------------------


def plot(
    experiment: Experiment, metric: str, sizes: Sequence[int], axis: str, folder: Path, name: str
) -> str:
    """Return the section of an experiment whose cells are curves over the number of features."""
    found = experiment.results()
    panels = {}
    for data in found.datasets():
        lines = {}
        for method in found.methods(data):
            curves = found.runs(metric, data, method).get("", {})
            lines[method] = (sizes, [curves[r] for r in sorted(curves)])
        panels[data] = lines
    return pages.curves(panels, ("features", axis), folder, name, f"{axis} of {experiment.name}")


def toy_section(folder: Path) -> str:
    """Return Fig. 2."""
    if not sparge.TOY.results().datasets():
        return ""
    picture = plot(
        sparge.TOY, "explained", sparge.TOY_SIZES, "explained variance", folder, "sparge-toy"
    )
    rows = [
        [
            method,
            pages.mean_error(runs(sparge.TOY, "explained", "toy", method, points=[4]).values(), 4),
            pages.mean_error(runs(sparge.TOY, "seconds", "toy", method).values(), 2),
        ]
        for method in sparge.TOY.results().methods("toy")
    ]
    table = pages.table(["method", "explained at 50", "processor seconds at 50"], rows)
    return f"""## Fig. 2: the toy
{picture}
{table}
The measure of eq. 18 is the sum of the variances of the chosen features. So taking the features of
largest variance has the best of it at every size, and no method can be above it. SparGE chooses
features that explain the components together, so it is below at less than 50 features.

{pages.repetitions(sparge.TOY)}"""


def clustering_section(folder: Path) -> str:
    """Return Fig. 4."""
    if not sparge.CLUSTERING.results().datasets():
        return ""
    picture = plot(
        sparge.CLUSTERING, "nmi", sparge.CLUSTER_SIZES, "NMI", folder, "sparge-clustering"
    )
    return f"## Fig. 4: clustering\n{picture}\n{pages.repetitions(sparge.CLUSTERING)}"


def face_section(folder: Path) -> str:
    """Return Figs. 1 and 6."""
    store = sparge.FACES.results()
    found = store.runs("pixels", "PIE", "SparGE-LPP").get("", {})
    if not found:
        return ""
    counts = np.zeros(32 * 32)
    for pixels in found.values():
        counts[pixels.astype(int)] += 1
    figure, ax = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
    picture = ax.imshow(counts.reshape(32, 32).T, cmap="magma_r")
    ax.set(xticks=[], yticks=[], title=f"persons that have the pixel, of {len(found)}")
    figure.colorbar(picture, ax=ax)
    about = (
        f"The {sparge.FACE_PIXELS} pixels of each person's pictures, on a face of 32 × 32 pixels"
    )
    rows = [
        [
            method,
            *(
                pages.mean_error(
                    runs(sparge.FACES, "explained", "PIE", method, points=[k]).values()
                )
                for k in range(len(sparge.FACE_SIZES))
            ),
        ]
        for method in FACE_METHODS
    ]
    head = ["method", *(f"{m} pixels" for m in sparge.FACE_SIZES)]
    return (
        "## Figs. 1 and 6: the faces of one person\nShare of the variance of the graph's first two "
        "eigenvectors that the pixels explain.\n\n"
        f"{pages.table(head, rows)}\n{pages.repetitions(sparge.FACES)} A repetition is a person "
        f"with 170 pictures.\n\n{pages.save(figure, folder, 'sparge-faces', about)}"
    )


def class_section(folder: Path) -> str:
    """Return Fig. 5."""
    parts = []
    for experiment, sizes, sort in (
        (sparge.CLASSES, sparge.CLASS_SIZES, "a fold"),
        (sparge.NEWS, sparge.NEWS_SIZES, "a tenth of the test documents"),
    ):
        found = experiment.results()
        if not found.datasets():
            continue
        rows = [
            [
                method,
                *(
                    pages.mean_error(runs(experiment, "accuracy", data, method).values())
                    for data in experiment.data
                ),
            ]
            for method in found.methods(experiment.data[0])
        ]
        parts += [
            plot(experiment, "accuracy", sizes, "accuracy", folder, experiment.name),
            pages.table(["mean over the sizes", *experiment.data], rows),
            f"{pages.repetitions(experiment)} A repetition is {sort}.\n",
        ]
    return "## Fig. 5: classification\n" + "\n".join(parts) if parts else ""


def time_section(folder: Path) -> str:
    """Return Table 6."""
    found = sparge.TIMES.results()
    rows = [
        [
            data,
            *(
                f"{pages.mean_error(runs(sparge.TIMES, 'seconds', data, method).values(), 2)} "
                f"({printed('sparge', data, method, 'seconds')[0]:g})"
                for method in TIMED_METHODS
            ),
        ]
        for data in found.datasets()
    ]
    if not rows:
        return ""
    table = pages.table(["corpus", *TIMED_METHODS], rows)
    return (
        f"## Table 6: time\nProcessor seconds, the paper's in brackets.\n\n{table}\n"
        f"{pages.repetitions(sparge.TIMES)}"
    )


def few_section(folder: Path) -> str:
    """Return Table 7."""
    rows = []
    for data in sparge.FEW.results().datasets():
        for labels in sparge.LABELS:
            for k, size in enumerate(sparge.FEW_SIZES):
                row = [data, labels, size]
                for method in FEW_METHODS:
                    ours = runs(sparge.FEW, "accuracy", data, method, f"labels={labels}", [k])
                    theirs = printed("sparge", data, method, f"labels={labels}")[k]
                    share_of_100 = pages.mean_error([100 * v for v in ours.values()], 1)
                    row.append(f"{share_of_100} ({theirs:.1f})")
                rows.append(row)
    if not rows:
        return ""
    table = pages.table(["data", "labels per class", "pixels", *FEW_METHODS], rows)
    return (
        f"## Table 7: few labels\nAccuracy in %, the paper's in brackets.\n\n{table}\n"
        f"{pages.repetitions(sparge.FEW)}"
    )


def by_faces(*others: str) -> Outcome:
    """Return whether SparGE's 20 pixels explain more of the embedding than those of others."""
    at = [sparge.FACE_SIZES.index(sparge.FACE_PIXELS)]

    def explained(data: str, method: str) -> dict[int, float]:
        return runs(sparge.FACES, "explained", data, method, points=at)

    return above_on(["PIE"], explained, "SparGE-LPP", others)


def face_share() -> Outcome:
    """Return whether 20 pixels explain nine tenths of the embedding in the mean of the persons."""
    at = [sparge.FACE_SIZES.index(sparge.FACE_PIXELS)]
    found = np.array([*runs(sparge.FACES, "explained", "PIE", "SparGE-LPP", points=at).values()])
    if not len(found):
        return Outcome(Verdict.NOT_RUN, "")
    verdict = Verdict.HOLDS if found.mean() >= 0.9 else Verdict.FAILS
    reached = f"{np.count_nonzero(found >= 0.9)} of {len(found)} persons reach it"
    return Outcome(verdict, f"PIE: {found.mean():.3f} in the mean, {reached}")


by_nmi = partial(against, sparge.CLUSTERING, "nmi")
by_accuracy = partial(against, sparge.CLASSES, "accuracy", "SparGE-LDA")
CHECKS = {
    "Fig. 1": (partial(by_faces, *FACE_METHODS[1:]),),
    "Fig. 2": (toy_choice, toy_time),
    "Fig. 4": (
        partial(by_nmi, "SparGE-LPP", ["Laplacian score"], *sparge.CLUSTERING.data),
        partial(by_nmi, "MCFS", ["Laplacian score"], *sparge.CLUSTERING.data),
        partial(by_nmi, "SparGE-LPP", ["MCFS"], "COIL20", "MNIST 4000", "USPS"),
        baseline,
    ),
    "Fig. 5": (
        partial(by_accuracy, ["Fisher score", "ReliefF", "mRMR"], *sparge.CLASSES.data),
        partial(by_accuracy, ["trace ratio"], *sparge.CLASSES.data),
        partial(by_accuracy, ["SVM-RFE"], *sparge.CLASSES.data),
        partial(against, sparge.NEWS, "accuracy", "SparGE-LDA", ["SVM-RFE"], *sparge.NEWS.data),
        partial(
            against, sparge.NEWS, "accuracy", "SparGE-LDA", ["Fisher score"], *sparge.NEWS.data
        ),
    ),
    "Table 6": (
        partial(slower, "SVM-RFE", "SparGE-LDA", FASTER, "news20"),
        partial(slower, "SparGE-LDA", "Fisher score", 1, *sparge.TIMES.data),
    ),
    "Table 7": (partial(few_against, "Fisher score"), partial(few_against, "SVM-RFE")),
    "Fig. 6": (face_share,),
}

PAPER = Paper(
    key="sparge",
    title="SparGE",
    reference='M. Chen, I. W. Tsang, M. Tan and T. J. Cham, "A unified feature selection framework '
    'for graph embedding on high dimensional data", IEEE TKDE, 2015.',
    repetitions=10,
    items=items("sparge", CHECKS),
    experiments=(
        sparge.TOY,
        sparge.FACES,
        sparge.CLUSTERING,
        sparge.CLASSES,
        sparge.NEWS,
        sparge.TIMES,
        sparge.FEW,
        CHOICE,
        CHOICE_NEWS,
        UNIT,
    ),
    sections=(
        toy_section,
        face_section,
        clustering_section,
        class_section,
        time_section,
        few_section,
        choice_section,
    ),
)
