"""SparGE [Chen, Tsang, Tan, Cham, IEEE TKDE 2015]."""

from __future__ import annotations

from benchmarks.papers.claims import Item
from benchmarks.papers.pages import Paper

PAPER = Paper(
    key="sparge",
    title="SparGE",
    reference='M. Chen, I. W. Tsang, M. Tan and T. J. Cham, "A unified feature selection framework '
    'for graph embedding on high dimensional data", IEEE TKDE, 2015.',
    items=(
        Item("Table 1", "the embeddings and their matrices S", no_claim=True),
        Item("Table 2", "the complexity of each step", no_claim=True),
        Item("Table 3", "the data of the experiments on PCA", no_claim=True),
        Item("Table 4", "the data of the experiments on clustering", no_claim=True),
        Item("Table 5", "the data of the experiments on classification", no_claim=True),
        Item("Fig. 1", "the pixels that matter in the faces of one person", missing="CMU-PIE"),
        Item("Fig. 2", "PCA: explained variance and time on the toy data", planned=True),
        Item("Fig. 3", "PCA: explained variance and time", missing="Ramaswamy's data"),
        Item("Fig. 4", "LPP: clustering", planned=True, missing="MNIST and USPS"),
        Item("Fig. 5", "LDA: classification", planned=True, missing="GLI-85"),
        Item("Table 6", "time beside SVM-RFE and the Fisher score", planned=True),
        Item("Table 7", "SDA: classification with few labels", planned=True),
        Item("Fig. 6", "LPP: embedding of faces by 20 pixels", missing="CMU-PIE"),
    ),
)
