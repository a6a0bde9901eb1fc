"""What is compared: the model of the command line, Prefect's form and the result's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from bigfs.flows.comparison.foreign import Foreign
from bigfs.flows.comparison.lists import list_name
from bigfs.flows.evaluation import selection
from bigfs.flows.job import Request
from bigfs.flows.reuse import source_name
from pydantic import AfterValidator, Field, model_validator
from sklearn.model_selection import ParameterGrid

from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.selectors.registry import canonical_name

LIST = "list {}"  # how a comparison calls a list of a file
Parameters = dict[str, dict[str, Any]]  # of each variant, by its name


def _require_methods(methods: list[str]) -> list[str]:
    for method in methods:
        selection.get_method(method)
    return list(dict.fromkeys(map(canonical_name, methods)))


def _require_metrics(metrics: list[str] | None) -> list[str] | None:
    if unknown := [name for name in metrics or [] if name not in METRIC_NAMES]:
        raise ValueError(
            f"unknown metric {unknown[0]!r}; the metrics are {', '.join(METRIC_NAMES)}"
        )
    return metrics


def _require_constraints(constraints: dict[str, Any] | None) -> dict[str, Any] | None:
    if unknown := sorted(set(constraints or {}) - set(selection.CONSTRAINTS)):
        raise ValueError(f"constraints are keep and forbid; got {unknown[0]!r}")
    return constraints


class Comparison(Request):
    """What is compared, and how it is scored.

    Every method chooses each number of features on the same training samples, and a linear model on
    them is scored on the same test samples. Without test samples the methods choose again inside
    folds. `out` gets compare.json, compare.csv, compare.md and report.html. A method that cannot
    learn from the corpus, does not fit in memory or takes longer than `timeout` is a row that says
    so. A later call does again only what failed or what has changed.
    """

    order = "source methods sizes out metrics store settings engine overlap fresh"

    methods: Annotated[
        list[str],
        Field(min_length=1, description="methods that `bigfs methods` lists"),
        AfterValidator(_require_methods),
    ]
    sizes: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(min_length=1, description="numbers of features on the curves"),
        AfterValidator(lambda sizes: sorted(set(sizes))),
    ]
    lists: Annotated[
        list[str] | None,
        Field(
            description="files of lists to compare with, such as hvg.txt or a run's selected.csv"
        ),
    ] = None
    selectors: Annotated[
        list[str] | None,
        Field(
            description="selectors of other packages to compare with, as package.module:Class or "
            "file.py:Class, whose code is run"
        ),
    ] = None
    grid: Annotated[
        dict[str, dict[str, list[Any]]] | None,
        Field(
            description="values to try, by method and parameter: "
            '{"sparge-lda": {"gamma": [0.5, 1, 2]}}'
        ),
    ] = None
    metrics: Annotated[
        list[str] | None,
        Field(description="metrics, the first of which ranks the methods (default: by the target)"),
        AfterValidator(_require_metrics),
    ] = None
    folds: Annotated[
        int | None,
        Field(
            ge=2,
            description="folds to score by, for corpora without test samples (default: 5, or a "
            "held-out fifth where folds are too much work)",
        ),
    ] = None
    test_size: Annotated[
        float | None, Field(gt=0, lt=1, description="share of the samples to hold out instead")
    ] = None
    judge: Annotated[
        Literal["svm", "logistic"], Field(description="model that judges classes and labels")
    ] = "svm"
    subsamples: Annotated[
        int | None,
        Field(
            ge=2,
            description="random halves of the training samples to choose from again, for the "
            "stability",
        ),
    ] = None
    constraints: Annotated[
        dict[str, Any] | None,
        Field(
            description="features to keep and to forbid in every choice, as lists of names or "
            "indices"
        ),
        AfterValidator(_require_constraints),
    ] = None

    @model_validator(mode="after")
    def _require_one_split(self) -> Self:
        if self.folds is not None and self.test_size is not None:
            raise ValueError("folds and test_size exclude one another: give one of them")
        if unknown := sorted(set(map(canonical_name, self.grid or {})) - set(self.methods)):
            raise ValueError(f"the grid names {unknown[0]}, which is not among the methods: add it")
        return self

    def with_out(self) -> Self:
        """Return the comparison with its directory, which does not depend on the methods.

        So a comparison with one method more finds the results of the others.
        """
        names = ("sizes", "metrics", "folds", "test_size", "subsamples", "constraints")
        question = {name: getattr(self, name) for name in names}
        if self.judge != "svm":
            question["judge"] = self.judge
        return self.with_default_out(f"{source_name(self.source)}-comparison", question)

    def names(self) -> list[str]:
        """Return the names of all that is compared: methods, lists and others' selectors."""
        lists = [LIST.format(list_name(one)) for one in self.lists or []]
        names = [*self.variants(), *lists, *(Foreign(place).name for place in self.selectors or [])]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two of the compared are called {twice!r}: rename one")
        return names

    def variants(self) -> Parameters:
        """Return the parameters of each method of the grid, by a name that says them."""
        grid = {canonical_name(name): values for name, values in (self.grid or {}).items()}
        return {
            _variant(method, parameters): parameters
            for method in self.methods
            for parameters in ParameterGrid(grid.get(method, {}))
        }


def _variant(method: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a method with these parameters. The method is its first word."""
    values = (f"{name}={json.dumps(value)}" for name, value in parameters.items())
    return " ".join([method, *values])
