"""What public objects print at a prompt: a few lines, whatever they hold."""

import numpy as np
import pytest

import bigfs
from bigfs import storage
from bigfs.flows import run as runs
from bigfs.flows.job import Job
from bigfs.flows.options import ClusterOptions
from bigfs.storage.runs.models import TextUnits
from bigfs.storage.runs.runs import Run

LONGEST, LINES = 900, 6
DEFAULT = object.__repr__


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """Public objects by name, of a corpus of more than a thousand terms."""
    folder = tmp_path_factory.mktemp("reprs")
    job = Job(
        source="synthetic:newswire?rows=600",
        store=str(folder / "a.zarr"),
        out=str(folder / "run"),
        features=100,
        engine=ClusterOptions(workers=0),
    )
    runs.run(job)
    corpus, run = storage.open(job.store), Run.open(job.out)
    X, y = corpus.X, corpus.y
    assert X.shape[1] > 1000
    selector = bigfs.SparGE(n_features_to_select=100).fit(X, y)
    few = bigfs.JHLSR(n_features_to_select=5, max_iter=2, tol=1.0).fit(X.take_columns(range(50)), y)
    model = run.model()
    return {
        "corpus": corpus,
        "manifest": corpus.manifest,
        "feature names": corpus.feature_names,
        "matrix": X,
        "transposed": X.T,
        "run": run,
        "model": model,
        "text of a model": TextUnits({}, b"word " * 10**5, np.ones(10**5)),
        "linear model": model.linear,
        "selector": selector,
        "result": selector.result_,
        "state": selector.result_.value,
        "hypergraph": few.hypergraph_,
        "graph": storage.graph(corpus, k=3),
        "check": storage.check(job.store),
        "stability": bigfs.stability(bigfs.ANOVA(), X, y, n_subsamples=2),
        "audit": bigfs.audit(X, y, {"mine": np.arange(5)}),
    }


def test_every_object_prints_a_few_lines(things):
    for name, thing in things.items():
        text = repr(thing)
        assert len(text) < LONGEST, f"{name}: {len(text)} characters: {text[:300]}"
        assert text.count("\n") < LINES, name
        assert " object at 0x" not in text, name


def test_a_repr_says_what_the_object_is(things):
    assert "sparge-lda 100" in repr(things["run"])
    assert repr(things["result"]).startswith("Result(status=converged")
    assert "gap of the features=" in repr(things["result"])
    d = things["corpus"].X.shape[1]
    assert repr(things["feature names"]) == (
        f"<FeatureNames: {d:,} names, read as they are asked for>"
    )
    assert f"n_features={d}" in repr(things["model"])
    assert f"shape=(600, {d})" in repr(things["manifest"])


@pytest.mark.parametrize("module", [bigfs, storage])
def test_no_public_class_has_the_repr_of_an_address(module):
    kinds = [getattr(module, name) for name in module.__all__]
    plain = [kind.__name__ for kind in kinds if isinstance(kind, type) and kind.__repr__ is DEFAULT]
    assert not plain
