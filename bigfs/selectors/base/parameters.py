"""The parameters and fitted attributes that selectors share: their text, and the values they take.

A line `%(name)s` in the docstring of a class, or in a fragment, stands for `FRAGMENTS[name]`. A
parameter of which the docstring says nothing has the fragment of its name, and so have the chosen
features. A header that ends with `default=` gets the default of the class. A parameter without
constraints of its own takes the ones of its name in `CONSTRAINTS`, or of its annotation. A default
is always allowed.
"""

from __future__ import annotations

import ast
import inspect
import re
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from bigfs.graph.edges import Neighbors
from bigfs.linalg.ridge.plan import SOLVERS

POSITIVE: list[Any] = [Interval(Real, 0, None, closed="neither")]
NOT_NEGATIVE: list[Any] = [Interval(Real, 0, None, closed="left")]
SHARE: list[Any] = [Interval(Real, 0, 1, closed="neither")]
COUNT: list[Any] = [Interval(Integral, 1, None, closed="left")]
SEED: list[Any] = [Interval(Integral, 0, None, closed="left")]

Allowed = dict[str, list[Any]]  # what scikit-learn's `_parameter_constraints` are

CONSTRAINTS: Allowed = {
    "n_features_to_select": [*COUNT, Interval(Real, 0, 1, closed="right")],
    "keep": ["array-like"],
    "forbid": ["array-like"],
    "n_neighbors": COUNT,
    "metric": [StrOptions({"cosine", "euclidean"})],
    "graph": [HasMethods("tocsr"), Neighbors],
    "weights": [StrOptions({"binary", "cosine", "heat"})],
    "target": [StrOptions({"auto", "classes", "real"})],
    "tol": NOT_NEGATIVE,
    "n_bins": [*COUNT, StrOptions({"auto"})],
    "n_components": COUNT,
    "C": POSITIVE,
    "gamma": POSITIVE,
    "mu": POSITIVE,
    "beta": POSITIVE,
    "sigma": POSITIVE,
    "reg": POSITIVE,
    "n_anchors": COUNT,
    "lam": POSITIVE,
    "random_state": SEED,
    "max_iter": COUNT,
    "solver": [StrOptions({"auto", *SOLVERS})],
    "solver_tol": SHARE,
    "solver_max_iter": COUNT,
}

FRAGMENTS = {
    "keep": """\
keep : array-like of int or str, default=
    Features that must be chosen, as indices or names.
""",
    "n_features_to_select": """\
n_features_to_select : int, float or None, default=
    Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
    half of them. A number above the number of features keeps all, with a warning.
""",
    "forbid": """\
forbid : array-like of int or str, default=
    Features that must not be chosen, as indices or names.
""",
    "mode": """\
mode : {"k_best", "percentile", "fpr", "fdr", "fwe"}, default=
    How features are chosen. "k_best" keeps `n_features_to_select`. The others choose the number
    by themselves: "percentile" keeps the best percents, "fpr" bounds the false positive rate,
    "fdr" the false discovery rate (Benjamini and Hochberg) and "fwe" the family-wise error.
""",
    "param": """\
param : float or None, default=
    The percents, or the level of the error. None takes 10 percent, or the level 0.05.
""",
    "n_bins": """\
n_bins : "auto" or int, default=
    Number of bins of a feature's non-zero values. "auto" takes one where fewer than half of the
    values of X are non-zero, and 10 elsewhere.
""",
    "n_neighbors": """\
n_neighbors : int, default=
    Number of neighbors of each sample in the kNN graph.
""",
    "metric": """\
metric : {"cosine", "euclidean"}, default=
    Distance of the kNN graph.
""",
    "weighted_metric": """\
metric : {"cosine", "euclidean"}, default=
    Distance of the kNN graph. The edges have cosine weights for "cosine" and heat weights for
    "euclidean".
""",
    "neighbor_metric": """\
metric : {"cosine", "euclidean"}, default=
    Distance of the neighbors.
""",
    "weights": """\
weights : {"binary", "cosine", "heat"}, default=
    Weights of the graph's edges: 1, 1 − distance (for the cosine metric only), or
    exp(−distance²/2t²) with t the mean distance to a neighbor.
""",
    "graph": """\
graph : sparse matrix of shape (n_samples, n_samples), Neighbors or None, default=
    Affinity (symmetric, no negative weight), or neighbors, to use instead of a new kNN graph.
""",
    "landmarks": """\
n_components : int, default=
    Maximum number of landmarks of the Gaussian kernel's factor. Only without labels.
random_state : int, default=
    Seed of the landmarks.
""",
    "alpha": """\
alpha : "auto" or float, default=
    Penalty, as in `sklearn.linear_model.MultiTaskLasso`. "auto" takes the largest of a grid at
    which `n_features_to_select` features have a weight.
""",
    "path": """\
tol : float, default=
    Relative duality gap of each solution.
max_iter : int, default=
    Maximum number of passes over X.
""",
    "tol": """\
tol : float, default=
    Relative duality gap at which to stop.
""",
    "tol_stationarity": """\
tol : float, default=
    Relative violation of stationarity at which to stop.
""",
    "max_iter": """\
max_iter : int, default=
    Maximum number of rounds.
""",
    "solver_tol": """\
solver_tol : float, default=
    Relative residual at which the solver "cg" stops in each round.
""",
    "solver": """\
solver : {"auto", "woodbury", "primal", "cg"}, default=
    Solver of the ridge problem of each round. "auto" takes the one of least projected time
    among those that fit in memory.
""",
    "solver_max_iter": """\
solver_max_iter : int, default=
    Maximum number of iterations of "cg" in each round. A round that stops there still lowers
    the objective, and the history holds its residual.
""",
    "iris": """\
>>> from sklearn.datasets import load_iris
>>> X, y = load_iris(return_X_y=True)
""",
    "C": """\
C : float, default=
    Weight of the losses against the penalty ½‖w‖².
""",
    "selected": """\
selected_ : ndarray of shape (n_selected,)
    Indices of the chosen features, best first. Equal scores are ordered by index.
support_ : ndarray of shape (n_features,)
    Mask of the chosen features.
%(features_in)s
""",
    "features_in": """\
n_features_in_ : int
    Number of features seen during `fit`.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X is a data frame whose column names are strings.
""",
    "greedy": """\
scores_ : ndarray of shape (n_features,)
    1 − k/m for the feature that was chosen after k others out of m, and 0 for the others.
criterion_ : ndarray of shape (n_selected,)
    Value of the criterion of each chosen feature when it was chosen. The first one is its
    relevance, or its mutual information with the class.
selected_ : ndarray of shape (n_selected,)
    Indices of the chosen features, in the order of the choices. Of equal ones the first is
    chosen.
support_ : ndarray of shape (n_features,)
    Mask of the chosen features.
%(features_in)s
result_ : bigfs.result.Result
    Status and history. `stats` has the numbers of passes over X and of gathered columns.
""",
    "row_scores": """\
scores_ : ndarray of shape (n_features,)
    Norm of each feature's weights, where it is positive. A feature of zero weight has a score
    in [−1, 0], by how strongly the residual correlates with it.
""",
    "class_coef": """\
coef_ : ndarray of shape (n_features, n_classes)
    Weights W.
""",
    "component_coef": """\
coef_ : ndarray of shape (n_features, n_components)
    Weights W.
""",
    "classes": """\
classes_ : ndarray of shape (n_classes,)
    The class labels.
""",
    "n_rounds": """\
n_iter_ : int
    Number of rounds.
""",
    "n_steps": """\
n_iter_ : int
    Number of steps.
""",
    "passes": """\
result_ : bigfs.result.Result
    Status, and the number of passes over X in `stats`.
""",
    "closed_form": """\
result_ : bigfs.result.Result
    Status of the run. The score is a closed form, so nothing has to converge.
""",
    "path_result": """\
result_ : bigfs.result.Result
    Status and history. Each record of the history has the "penalty" relative to the one that
    empties the model, the number of features with a weight, the objective, the relative duality
    gap over all features, and how many features are "missing". The stats have the passes over
    X and the number of gathered columns.
""",
    "spectral_result": """\
%(path_result)s
    They also have what the graph and its embedding are.
""",
    "spectral": """\
n_components : int or None, default=
    Number of eigenvectors. The number of clusters is a good one. None takes 10, or as many as
    have a positive eigenvalue.
%(weighted_metric)s
%(path)s
""",
    "rescaled_fitted": """\
scores_ : ndarray of shape (n_features,)
    θ of each feature where it is positive. A feature of zero weight has a score in [−1, 0], by
    how strongly the residual correlates with it.
%(selected)s
theta_ : ndarray of shape (n_features,)
    Share of each feature in the classifier, on the simplex.
%(class_coef)s
intercept_ : ndarray of shape (n_classes,)
    Intercept b.
%(classes)s
label_distributions_ : ndarray of shape (n_samples, n_classes)
    The completed Y: one-hot for a labeled sample, a point of the simplex for an unlabeled one.
    Absent where it would take more than a quarter of the memory limit.
%(n_rounds)s
%(rounds_result)s
""",
    "hypergraph_ridge": """\
fit_intercept : bool, default=
    Whether the regression has an intercept, which both terms see. Without one, as in print, a
    constant that is added to X changes which features are chosen.
solver_tol : float, default=
    Relative residual at which the solver "cg" stops in each round. It also stops once the
    residual has fallen to √`tol` of what it was when the round began.
""",
    "rounds_result": """\
result_ : bigfs.result.Result
    Status and history. Each record of the history has the objective, the number of features,
    the certificate over the working set ("violation") and over all features ("gap"), and the
    residual of the ridge solve. The stats have the plans of the ridge solves and the passes
    over X, and penalties that follow from X.
""",
    "atoms": """\
n_atoms : int or None, default=
    Number m of atoms in the dictionary. None takes min(n_features, n_samples, 256), or fewer
    where memory is short. The paper takes m = n_features, which text does not allow.
alpha : float, default=
    Weight α of the smoothness over the graph.
""",
    "select_atoms": """\
n_features_to_select : int, float or None, default=
    Number of atoms to keep. A float in (0, 1] is a share of the atoms, and None keeps half of
    them.
dictionary : array-like of shape (n_atoms, n_features) or None, default=
    Atoms to use, for instance the `components_` of a scikit-learn decomposition. None learns
    them with SPAMS, which the extra `bigfs[jgsc]` installs.
dictionary_lam : float, default=
    Weight of the ℓ1 penalty of the codes while the dictionary is learned.
epochs : int or None, default=
    Number of passes over X while the dictionary is learned. None takes 1, or as many as
    the dictionary needs for 32 updates.
batch_rows : int, default=
    Number of samples per update of the dictionary.
tol : float, default=
    Relative violation of optimality at which the coding stops.
""",
    "sylvester": """\
max_iter : int, default=
    Maximum number of Sylvester equations.
%(atoms_seed)s
""",
    "atoms_seed": """\
random_state : int, RandomState instance or None, default=
    Seed of the rows that the atoms start from.
""",
    "joint_atoms": """\
%(components)s
scores_ : ndarray of shape (n_atoms,)
    Norm of each atom's codes. Larger is better.
%(selected_atoms)s
coder_ : ndarray of shape (n_features, n_selected)
    Matrix that takes new samples to their codes.
%(column_importance)s
n_iter_ : int
    Number of Sylvester equations solved.
result_ : bigfs.result.Result
    Status and history of the coding. Each record of the history has the objective, the
    violation, and the relative residual of the Sylvester equation.
%(dictionary_result)s
""",
    "components": """\
components_ : ndarray of shape (n_atoms, n_features)
    The atoms, Bᵀ.
""",
    "selected_atoms": """\
selected_ : ndarray of shape (n_selected,)
    Indices of the kept atoms, best first.
support_ : ndarray of shape (n_atoms,)
    Mask of the kept atoms.
codes_ : ndarray of shape (n_samples, n_selected)
    Codes of the training samples on the kept atoms, with the graph.
""",
    "column_importance": """\
column_importance_ : ndarray of shape (n_features,)
    Share of each column's variance that the kept atoms explain. It ranks columns.
""",
    "dictionary_result": """\
dictionary_result_ : bigfs.result.Result or None
    Status and history of the dictionary learning. None where the atoms were given.
%(features_in)s
""",
    "sparge_targets": """\
embedding : {"lda", "cca", "hsl", "sda", "lpp", "pca"}, default=
    What the features have to explain (Table 1 of [1]_). "lda" is for the classes, "cca" for
    real or multi-label targets, "hsl" for the hypergraph of the labels (of the neighborhoods
    where y is None), "sda" for the classes and the kNN graph together, "lpp" for the kNN graph,
    and "pca" for the variance. "lpp" and "pca" ignore y.
target : {"auto", "classes", "real"}, default=
    Kind of y for "cca" and "hsl". "auto" takes fractions for real, and whole numbers or
    strings for classes. Say "real" for ages, counts and prices.
    `result_.stats["target"]` says which kind was taken.
class_weight : {"root", "balanced"}, None or dict, default=
    Weights of the classes for "lda". "balanced" gives every class the same weight whatever its
    size, as [1]_ does. None gives every sample the same weight. "root" lies between them: a
    class weighs as the root of its number of samples. On unbalanced text it has the accuracy
    of None, and nearly the balanced accuracy of "balanced". A dict gives each class its
    weight by its label, or by its number where X is a `Matrix`. A class that is not in the
    dict has weight 1.
loss : {"squared", "squared_hinge"}, default=
    Loss of the regression. "squared" is the loss of [1]_. "squared_hinge", for "lda", is the
    loss of `sklearn.svm.LinearSVC`, one class against the rest, with an intercept that is not
    penalized and C = 1/2γ. Its class weights are weights of the samples, as there.
""",
    "sparge_keep": """\
keep : array-like of int or str, default=
    Features that must be chosen, as indices or names. Every set holds them, so the bounds are
    the bounds of the problem with these features fixed.
""",
    "sparge_graph": """\
n_components : int or None, default=
    Width r of the embedding. None takes the number of classes minus 1 for "sda", and 10 for
    "pca", "lpp", and "hsl" without y, or as many as have a positive eigenvalue. Class labels
    and targets fix the width of "lda", "cca" and "hsl", which do not look at this parameter.
n_neighbors : int, default=
    Number of neighbors of each sample in the kNN graph of "lpp", "sda", and "hsl" without y.
%(weighted_metric)s
graph : sparse matrix of shape (n_samples, n_samples), Neighbors or None, default=
    Affinity, or neighbors, to use for "lpp" and "sda" instead of a new kNN graph.
weighting : {"uniform", "degree"}, default=
    Weights of the samples in the regression for "lpp" and "sda". "uniform" is Table 1 of [1]_.
    "degree" weighs sample i by √D_ii ("lpp") or √(1 + βD_ii) ("sda"), as their generalized
    eigenproblems do. "uniform" did as well or better on COIL20.
beta : float, default=
    Weight of the graph against the classes, for "sda".
""",
    "sparge_cuts": """\
ranking : {"elimination", "weights", "svm"}, default=
    How the union of the sets becomes exactly m features. "elimination" removes the feature of
    least exact cost to the objective, one by one. "weights" takes the largest row norms of the
    relaxation, as [1]_ does, which counts twice what two features share. "svm", for "lda",
    takes the 4m features of largest norm, or all, and removes a fifth of them per round by
    their weights in a linear SVM with C = 1/2γ, as `SVMRFE` does on all features. There the
    class weights are weights of the samples.
tol : float, default=
    Relative gap between the bounds of the relaxation at which the cuts stop.
max_iter : int, default=
    Maximum number of cuts.
""",
    "sparge_scores": """\
scores_ : ndarray of shape (n_features,)
    What the objective lost when the feature was removed (`ranking="elimination"`), the norm of
    its row in `coef_` ("weights"), or the share of the SVM's features that it is better than or
    equal to ("svm"). Zero outside the union of the sets. With "elimination" and "svm" the sets
    are nested: the best k < m features are a good choice of k, but a fit for k may differ.
""",
    "sparge_fitted": """\
coef_ : ndarray of shape (n_union, n_components)
    Weights W of the relaxation on the features `union_`.
union_ : ndarray of shape (n_union,)
    Indices of the features in any set.
sets_ : sequence of ndarray of shape (n_selected,)
    The sets of m features that have a weight, in the order of the cuts and of the steps inside
    them, each best first.
eta_ : ndarray of shape (n_sets,)
    Weights of the sets, on the simplex.
n_iter_ : int
    Number of cuts.
result_ : bigfs.result.Result
    Status and history. Each record of the history has the bounds "upper" and "lower" of the
    relaxation, and "gap". With `ranking="elimination"` the stats have "objective", the value of
    the chosen features, and "objective_gap", how far above the best m features it is at most.
""",
}


def fill_in(cls: Any) -> None:
    """Give a class the shared text and the shared constraints of its parameters."""
    parameters = {} if cls.__init__ is object.__init__ else inspect.signature(cls).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    constraints: Allowed = {}
    for name, parameter in parameters.items():
        constraints |= {name: allowed} if (allowed := _allowed(name, parameter)) else {}
    for base in reversed(cls.__mro__):
        constraints |= vars(base).get("_parameter_constraints", {})
    for name, allowed in constraints.items():
        if defaults.get(name, "") is None and None not in allowed:
            constraints[name] = [*allowed, None]
    cls._parameter_constraints = constraints
    if cls.__doc__:
        cls.__doc__ = complete(expand(inspect.cleandoc(cls.__doc__), defaults), defaults)


def _allowed(name: str, parameter: inspect.Parameter) -> list[Any]:
    """Return the constraints of a parameter by its name, or by what it is annotated with."""
    if name in CONSTRAINTS:
        return CONSTRAINTS[name]
    kind = str(parameter.annotation)
    if kind.startswith("Literal["):
        return [StrOptions(set(ast.literal_eval(kind.removeprefix("Literal"))))]
    return ["boolean"] if kind == "bool" else []


def complete(text: str, defaults: dict[str, Any]) -> str:
    """Return a docstring with the shared entries that it leaves out."""
    before, *parts = re.split(r"^([A-Z][\w ]+)\n-{3,}\n", text, flags=re.MULTILINE)
    sections = {"Parameters": "", **dict(zip(parts[::2], parts[1::2], strict=True))}
    if "Attributes" not in sections:
        return text
    shared = "\n".join(f"%({name})s" for name in defaults if name in FRAGMENTS)
    entries = _entries(expand(shared, defaults)) | _entries(sections["Parameters"])
    sections["Parameters"] = "\n".join(entries[name] for name in defaults if name in entries)
    attributes = _entries(sections["Attributes"])
    if "selected_" not in attributes:
        scores = {"scores_": attributes.pop("scores_", "")}
        attributes = scores | _entries(expand("%(selected)s", defaults)) | attributes
    sections["Attributes"] = "\n".join(filter(None, attributes.values()))
    bodies = (f"{name}\n{'-' * len(name)}\n{body.strip()}" for name, body in sections.items())
    return "\n\n".join([before.strip(), *bodies])


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section of a docstring, by the names that they describe."""
    entries = re.split(r"^(?=\w+ : )", section.strip(), flags=re.MULTILINE)
    return {entry.partition(" : ")[0]: entry.rstrip() for entry in entries if entry}


def expand(text: str, defaults: dict[str, Any]) -> str:
    """Return a docstring with the fragments that it names, and with the defaults of a class."""

    def fragment(line: re.Match[str]) -> str:
        return re.sub(
            r"^(\w+) : .*default=$",
            lambda header: header[0] + written(defaults[header[1]]),
            expand(FRAGMENTS[line[1]].rstrip(), defaults),
            flags=re.MULTILINE,
        )

    return re.sub(r"^%\((\w+)\)s$", fragment, text, flags=re.MULTILINE)


def written(value: Any) -> str:
    """Return a default as documentation writes it."""
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("e-0", "e-")
