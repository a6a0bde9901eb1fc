"""The request of a comparison, for the command line, Prefect's form and the result's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bigfs.flows.job import DAY, Request, said
from bigfs.flows.options import Methods, Scoring, Sizes, known_methods
from bigfs.flows.reuse import source_name
from bigfs.selectors.registry import canonical_name

LIST = "list {}"  # how a comparison calls a list of a file
Parameters = dict[str, dict[str, Any]]  # of each variant, by its name
Constraints = dict[Literal["keep", "forbid"], list[str] | list[int]]
LISTS = (
    "a list of features: a file with a name or an index per line, best first, a table, a column of "
    "AnnData's var (cells.h5ad?column=highly_variable), a selector of scikit-learn in .skops, or a "
    "run's folder"
)


def _require_sparge(given: str | None) -> str | None:
    if given is None:
        return None
    [method] = known_methods([given])
    if not method.startswith("sparge-"):
        raise ValueError(f"an audit is by SparGE's objective: name a sparge- method; got {method}")
    return method


def list_name(given: str) -> str:
    """Return the name of a list in tables and pictures: its file's, and its column's if given.

    A run is called as its folder.
    """
    file, _, column = given.partition("?column=")
    path = Path(file.rstrip("/"))
    name = path.name if (path / "run.json").exists() else path.stem
    return f"{name}{f' {column}' if column else ''}"


# --- the fields of requests, which are the parameters of flows too --------------------------------

MethodNames = Annotated[
    Methods | None,
    said(
        "methods that `bigfs methods` lists (default: by the target, such as sparge-lda, anova and "
        "chi2)"
    ),
]
Counts = Annotated[
    Sizes | None,
    said(
        "numbers of features (default: 10, 20, 50 and 100 % of 500, or of the features that there "
        "are)"
    ),
]
ListScoring = Annotated[Scoring, said("how the choices are scored")]
Lists = Annotated[list[str] | None, said(LISTS)]
Selectors = Annotated[
    list[str] | None,
    said(
        "a selector of another package to compare with, as package.module:Class or file.py:Class; "
        "its code is run in a process of its own"
    ),
]
Grid = Annotated[
    dict[str, dict[str, list[Any]]] | None,
    said('values to try, by method and parameter: {"sparge-lda": {"gamma": [0.5, 1, 2]}}'),
]
Subsamples = Annotated[
    int | None,
    Field(ge=2),
    said(
        "choose again from this many random halves of the training samples, to measure the "
        "stability of the choice (default: the folds, if there are any)"
    ),
]
Bounds = Annotated[
    Constraints | None,
    said("features to keep and to forbid in every choice, as lists of names or indices"),
]
MethodTime = Annotated[
    float,
    Field(gt=0),
    said("time that one method may take, to choose and to be scored, in seconds"),
]


class Comparison(Request):
    """The request of a comparison: the methods, and how they are scored.

    Every method chooses each number of features on the same training samples, and a linear model on
    them is scored on the same test samples. Without test samples the methods choose again inside
    folds. `out` gets compare.json, compare.csv, compare.md and report.html. A method that cannot
    learn from the corpus, does not fit in memory or takes longer than `timeout` is a row that says
    so. A later call does again only what failed or what has changed.
    """

    order = "source methods sizes out scoring store settings engine overlap fresh"

    methods: MethodNames = None
    sizes: Counts = None
    scoring: ListScoring = Scoring()
    lists: Lists = None
    selectors: Selectors = None
    grid: Grid = None
    subsamples: Subsamples = None
    constraints: Bounds = None
    timeout: MethodTime = DAY

    @model_validator(mode="after")
    def _require_methods_of_grid(self) -> Self:
        unknown = sorted(set(map(canonical_name, self.grid or {})) - set(self.methods or []))
        if unknown:
            raise ValueError(f"the grid names {unknown[0]}, which is not among the methods: add it")
        return self

    def with_out(self) -> Self:
        """Return the comparison with its directory, which does not depend on the methods.

        So a comparison with one method more finds the results of the others.
        """
        question = {name: getattr(self, name) for name in ("sizes", "subsamples", "constraints")}
        question |= self.scoring.protocol
        return self.with_default_out(f"{source_name(self.source)}-comparison", question)

    def names(self) -> list[str]:
        """Return the names of all that is compared: methods, lists, others' selectors, controls."""
        lists = [LIST.format(list_name(one)) for one in self.lists or []]
        names = [*self.variants(), *lists, *map(selector_name, self.selectors or [])]
        names += self.scoring.controls or []
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two of the compared are called {twice!r}: rename one")
        return names

    def variants(self) -> Parameters:
        """Return the parameters of each method of the grid, by a name that says them."""
        grid = {canonical_name(name): values for name, values in (self.grid or {}).items()}
        return {
            _variant(method, parameters): parameters
            for method in self.methods or []
            for parameters in _combinations(grid.get(method, {}))
        }


def selector_name(place: str) -> str:
    """Return the name of an external selector: the name of its class."""
    return place.partition(":")[2]


def _combinations(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    names = sorted(grid)
    return [
        dict(zip(names, values, strict=True)) for values in product(*(grid[name] for name in names))
    ]


def _variant(method: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a method with these parameters. The method is its first word."""
    values = (f"{name}={json.dumps(value)}" for name, value in parameters.items())
    return " ".join([method, *values])


class Audit(Request):
    """Which lists are audited, and by which objective."""

    order = "source lists out method store settings parameters"

    alternatives: Annotated[
        float | None,
        Field(gt=0, lt=1, description="search for all lists that are worse by this share at most"),
    ] = None
    lists: Annotated[list[str], Field(min_length=1, description=LISTS)]
    method: Annotated[
        str | None,
        AfterValidator(_require_sparge),
        Field(description="SparGE's embedding that scores (default: by the kind of the target)"),
    ] = None
    parameters: Annotated[
        dict[str, Any], Field(description="parameters of the method, such as gamma")
    ] = {}  # noqa: RUF012, pydantic copies it
    scoring: Annotated[Scoring, Field(description="how the lists are scored")] = Scoring()

    def with_out(self) -> Self:
        """Return the audit with the directory of its results."""
        question = {name: getattr(self, name) for name in ("lists", "method", "parameters")}
        if self.alternatives is not None:
            question["alternatives"] = self.alternatives
        return self.with_default_out(f"{source_name(self.source)}-audit", question)
