"""What a docstring says of a run is what the run has, for every method of the registry."""

import inspect
import re

import numpy as np
import pytest

from bigfs.graph import neighbors
from bigfs.result import Status
from bigfs.selectors.registry import METHODS
from tests.bigfs.selectors.test_no_information import dense, make, target_of

# the words of a docstring, and the key of the history that they stand for
RECORDS = {
    r"the objective\b": "objective",
    r"the number of features\b": "features",
    r"violation\b": "violation",
    r"\bgap\b": "gap",
    r"the residual of the ridge solve": "residual",
    r"residual of the Sylvester equation": "sylvester",
    r"\bchange\b": "change",
    r'"penalty"': "penalty",
    r'"missing"': "missing",
    r'"upper"': "upper",
    r'"lower"': "lower",
    r'"codes"': "codes",
}
STATS = {
    r"passes over X": "passes",
    r"gathered columns": "gathered",
    r"plans of the ridge solves": "plans",
    r"`n_without_hyperedge`": "n_without_hyperedge",
    r"have the penalty": "penalty",
    r'"objective_gap"': "objective_gap",
}


def entry_of(selector, name):
    """Return the text of a parameter or an attribute in a docstring."""
    found = re.search(
        rf"^{name} : .*\n((?:    .*\n)*)", inspect.getdoc(type(selector)), re.MULTILINE
    )
    return " ".join(found[1].split()) if found else ""


def fitted(method, **options):
    X, y = dense()
    selector = make(method, X).set_params(**options)
    if METHODS[method].scores == "scores_":
        selector.set_params(n_features_to_select=3)
    y = target_of(method, y)
    if selector._semi_supervised and method != "auto":
        y = np.where(np.arange(len(y)) % 4 == 0, -1, y)
    return selector.fit(X, y)


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("method", METHODS)
def test_a_run_has_what_the_docstring_says(method):
    selector = fitted(method)
    result, said = selector.result_, entry_of(selector, "result_")
    records, _, stats = said.partition("tats ha")
    last = result.history[-1] if result.history else {}
    for words, key in RECORDS.items():
        if re.search(words, records):
            assert key in last, (words, sorted(last))
    for words, key in STATS.items():
        if re.search(words, stats):
            assert key in result.stats, (words, sorted(result.stats))
    if "closed form" in said:
        assert not result.history
        assert result.status is Status.EXACT
    tol = entry_of(selector, "tol")
    rule = re.search(r"gap|violation|change", tol, re.IGNORECASE)
    if result.status is Status.CONVERGED and rule:
        key = "gap" if "gap" in last else rule[0].lower()
        assert last[key] <= selector.tol
    if rule and rule[0] == "change":  # no certificate
        assert result.status in (Status.FINISHED, Status.MAX_ITER)


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("method", METHODS)
def test_an_approximate_graph_is_in_the_stats(method, monkeypatch):
    exact, asked = neighbors.stream_knn, []

    def approximate(*args, **options):
        asked.append(options["method"])
        parts, info = exact(*args, **options)
        return parts, info | {"method": "approx", "recall": 0.65}

    monkeypatch.setattr(neighbors, "stream_knn", approximate)
    few = {"jhlsr": {"hyperedges": "knn"}, "auto": {"cv": 2}}.get(method, {})
    selector = fitted(method, **few)
    stats = selector.result_.stats
    assert bool(asked) == (stats.get("graph_method") == "approx"), sorted(stats)
    assert bool(asked) == (stats.get("graph_recall") == 0.65)
    if asked:
        assert selector.result_.status is not Status.EXACT
    uses = METHODS[method].graph or method in ("jhlsr", "glspfs", "jgsc", "rjgsc", "gsc")
    assert bool(asked) == uses
