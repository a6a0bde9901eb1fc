"""The parameters and fitted attributes that selectors share: their text, and the values they take.

A line `%(name)s` in the docstring of a class stands for `FRAGMENTS[name]`. A header that ends with
`default=` gets the default of the class. A parameter without constraints of its own takes those of
`CONSTRAINTS`.
"""

from __future__ import annotations

import inspect
import re
from numbers import Integral, Real
from textwrap import indent
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from bigfs.graph import Neighbors

POSITIVE: list[Any] = [Interval(Real, 0, None, closed="neither")]
NOT_NEGATIVE: list[Any] = [Interval(Real, 0, None, closed="left")]
SHARE: list[Any] = [Interval(Real, 0, 1, closed="neither")]
COUNT: list[Any] = [Interval(Integral, 1, None, closed="left")]
SEED: list[Any] = [Interval(Integral, 0, None, closed="left")]

CONSTRAINTS: dict[str, list[Any]] = {
    "n_features_to_select": [*COUNT, Interval(Real, 0, 1, closed="right"), None],
    "keep": ["array-like", None],
    "forbid": ["array-like", None],
    "n_neighbors": COUNT,
    "metric": [StrOptions({"cosine", "euclidean"})],
    "graph": [HasMethods("tocsr"), Neighbors, None],
    "weights": [StrOptions({"binary", "cosine", "heat"})],
    "max_iter": COUNT,
    "solver": [StrOptions({"auto", "woodbury", "primal", "cg"})],
    "solver_tol": SHARE,
    "solver_max_iter": COUNT,
}

FRAGMENTS = {
    "select": """\
n_features_to_select : int, float or None, default=
    Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
    half of them.
keep : array-like of int or str, default=
    Features that must be chosen, as indices or names.
forbid : array-like of int or str, default=
    Features that must not be chosen, as indices or names.
""",
    "n_features_to_select": """\
n_features_to_select : int, float or None, default=
    Number of features to keep. A float in (0, 1] is a share of the features, and None keeps
    half of them.
""",
    "forbid": """\
forbid : array-like of int or str, default=
    Features that must not be chosen, as indices or names.
""",
    "significance": """\
mode : {"k_best", "percentile", "fpr", "fdr", "fwe"}, default=
    How features are chosen. "k_best" keeps `n_features_to_select`. The others choose the number
    by themselves: "percentile" keeps the best percents, "fpr" bounds the false positive rate,
    "fdr" the false discovery rate (Benjamini and Hochberg) and "fwe" the family-wise error.
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
    "alpha_auto": """\
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
    "tol_gap": """\
tol : float, default=
    Relative duality gap at which to stop.
""",
    "tol_stationarity": """\
tol : float, default=
    Relative violation of stationarity at which to stop.
""",
    "rounds": """\
max_iter : int, default=
    Maximum number of rounds.
""",
    "ridge": """\
solver : {"auto", "woodbury", "primal", "cg"}, default=
    Solver of the ridge problem of each round. "auto" takes the one of least projected time
    among those that fit in memory.
solver_tol : float, default=
    Relative residual at which the solver "cg" stops in each round.
solver_max_iter : int, default=
    Maximum number of iterations of "cg" in each round. A round that stops there still lowers
    the objective, and the history holds its residual.
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
    "svm": """\
C : float, default=
    Weight of the losses against the penalty ½‖w‖².
""",
    "selected": """\
selected_ : ndarray of shape (n_selected,)
    Indices of the chosen features, best first. Equal scores are ordered by index.
support_ : ndarray of shape (n_features,)
    Mask of the chosen features.
n_features_in_ : int
    Number of features seen during `fit`.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X is a data frame whose column names are strings.
""",
    "features_in": """\
n_features_in_ : int
    Number of features seen during `fit`.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X is a data frame whose column names are strings.
""",
    "greedy_scores": """\
scores_ : ndarray of shape (n_features,)
    1 − k/m for the feature that was chosen after k others out of m, and 0 for the others.
""",
    "greedy_selected": """\
selected_ : ndarray of shape (n_selected,)
    Indices of the chosen features, in the order of the choices. Of equal ones the first is
    chosen.
support_ : ndarray of shape (n_features,)
    Mask of the chosen features.
n_features_in_ : int
    Number of features seen during `fit`.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X is a data frame whose column names are strings.
""",
    "greedy_result": """\
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
result_ : bigfs.result.Result
    Status and history. Each record of the history has the "penalty" relative to the one that
    empties the model, the number of features with a weight, the objective, the relative duality
    gap over all features, and how many features are "missing". The stats have the passes over
    X, the number of gathered columns, and what the graph and its embedding are.
""",
    "embedding_result": """\
result_ : bigfs.result.Result
    Status and history. Each record of the history has the objective, the number of features,
    the violation and the residual of the ridge solve. The stats have the penalty, the plans of
    the ridge solves and the passes over X.
""",
    "n_atoms": """\
n_atoms : int or None, default=
    Number m of atoms in the dictionary. None takes min(n_features, n_samples, 256), or fewer
    where memory is short. The paper takes m = n_features, which text does not allow.
""",
    "smoothness": """\
alpha : float, default=
    Weight α of the smoothness over the graph.
""",
    "select_atoms": """\
n_features_to_select : int, float or None, default=
    Number of atoms to keep. A float in (0, 1] is a share of the atoms, and None keeps half of
    them.
""",
    "dictionary": """\
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
    "atoms_seed": """\
random_state : int, RandomState instance or None, default=
    Seed of the rows that the atoms start from.
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
n_features_in_ : int
    Number of features seen during `fit`.
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X is a data frame whose column names are strings.
""",
}


def fill_in(cls: Any) -> None:
    """Give a class the shared text and the shared constraints of its parameters."""
    parameters = {} if cls.__init__ is object.__init__ else inspect.signature(cls).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    constraints = {name: CONSTRAINTS[name] for name in defaults if name in CONSTRAINTS}
    for base in reversed(cls.__mro__):
        constraints |= vars(base).get("_parameter_constraints", {})
    cls._parameter_constraints = constraints
    if cls.__doc__:
        cls.__doc__ = expanded(cls.__doc__, defaults)


def expanded(text: str, defaults: dict[str, Any]) -> str:
    """Return a docstring with the fragments that it names, and with the defaults of a class."""

    def fragment(line: re.Match[str]) -> str:
        entries = re.sub(
            r"^(\w+) : .*default=$",
            lambda header: header[0] + written(defaults[header[1]]),
            FRAGMENTS[line["name"]].rstrip(),
            flags=re.MULTILINE,
        )
        return indent(entries, line["margin"])

    return re.sub(r"^(?P<margin> *)%\((?P<name>\w+)\)s$", fragment, text, flags=re.MULTILINE)


def written(value: Any) -> str:
    """Return a default as documentation writes it."""
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("e-0", "e-")
