"""The page of SMR."""

from __future__ import annotations

from benchmarks.papers import smr
from benchmarks.papers.claims import Item
from benchmarks.papers.pages import Paper

SCENES = "the photographs of OT and LSP with their SIFT features"

PAPER = Paper(
    key="smr",
    title="SMR",
    reference='C. Hou, Y. Jiao, F. Nie, T. Luo and Z.-H. Zhou, "2D feature selection by sparse '
    'matrix regression", IEEE TIP, 2017.',
    experiments=(smr.EYES_TWO, smr.ACCURACY, smr.GRID),
    items=(
        Item("Fig. 1", "faces with covered eyes", no_claim=True),
        Item("Fig. 2", "a drawing of the method", no_claim=True),
        Item("Table I", "the data", no_claim=True),
        Item("Fig. 3", "the chosen pixels of faces with covered eyes", planned=True),
        Item("Fig. 4", "accuracy against the number of pixels", planned=True),
        Item("Table II", "redundancy of the chosen pixels", planned=True),
        Item("Fig. 5", "convergence", planned=True),
        Item("Fig. 6", "accuracy against α and k", planned=True),
        Item("Table III", "time of eight methods", planned=True),
        Item("Fig. 7", "examples of the scenes", no_claim=True),
        Item("Fig. 8", "accuracy on scenes", missing=SCENES),
        Item("Fig. 9", "mean average precision on scenes", missing=SCENES),
    ),
)
