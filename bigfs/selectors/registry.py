"""The methods by their names on the command line: the one list of the public selectors.

A method is imported when it is made, so that a command finds its earlier runs at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from bigfs.plugins import plugins


class Method(NamedTuple):
    """The entry of a method."""

    estimator: str  # its file in `package` and its class
    about: str  # its description
    scores: str = "scores_"  # the attribute that holds the score of each feature
    graph: bool = False  # whether it takes the kNN graph as the parameter `graph`
    targets: tuple[str, ...] = ("class",)  # kinds of target it learns from; empty: unsupervised
    # rough number of passes over all pairs of samples; 0: the work grows with the stored values
    pairs: int = 0
    parameters: Mapping[str, Any] = MappingProxyType({})  # that the method fixes
    package: str = "bigfs.selectors"  # another one for the method of a plug-in
    groups: tuple[str, ...] = ()  # keys of `GROUPS`, where the targets do not say them
    decides: bool = False  # whether its parameter `scoring` takes the metric of a run

    def make(self, **parameters: Any) -> Any:
        """Return the estimator with these parameters."""
        module, name = self.estimator.split(":")
        return load(module, name, self.package)(**{**self.parameters, **parameters})


def load(module: str, name: str, package: str = "bigfs.selectors") -> Any:
    return getattr(import_module(f"{package}.{module}"), name)


# the method of a run that names none, by the kind of target, and without one
BY_TARGET = {
    "class": "sparge-lda",
    "multilabel": "sparge-cca",
    "real": "sparge-cca",
    "multioutput": "sparge-cca",
}
WITHOUT_TARGET = "sparge-pca"

# what a user has, in the order of `bigfs methods`
GROUPS = {
    "class": "every sample has a class",
    "few": "few samples have a class",
    "none": "no sample has a class",
    "multilabel": "several labels per sample",
    "real": "real-valued targets",
    "multioutput": "several real targets per sample",
}


def groups_of(method: Method) -> list[str]:
    """Return the keys of `GROUPS` that a method is for, by its targets and its estimator."""
    if method.groups:
        return list(method.groups)
    if not method.targets:
        return ["none"]
    few = method.make()._semi_supervised
    return ["few" if few and target == "class" else target for target in method.targets]


JOINT: dict[str, Any] = {"pairs": 10}  # solves for the graph, codes or labels in turn
ON_GRAPH: dict[str, Any] = {"graph": True, "pairs": 1}
UNSUPERVISED: dict[str, Any] = {"targets": ()}
GRAPH_UNSUPERVISED, JOINT_UNSUPERVISED = ON_GRAPH | UNSUPERVISED, JOINT | UNSUPERVISED
ATOMS: dict[str, Any] = JOINT_UNSUPERVISED | {"scores": "column_importance_"}


METHODS: dict[str, Method] = {
    "auto": Method(
        "auto:AutoSelector",
        "the method that suits the target, by folds of the training samples where several do",
        targets=("class", "multilabel", "real", "multioutput"),
        groups=tuple(GROUPS),
        decides=True,
    ),
    "sparge-lda": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of the classes",
        parameters={"embedding": "lda"},
    ),
    "sparge-lda-cv": Method(
        "sparge.cross_validation:SparGECV",
        "sparge-lda, loss and ranking chosen by cross-validation",
        parameters={"embedding": "lda"},
        decides=True,
    ),
    "sparge-sda": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of the classes and the kNN graph, for few labels",
        parameters={"embedding": "sda"},
        **ON_GRAPH,
    ),
    "sparge-cca": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of real-valued or multi-label targets",
        parameters={"embedding": "cca"},
        targets=("class", "multilabel", "real", "multioutput"),
    ),
    "sparge-hsl": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of the label hypergraph",
        parameters={"embedding": "hsl"},
        targets=("class", "multilabel"),
    ),
    "sparge-lpp": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of the kNN graph, unsupervised",
        parameters={"embedding": "lpp"},
        **GRAPH_UNSUPERVISED,
    ),
    "sparge-pca": Method(
        "sparge.sparge:SparGE",
        "sparse graph embedding of the variance, unsupervised",
        parameters={"embedding": "pca"},
        **UNSUPERVISED,
    ),
    "srlsr": Method(
        "row_sparse.srlsr:SRLSR", "semi-supervised rescaled least squares, p < 1", **JOINT
    ),
    "rlsr": Method(
        "row_sparse.srlsr:RLSR", "semi-supervised rescaled least squares, p = 1, convex", **JOINT
    ),
    "jhlsr": Method(
        "row_sparse.jhlsr:JHLSR",
        "joint hypergraph learning and sparse least squares regression",
        **JOINT,
    ),
    "jgsc": Method(
        "atoms.jgsc:JGSC",
        "joint graph sparse coding, features ranked by the selected atoms, unsupervised",
        **ATOMS,
    ),
    "rjgsc": Method(
        "atoms.jgsc:RJGSC",
        "robust joint graph sparse coding, features ranked by the selected atoms, unsupervised",
        **ATOMS,
    ),
    "smr": Method(
        "images.smr:SMR", "sparse matrix regression of M × N samples (GBR if k = 1)", **JOINT
    ),
    "l2-svm": Method("svm.l2svm:L2SVM", "weights of a linear SVM with the squared hinge loss"),
    "l1-svm": Method(
        "penalty_path.sparse_regression:L1SVM",
        "weights of a sparse linear SVM with the squared hinge loss",
        targets=("class", "multilabel"),
    ),
    "multitask-lasso": Method(
        "penalty_path.sparse_regression:MultiTaskLasso",
        "weights of a row-sparse regression on the classes or several targets",
        targets=("class", "multilabel", "real", "multioutput"),
    ),
    "svm-rfe": Method(
        "svm.elimination:SVMRFE", "recursive elimination of the least weights of a linear SVM"
    ),
    "mcfs": Method(
        "penalty_path.sparse_regression:MCFS",
        "a lasso per eigenvector of the kNN graph, unsupervised",
        **GRAPH_UNSUPERVISED,
    ),
    "mrsf": Method(
        "penalty_path.sparse_regression:MRSF",
        "row-sparse regression on the eigenvectors of the kNN graph, unsupervised",
        **GRAPH_UNSUPERVISED,
    ),
    "rfs": Method(
        "row_sparse.rfs:RFS",
        "row-sparse regression on the classes that few bad samples do not change",
        **JOINT,
    ),
    "dlsr": Method(
        "penalty_path.sparse_regression:DLSR",
        "row-sparse regression on class targets that are dragged apart",
    ),
    "spfs": Method(
        "penalty_path.sparse_regression:SPFS",
        "row-sparse regression that preserves the similarity of the classes",
    ),
    "jelsr": Method(
        "row_sparse.joint_embedding:JELSR",
        "row-sparse regression on an embedding of the kNN graph learned with it, unsupervised",
        **JOINT_UNSUPERVISED,
        graph=True,
    ),
    "ndfs": Method(
        "row_sparse.joint_embedding:NDFS",
        "row-sparse regression on clusters of the kNN graph learned with it, unsupervised",
        **JOINT_UNSUPERVISED,
        graph=True,
    ),
    "udfs": Method(
        "row_sparse.udfs:UDFS",
        "subspace that discriminates neighborhoods, for d below n, unsupervised",
        **JOINT_UNSUPERVISED,
        graph=True,
    ),
    "glspfs": Method(
        "row_sparse.glspfs:GLSPFS",
        "row-sparse regression that preserves similarity, smooth over the kNN graph, unsupervised",
        **JOINT_UNSUPERVISED,
    ),
    "jfs": Method(
        "row_sparse.rfs:JFS",
        "row-sparse regression of few features on themselves, unsupervised",
        **JOINT_UNSUPERVISED,
    ),
    "gsc": Method(
        "atoms.jgsc:GSC",
        "graph sparse coding, features ranked by the selected atoms, unsupervised",
        **ATOMS,
    ),
    "llfs": Method(
        "scores.llfs:LLFS",
        "weights for which samples are nearer to their own class than to the others",
    ),
    "laplacian": Method(
        "scores.graph:LaplacianScore",
        "Laplacian score on the kNN graph, unsupervised",
        **GRAPH_UNSUPERVISED,
    ),
    "fisher": Method("scores.classes:Fisher", "Fisher score, one feature at a time"),
    "anova": Method(
        "scores.classes:ANOVA",
        "ANOVA F score, one feature at a time (same ranking as fisher)",
        targets=("class", "multilabel"),
    ),
    "chi2": Method(
        "scores.classes:Chi2",
        "χ² score of non-negative features, one feature at a time",
        targets=("class", "multilabel"),
    ),
    "mutual-info": Method(
        "scores.bins:MutualInformation",
        "mutual information with the class (information gain for text)",
        targets=("class", "multilabel"),
    ),
    "gini": Method(
        "scores.bins:Gini", "decrease of Gini impurity at the best threshold of each feature"
    ),
    "ranksum": Method(
        "scores.rank_sum:RankSum",
        "rank-sum test and AUC of each class against the rest, one feature at a time",
    ),
    "t-score": Method(
        "scores.classes:TScore", "Welch's t statistic of two classes, one feature at a time"
    ),
    "f-regression": Method(
        "scores.targets:FRegression",
        "F statistic of the regression of a real target on one feature",
        targets=("real",),
    ),
    "variance": Method(
        "scores.targets:Variance", "variance of each feature, unsupervised", **UNSUPERVISED
    ),
    "hvg": Method(
        "scores.highly_variable:HighlyVariable",
        "highly variable genes, as scanpy finds them, unsupervised",
        **UNSUPERVISED,
    ),
    "mrmr": Method(
        "greedy.criteria:MRMR", "minimum redundancy, maximum relevance, by mutual information"
    ),
    "mrmr-f": Method(
        "greedy.criteria:MRMR",
        "minimum redundancy, maximum relevance, by F statistics and correlations",
        parameters={"relevance": "f"},
        targets=("class", "real"),
    ),
    "rrpc": Method(
        "greedy.criteria:RRPC", "relevance and redundancy by correlations, for few labels"
    ),
    "jmi": Method(
        "greedy.criteria:JMI", "joint mutual information with each feature chosen before"
    ),
    "relieff": Method(
        "scores.relieff:ReliefF", "differences between near samples of other classes", pairs=1
    ),
    "lsdf": Method(
        "scores.few_labels:LSDF",
        "spread between classes over that within and on the kNN graph, few labels",
        **ON_GRAPH,
    ),
    "sselect": Method(
        "scores.few_labels:SSelect",
        "smoothness on the kNN graph and agreement with few labels",
        **ON_GRAPH,
    ),
    "spec": Method(
        "scores.graph:SPEC", "spectrum of the kNN graph, unsupervised", **GRAPH_UNSUPERVISED
    ),
    "trace-ratio": Method(
        "scores.trace_ratio:TraceRatio",
        "set of largest spread between over within the classes",
        parameters={"form": "fisher"},
    ),
    "trace-ratio-laplacian": Method(
        "scores.trace_ratio:TraceRatio",
        "set of largest variance over the differences of neighbors, unsupervised",
        parameters={"form": "laplacian"},
        **GRAPH_UNSUPERVISED,
    ),
    "trcfs": Method(
        "scores.trace_ratio:TRCFS",
        "share of the scatter that labels propagated on the kNN graph explain",
        **ON_GRAPH,
    ),
    "cmim": Method(
        "greedy.criteria:CMIM",
        "least information that a feature adds to one chosen before",
    ),
}

# the public names, and the file of each
MODULES = {name: module for module, name in (m.estimator.split(":") for m in METHODS.values())}

METHODS |= plugins("bigfs.methods", METHODS, lambda loaded: isinstance(loaded, Method))

# other packages' names of methods
SYNONYMS = {
    "f-classif": "anova",
    "highly-variable-genes": "hvg",
    "information-gain": "mutual-info",
    "relief-f": "relieff",
    "rsr": "jfs",
    "t-test": "t-score",
    "wilcoxon": "ranksum",
}


# some methods for each kind of target, for the message of one that does not take it
ALTERNATIVES = {
    "class": ("sparge-lda", "anova"),
    "multilabel": ("sparge-cca", "anova", "multitask-lasso"),
    "real": ("sparge-cca", "f-regression", "multitask-lasso"),
    "multioutput": ("sparge-cca", "multitask-lasso"),
}


def who_takes(kind: str) -> str:
    """Return the line to type for a kind of target of `ALTERNATIVES`, in Python."""
    calls = []
    for name in ALTERNATIVES[kind]:
        fixed = ", ".join(f"{key}={value!r}" for key, value in METHODS[name].parameters.items())
        calls.append(f"{METHODS[name].estimator.partition(':')[2]}({fixed})")
    what = {"class": "a class", "multilabel": "several labels", "real": "a real target"}
    return f"for {what.get(kind, 'several real targets')} per sample use {' or '.join(calls)}"


def decided_by(method: str, parameters: Mapping[str, Any], metric: str | None) -> dict[str, Any]:
    """Return the parameters of a method, with the metric of a run where the method decides by one.

    A score that is given stays, and given penalties are chosen by their loss.
    """
    is_asked = metric is None or parameters.get("scoring") or parameters.get("gammas")
    if is_asked or method not in METHODS or not METHODS[method].decides:
        return dict(parameters)
    return {**parameters, "scoring": metric}


def canonical_name(method: str) -> str:
    """Return the name of a method by which `METHODS` lists it. The name of a class is a synonym."""
    if method in METHODS:
        return method
    classes: dict[str, str] = {}
    for known, entry in METHODS.items():
        classes.setdefault(entry.estimator.partition(":")[2].lower(), known)
    name = method.lower().replace("_", "-")
    return name if name in METHODS else SYNONYMS.get(name) or classes.get(name, method)
