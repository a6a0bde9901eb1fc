"""Every method says for whom it is and what it costs, and what it says of its passes is so."""

import re

import pytest

from bigfs import Matrix, storage
from bigfs.flows.cli.runs import SYMBOLS
from bigfs.flows.evaluation import selection
from bigfs.graph import knn
from bigfs.selectors.registry import GROUPS, METHODS, groups_of
from tests.helpers.stores import write_svmlight

WORDS = {"anchor", "columns", "folds", "max", "or", "per", "rows"}
CERTAIN = {"0": 0, "1": 1, "2": 2, "graph + 1": 1, "graph + 2": 2}  # with the graph at hand


@pytest.mark.parametrize("name", METHODS)
def test_method_says_what_it_costs(name):
    cost = METHODS[name].make()._cost
    assert cost.passes
    assert cost.memory
    symbols = set(re.findall(r"[a-zA-Z]+", cost.memory)) - WORDS
    explained = set(re.findall(r"\b([a-zA-Z])\b(?= [a-z×]|,| ×)", SYMBOLS)) | {"N"}
    assert symbols <= explained
    assert cost.passes.startswith("graph") == METHODS[name].graph


def test_every_group_has_methods_and_every_method_a_group():
    groups = {name: groups_of(method) for name, method in METHODS.items()}
    assert set().union(*groups.values()) == set(GROUPS)
    assert all(groups.values())
    assert groups["anova"] == ["class", "multilabel"]
    assert groups["rlsr"] == groups["lsdf"] == groups["sparge-sda"] == ["few"]
    assert groups["mcfs"] == groups["variance"] == ["none"]
    assert groups["f-regression"] == ["real"]
    assert groups["sparge-cca"] == ["class", "multilabel", "real", "multioutput"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    source = write_svmlight(folder / "c.svm", 60, n_classes=2)
    return storage.open(storage.stage(source, folder / "c.zarr"))


@pytest.mark.parametrize(
    "name",
    [name for name, method in METHODS.items() if method.make()._cost.passes in CERTAIN],
)
def test_passes_are_those_that_are_said(name, corpus):
    X, y = corpus.X, corpus.y
    selector = selection.make_selector(name, 5, {})
    if METHODS[name].graph:
        selector.set_params(graph=knn(X, 5))
    before = X.passes
    selector.fit(X, y + 0.5 if name == "f-regression" else y)
    assert X.passes - before == CERTAIN[METHODS[name].make()._cost.passes]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, method in METHODS.items()
        if method.make()._cost.in_place in CERTAIN and not method.graph
    ],
)
def test_passes_over_a_store_in_place_are_those_that_are_said(name, corpus):
    """It has the layout by rows alone, and no statistics."""
    X = Matrix(corpus.X.shape, rows=corpus.X.row_tiles)
    y = corpus.y
    selection.make_selector(name, 2, {}).fit(X, y + 0.5 if name == "f-regression" else y)
    assert X.passes == CERTAIN[METHODS[name].make()._cost.in_place]
