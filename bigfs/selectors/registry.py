"""The methods by their names on the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bigfs.selectors.atoms.gsc import GSC
from bigfs.selectors.atoms.jgsc import JGSC
from bigfs.selectors.atoms.rjgsc import RJGSC
from bigfs.selectors.greedy.joint_information import CMIM, JMI
from bigfs.selectors.greedy.mrmr import MRMR, RRPC
from bigfs.selectors.images.smr import SMR
from bigfs.selectors.penalty_path.lasso import L1SVM, MultiTaskLasso
from bigfs.selectors.penalty_path.spectral_regression import MCFS, MRSF
from bigfs.selectors.penalty_path.targets import DLSR, SPFS
from bigfs.selectors.row_sparse.glspfs import GLSPFS
from bigfs.selectors.row_sparse.jelsr import JELSR
from bigfs.selectors.row_sparse.jfs import JFS
from bigfs.selectors.row_sparse.jhlsr import JHLSR
from bigfs.selectors.row_sparse.ndfs import NDFS
from bigfs.selectors.row_sparse.rfs import RFS
from bigfs.selectors.row_sparse.rlsr import RLSR
from bigfs.selectors.row_sparse.srlsr import SRLSR
from bigfs.selectors.row_sparse.udfs import UDFS
from bigfs.selectors.scores.bins import Gini, MutualInformation
from bigfs.selectors.scores.classes import ANOVA, Chi2, Fisher
from bigfs.selectors.scores.few_labels import LSDF, SSelect
from bigfs.selectors.scores.laplacian_score import LaplacianScore
from bigfs.selectors.scores.llfs import LLFS
from bigfs.selectors.scores.relieff import ReliefF
from bigfs.selectors.scores.spec import SPEC
from bigfs.selectors.scores.targets import FRegression, TScore, Variance
from bigfs.selectors.scores.trace_ratio import TraceRatio
from bigfs.selectors.scores.trcfs import TRCFS
from bigfs.selectors.sparge.cross_validation import SparGECV
from bigfs.selectors.sparge.sparge import SparGE
from bigfs.selectors.svm.svm import L2SVM, SVMRFE


class Method(NamedTuple):
    """The entry of a method."""

    make: Callable[..., Any]  # its constructor
    about: str  # its description
    scores: str = "scores_"  # the attribute that holds the score of each feature
    graph: bool = False  # whether it takes the kNN graph as the parameter `graph`
    targets: tuple[str, ...] = ("class",)  # kinds of target it learns from; empty: unsupervised
    # rough number of passes over all pairs of samples; 0: the work grows with the stored values
    pairs: int = 0


# what a user has, in the order of `bigfs methods`
GROUPS = {
    "class": "every sample has a class",
    "few": "few samples have a class",
    "none": "no sample has a class",
    "multilabel": "several labels per sample",
    "real": "real-valued targets",
}


def groups_of(method: Method) -> list[str]:
    """Return the keys of `GROUPS` that a method is for, by its targets and its estimator."""
    if not method.targets:
        return ["none"]
    few = method.make()._semi_supervised
    return ["few" if few and target == "class" else target for target in method.targets]


JOINT: dict[str, Any] = {"pairs": 10}  # solves for the graph, codes or labels in turn
ON_GRAPH: dict[str, Any] = {"graph": True, "pairs": 1}
UNSUPERVISED: dict[str, Any] = {"targets": ()}


METHODS: dict[str, Method] = {
    "sparge-lda": Method(partial(SparGE, embedding="lda"), "sparse graph embedding of the classes"),
    "sparge-lda-cv": Method(
        partial(SparGECV, embedding="lda"), "sparge-lda, penalty chosen by cross-validation"
    ),
    "sparge-sda": Method(
        partial(SparGE, embedding="sda"),
        "sparse graph embedding of the classes and the kNN graph, for few labels",
        **ON_GRAPH,
    ),
    "sparge-cca": Method(
        partial(SparGE, embedding="cca"),
        "sparse graph embedding of real-valued or multi-label targets",
        targets=("class", "multilabel", "real"),
    ),
    "sparge-hsl": Method(
        partial(SparGE, embedding="hsl"),
        "sparse graph embedding of the label hypergraph",
        targets=("class", "multilabel"),
    ),
    "sparge-lpp": Method(
        partial(SparGE, embedding="lpp"),
        "sparse graph embedding of the kNN graph, unsupervised",
        **ON_GRAPH,
        **UNSUPERVISED,
    ),
    "sparge-pca": Method(
        partial(SparGE, embedding="pca"),
        "sparse graph embedding of the variance, unsupervised",
        **UNSUPERVISED,
    ),
    "srlsr": Method(SRLSR, "semi-supervised rescaled least squares, p < 1", **JOINT),
    "rlsr": Method(RLSR, "semi-supervised rescaled least squares, p = 1, convex", **JOINT),
    "jhlsr": Method(
        JHLSR, "joint hypergraph learning and sparse least squares regression", **JOINT
    ),
    "jgsc": Method(
        JGSC,
        "joint graph sparse coding, features ranked by the selected atoms, unsupervised",
        scores="column_importance_",
        **JOINT,
        **UNSUPERVISED,
    ),
    "rjgsc": Method(
        RJGSC,
        "robust joint graph sparse coding, features ranked by the selected atoms, unsupervised",
        scores="column_importance_",
        **JOINT,
        **UNSUPERVISED,
    ),
    "smr": Method(SMR, "sparse matrix regression of M × N samples (GBR if k = 1)", **JOINT),
    "l2-svm": Method(L2SVM, "weights of a linear SVM with the squared hinge loss"),
    "l1-svm": Method(L1SVM, "weights of a sparse linear SVM with the squared hinge loss"),
    "multitask-lasso": Method(MultiTaskLasso, "weights of a row-sparse regression on the classes"),
    "svm-rfe": Method(SVMRFE, "recursive elimination of the least weights of a linear SVM"),
    "mcfs": Method(
        MCFS, "a lasso per eigenvector of the kNN graph, unsupervised", **ON_GRAPH, **UNSUPERVISED
    ),
    "mrsf": Method(
        MRSF,
        "row-sparse regression on the eigenvectors of the kNN graph, unsupervised",
        **ON_GRAPH,
        **UNSUPERVISED,
    ),
    "rfs": Method(
        RFS, "row-sparse regression on the classes that few bad samples do not change", **JOINT
    ),
    "dlsr": Method(DLSR, "row-sparse regression on class targets that are dragged apart"),
    "spfs": Method(SPFS, "row-sparse regression that preserves the similarity of the classes"),
    "jelsr": Method(
        JELSR,
        "row-sparse regression on an embedding of the kNN graph learned with it, unsupervised",
        **(JOINT | {"graph": True}),
        **UNSUPERVISED,
    ),
    "ndfs": Method(
        NDFS,
        "row-sparse regression on clusters of the kNN graph learned with it, unsupervised",
        **(JOINT | {"graph": True}),
        **UNSUPERVISED,
    ),
    "udfs": Method(
        UDFS,
        "subspace that discriminates neighborhoods, for d below n, unsupervised",
        **(JOINT | {"graph": True}),
        **UNSUPERVISED,
    ),
    "glspfs": Method(
        GLSPFS,
        "row-sparse regression that preserves similarity, smooth over the kNN graph, unsupervised",
        **JOINT,
        **UNSUPERVISED,
    ),
    "jfs": Method(
        JFS,
        "row-sparse regression of few features on themselves, unsupervised",
        **JOINT,
        **UNSUPERVISED,
    ),
    "gsc": Method(
        GSC,
        "graph sparse coding, features ranked by the selected atoms, unsupervised",
        scores="column_importance_",
        **JOINT,
        **UNSUPERVISED,
    ),
    "llfs": Method(
        LLFS, "weights for which samples are nearer to their own class than to the others"
    ),
    "laplacian": Method(
        LaplacianScore,
        "Laplacian score on the kNN graph, unsupervised",
        **ON_GRAPH,
        **UNSUPERVISED,
    ),
    "fisher": Method(Fisher, "Fisher score, one feature at a time"),
    "anova": Method(
        ANOVA,
        "ANOVA F score, one feature at a time (same ranking as fisher)",
        targets=("class", "multilabel"),
    ),
    "chi2": Method(Chi2, "χ² score of non-negative features, one feature at a time"),
    "mutual-info": Method(
        MutualInformation, "mutual information with the class (information gain for text)"
    ),
    "gini": Method(Gini, "decrease of Gini impurity at the best threshold of each feature"),
    "t-score": Method(TScore, "Welch's t statistic of two classes, one feature at a time"),
    "f-regression": Method(
        FRegression,
        "F statistic of the regression of a real target on one feature",
        targets=("real",),
    ),
    "variance": Method(Variance, "variance of each feature, unsupervised", **UNSUPERVISED),
    "mrmr": Method(MRMR, "minimum redundancy, maximum relevance, by mutual information"),
    "mrmr-f": Method(
        partial(MRMR, relevance="f"),
        "minimum redundancy, maximum relevance, by F statistics and correlations",
        targets=("class", "real"),
    ),
    "rrpc": Method(RRPC, "relevance and redundancy by correlations, for few labels"),
    "jmi": Method(JMI, "joint mutual information with each feature chosen before"),
    "relieff": Method(ReliefF, "differences between near samples of other classes", pairs=1),
    "lsdf": Method(
        LSDF, "spread between classes over that within and on the kNN graph, few labels", **ON_GRAPH
    ),
    "sselect": Method(
        SSelect, "smoothness on the kNN graph and agreement with few labels", **ON_GRAPH
    ),
    "spec": Method(SPEC, "spectrum of the kNN graph, unsupervised", **ON_GRAPH, **UNSUPERVISED),
    "trace-ratio": Method(
        partial(TraceRatio, form="fisher"), "set of largest spread between over within the classes"
    ),
    "trace-ratio-laplacian": Method(
        partial(TraceRatio, form="laplacian"),
        "set of largest variance over the differences of neighbors, unsupervised",
        **ON_GRAPH,
        **UNSUPERVISED,
    ),
    "trcfs": Method(
        TRCFS, "share of the scatter that labels propagated on the kNN graph explain", **ON_GRAPH
    ),
    "cmim": Method(CMIM, "least information that a feature adds to one chosen before"),
}
