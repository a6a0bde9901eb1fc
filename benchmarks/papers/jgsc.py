"""JGSC and RJGSC [Zhu, Li, Zhang, Ju, Wu, IEEE TNNLS 2016]."""

from __future__ import annotations

from benchmarks.papers.claims import Item
from benchmarks.papers.pages import Paper

LARGE = "the two large text corpora with their splits, News and Reuters"

PAPER = Paper(
    key="jgsc",
    title="JGSC and RJGSC",
    reference='X. Zhu, X. Li, S. Zhang, C. Ju and X. Wu, "Robust joint graph sparse coding for '
    'unsupervised spectral feature selection", IEEE TNNLS, 2016.',
    items=(
        Item("Fig. 1", "a drawing of four methods", no_claim=True),
        Item("Table I", "the objectives of the methods", no_claim=True),
        Item("Table II", "the data", no_claim=True),
        Item("Fig. 2", "accuracy on Toy1 to Toy3", planned=True),
        Item("Fig. 3", "convergence of JGSC", planned=True, missing="SMK-CAN-187"),
        Item("Fig. 4", "convergence of RJGSC", planned=True, missing="SMK-CAN-187"),
        Item("Fig. 5", "sensitivity of JGSC", planned=True, missing="SMK-CAN-187"),
        Item("Fig. 6", "sensitivity of RJGSC", planned=True, missing="SMK-CAN-187"),
        Item("Fig. 7", "accuracy beside the other methods", planned=True, missing="SMK-CAN-187"),
        Item("Fig. 8", "convergence on large data", missing=LARGE),
        Item("Fig. 9", "sensitivity on large data", missing=LARGE),
        Item("Fig. 10", "accuracy on large data", missing=LARGE),
    ),
)
