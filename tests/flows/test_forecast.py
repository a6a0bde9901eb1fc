"""The forecast of a run: by the runs beside it on this machine, and honest where none is there."""

import platform

import pytest

from bigfs import storage
from bigfs.flows.forecast import Past, forecast, forecast_methods, past_runs
from bigfs.flows.job import Job
from bigfs.flows.plan import Plan
from tests.helpers.processes import write_corpus


@pytest.fixture
def plan(tmp_path):
    """Give the plan of a run of a method, scored by some choices."""
    write_corpus(tmp_path / "corpus.svm", seed=0)
    uri = storage.stage(str(tmp_path / "corpus.svm"), tmp_path / "c.zarr")
    out = str(tmp_path / "runs" / "new")

    def make(method="anova", **scoring):
        job = Job(source=uri, store=uri, method=method, features=8, out=out, scoring=scoring)
        return Plan.of(job)

    return make


def test_a_run_is_told_by_the_run_of_its_method_nearest_in_size(plan):
    values = plan().corpus.X.nnz
    seconds = {"select": 40.0, "evaluate": 50.0}
    near = Past("near", "anova", values // 2, 3, seconds, 100 << 20, 1, False)
    far = near._replace(name="far", values=values * 9, seconds={"select": 1.0})
    more = values / near.values
    line = forecast(plan(test_size=0.3), [near, far])
    # and more than in proportion, by the fifth root
    times = f"{90 * more / 60:.1f} min to {90 * more**1.2 / 60:.1f} min"
    assert line.startswith(f"about {times} (select {40 * more / 60:.1f} min")
    assert "evaluate longest, 3 passes; near took 1.5 min" in line
    # folds select five times as often
    assert f"evaluate {250 * more / 60:.1f} min" in forecast(plan(), [near, far])
    # to be scored by test samples takes no other selection, so nothing was measured for it
    assert "evaluate not measured" in forecast(plan(), [near._replace(has_test=True)])
    assert forecast(plan(), [far]) is None  # a ninth of a second
    # the pairs of twice as many samples are four times as many
    pairs = [near._replace(method="rlsr")]
    assert f"(select {40 * more**2 / 60:.1f} min" in forecast(plan("rlsr", test_size=0.3), pairs)


def test_a_comparison_is_the_sum_of_its_methods(plan):
    corpus = plan().corpus
    values = corpus.part("train").X.nnz if corpus.has_test_half else corpus.X.nnz
    past = [
        Past("a", "anova", values, 1, {"select": 40.0, "evaluate": 50.0}, 10**8, 1, False),
        Past("b", "chi2", values, 1, {"select": 10.0, "evaluate": 50.0}, 10**8, 5, False),
    ]
    folds = forecast_methods(corpus, ["anova", "chi2", "mrmr"], {}, past)
    assert folds == (
        f"about {(40 + 5 * 50 + 10 + 50) / 60:.1f} min for anova, chi2, by their runs here; no run "
        f"here is by mrmr"
    )
    share = forecast_methods(corpus, ["anova"], {"test_size": 0.3}, past)
    assert share == "about 1.5 min for anova, by their runs here"
    assert forecast_methods(corpus, ["mrmr"], {}, past) is None
    assert forecast_methods(corpus, ["chi2"], {"test_size": 0.3}, past) is None  # 20 s


def test_a_method_that_never_ran_here_is_told_by_a_pass_and_the_cap(plan):
    other = Past("other", "mrmr", 10, 2, {"select": 4.0}, 10**8, 1, False)
    line = forecast(plan("rlsr"), [other])
    assert "passes over" in line
    assert "a pass takes about" in line
    assert line.endswith("at most 200 rounds: no run here is by rlsr")
    assert forecast(plan(), []) is None  # it is short, as far as the values tell


def test_only_runs_of_this_machine_are_taken(bigfs, tmp_path, monkeypatch):
    write_corpus(tmp_path / "corpus.svm", seed=0)
    bigfs(*("run", "corpus.svm", "-m", "anova", "-n", 8, "--test-size", 0.3, "--workers", 0))
    for name, text in (
        ("list", "[]"),
        ("empty", "{}"),
        ("no", "json"),
        ("stages", '{"version": 1}'),
    ):
        (tmp_path / "runs" / name).mkdir()  # of other programs
        (tmp_path / "runs" / name / "run.json").write_text(text)
    [found] = past_runs("runs/new")
    assert (found.method, found.splits, found.has_test) == ("anova", 1, False)
    assert set(found.seconds) == {"select", "evaluate"}
    assert found.values > 0
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert list(past_runs("runs/new")) == []
