"""The page of JHLSR."""

from __future__ import annotations

from benchmarks.papers import jhlsr
from benchmarks.papers.claims import Item
from benchmarks.papers.pages import Paper

PAPER = Paper(
    key="jhlsr",
    title="JHLSR",
    reference='Z. Zhang, L. Bai, Y. Liang and E. Hancock, "Joint hypergraph learning and sparse '
    'regression for feature selection", Pattern Recognition, 2017.',
    experiments=(jhlsr.WEIGHTS, jhlsr.SEMI, jhlsr.UNSUPERVISED, jhlsr.SUPERVISED, jhlsr.NUMBER),
    items=(
        Item("Fig. 1", "faces under varying light", no_claim=True),
        Item("Fig. 2", "a drawing of a hypergraph", no_claim=True),
        Item("Fig. 3", "a flow chart", no_claim=True),
        Item("Table 1", "the notation", no_claim=True),
        Item("Table 2", "the data", no_claim=True),
        Item("Fig. 4", "supervised: accuracy against the number of features", planned=True),
        Item("Table 3", "supervised: mean accuracy of seven methods", planned=True),
        Item("Fig. 5", "semi-supervised: accuracy against the number of features", planned=True),
        Item("Table 4", "semi-supervised: mean accuracy of three methods", planned=True),
        Item("Fig. 6", "unsupervised: accuracy against the number of features", planned=True),
        Item("Table 5", "unsupervised: mean accuracy of five methods", planned=True),
        Item("Fig. 7", "convergence", planned=True),
        Item("Fig. 8", "JHLSR beside HYPER and GRAPH", planned=True),
        Item("Fig. 9", "accuracy against the number of penalties", planned=True),
        Item("Fig. 10", "the learned weights of the hyperedges", planned=True),
        Item("Fig. 11", "the number of hyperedges that keep a weight", planned=True),
    ),
)
