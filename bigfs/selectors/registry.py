"""The methods by the name that the command line knows them by."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bigfs.selectors.jgsc import JGSC, RJGSC
from bigfs.selectors.jhlsr import JHLSR
from bigfs.selectors.laplacian_score import LaplacianScore
from bigfs.selectors.smr import SMR
from bigfs.selectors.sparge import SparGE
from bigfs.selectors.sparge_cv import SparGECV
from bigfs.selectors.srlsr import RLSR, SRLSR
from bigfs.selectors.univariate import ANOVA, Chi2, Fisher


class Method(NamedTuple):
    """What the command line knows of a method: how to make it, what it is, and where its scores of
    the columns are.
    """

    make: Callable[..., Any]
    about: str
    scores: str = "scores_"
    graph: bool = False  # works on the kNN graph, and takes it as its parameter `graph`
    # the kinds of target that it learns from; none: it never looks at the target
    targets: tuple[str, ...] = ("class",)
    # how often it goes over all pairs of samples, roughly; 0: its work grows with the stored values
    pairs: int = 0


JOINT: dict[str, Any] = {"pairs": 10}  # solves for graph, codes or labels and features in turn


ON_GRAPH: dict[str, Any] = {"graph": True, "pairs": 1}


UNSUPERVISED: dict[str, Any] = {"targets": ()}


METHODS: dict[str, Method] = {
    "sparge-lda": Method(partial(SparGE, embedding="lda"), "sparse graph embedding on the classes"),
    "sparge-lda-cv": Method(
        partial(SparGECV, embedding="lda"), "sparge-lda with its penalty chosen by cross-validation"
    ),
    "sparge-sda": Method(
        partial(SparGE, embedding="sda"),
        "sparse graph embedding on the classes and the kNN graph, for few labels",
        **ON_GRAPH,
    ),
    "sparge-cca": Method(
        partial(SparGE, embedding="cca"),
        "sparse graph embedding on real or multi-label targets",
        targets=("class", "multilabel", "real"),
    ),
    "sparge-hsl": Method(
        partial(SparGE, embedding="hsl"),
        "sparse graph embedding on the hypergraph of the labels",
        targets=("class", "multilabel"),
    ),
    "sparge-lpp": Method(
        partial(SparGE, embedding="lpp"),
        "sparse graph embedding on the kNN graph, unsupervised",
        **ON_GRAPH,
        **UNSUPERVISED,
    ),
    "sparge-pca": Method(
        partial(SparGE, embedding="pca"),
        "sparse graph embedding on the variance, unsupervised",
        **UNSUPERVISED,
    ),
    "srlsr": Method(SRLSR, "semi-supervised rescaled least squares, p < 1", **JOINT),
    "rlsr": Method(RLSR, "semi-supervised rescaled least squares, p = 1, convex", **JOINT),
    "jhlsr": Method(JHLSR, "hypergraph learning and sparse regression, jointly", **JOINT),
    "jgsc": Method(
        JGSC,
        "joint graph sparse coding; columns ranked by the kept atoms",
        scores="column_importance_",
        **JOINT,
        **UNSUPERVISED,
    ),
    "rjgsc": Method(
        RJGSC,
        "robust joint graph sparse coding; columns ranked by the kept atoms",
        scores="column_importance_",
        **JOINT,
        **UNSUPERVISED,
    ),
    "smr": Method(SMR, "sparse matrix regression on M × N samples; k = 1 is GBR", **JOINT),
    "laplacian": Method(
        LaplacianScore, "Laplacian score on the kNN graph, unsupervised", pairs=1, targets=()
    ),
    "fisher": Method(Fisher, "Fisher score, one feature at a time"),
    "anova": Method(ANOVA, "ANOVA F, one feature at a time; ranks as fisher does"),
    "chi2": Method(Chi2, "χ² of non-negative features, one feature at a time"),
}
