"""SRLSR [Chen, Yuan, Nie, Ming, IEEE TKDE 2018]."""

from __future__ import annotations

from benchmarks.papers.claims import Item
from benchmarks.papers.pages import Paper

PAPER = Paper(
    key="srlsr",
    title="SRLSR",
    reference='X. Chen, G. Yuan, F. Nie and Z. Ming, "Semi-supervised feature selection via sparse '
    'rescaled linear square regression", IEEE TKDE, 2018.',
    items=(
        Item("Fig. 1", "a drawing of labeled and unlabeled data", no_claim=True),
        Item("Table 1", "the data", no_claim=True),
        Item("Fig. 2", "accuracy against the share of labels", planned=True),
        Item("Table 2", "mean accuracy of nine methods", planned=True),
        Item("Fig. 3", "accuracy against the number of features", planned=True),
        Item("Fig. 4", "θ against p and γ", planned=True),
        Item("Fig. 5", "time of eight methods", planned=True),
        Item("Fig. 6", "accuracy against γ and the number of features", planned=True),
        Item("Fig. 7", "accuracy against p and the number of features", planned=True),
        Item("Fig. 8", "convergence", planned=True),
    ),
)
