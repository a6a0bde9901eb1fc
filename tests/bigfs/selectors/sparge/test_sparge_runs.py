"""SparGE's runs: what they share, what they read, and what becomes of them when something dies."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import weakref

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from bigfs import Matrix, SparGE, SparGECV, engine, storage
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.cutting_plane.loop import cutting_plane, solve_jointly
from bigfs.cutting_plane.relaxation import Relaxation
from bigfs.embedding.targets import lda_factor
from bigfs.result import observe
from bigfs.selectors.sparge import cross_validation, fold_scores
from bigfs.selectors.sparge.fold_scores import training_data
from bigfs.storage.format import manifest, verified
from bigfs.storage.runs.runs import Run

pytestmark = pytest.mark.slow

SOURCE = "synthetic:newswire?rows=1000"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return storage.stage(SOURCE, tmp_path_factory.mktemp("sparge") / "news.zarr", tile_rows=50)


# --- several runs in the same passes --------------------------------------------------------------


@pytest.mark.parametrize("embedding", ["lda", "lpp"])
def test_a_path_gives_what_separate_fits_give_in_the_passes_of_the_longest(text, embedding):
    X, y = text
    sizes = [4, 12, 30]
    matrix = Matrix.from_array(X, tile_columns=17)
    _ = matrix.stats
    selector = SparGE(embedding=embedding)
    if embedding == "lpp":
        selector.set_params(weighting="degree")
    own = {m: clone(selector).set_params(n_features_to_select=m).fit(matrix, y) for m in sizes}
    path = selector.fit_path(matrix, y, sizes)
    assert list(path) == sizes
    for m in sizes:
        np.testing.assert_array_equal(path[m].selected_, own[m].selected_)
        np.testing.assert_array_equal(path[m].scores_, own[m].scores_)
        assert path[m].result_.history == own[m].result_.history
        assert path[m].result_.stats["objective"] == own[m].result_.stats["objective"]
        assert path[m].result_.stats["passes"] == max(one.n_iter_ for one in own.values()) + 1
        assert path[m].transform(X).shape == (120, m)
    assert len({one.n_iter_ for one in own.values()}) > 1  # else the longest would be all of them


def test_a_path_keeps_the_names_and_takes_all_of_too_few_features(text):
    pandas = pytest.importorskip("pandas")
    X, y = text
    frame = pandas.DataFrame(X.toarray(), columns=[f"term {j}" for j in range(80)])
    assert (
        SparGE().fit_path(frame, y, [3])[3].get_feature_names_out().tolist()
        == SparGE(n_features_to_select=3).fit(frame, y).get_feature_names_out().tolist()
    )
    with pytest.warns(UserWarning, match="n_features_to_select=81 but X has only 80") as said:
        path = SparGE().fit_path(X, y, [3, 81])
    assert len(said) == 1
    assert [len(path[m].selected_) for m in (3, 81)] == [3, 80]


# --- γ by cross-validation ------------------------------------------------------------------------


def test_the_largest_gamma_within_a_standard_error_of_the_best_is_chosen(text):
    X, y = text
    gammas = (30.0, 0.01, 1.0, 0.1)
    selector = SparGECV(n_features_to_select=8, gammas=gammas, cv=4).fit(X, y)
    worse = selector.losses_ - selector.losses_[selector.losses_.mean(axis=1).argmin()]
    error = worse.std(axis=1, ddof=1) / np.sqrt(4)
    near = [g for g, one in zip(gammas, worse.mean(axis=1) <= error, strict=True) if one]
    assert selector.gamma_ == max(near)
    assert 1 < len(near) < 4
    same = SparGE(n_features_to_select=8, gamma=selector.gamma_).fit(X, y)
    np.testing.assert_array_equal(selector.scores_, same.scores_)


def test_the_held_out_loss_is_that_of_a_dense_ridge(text):
    """m = d leaves no choice of features, so the loss is in closed form, at the better of two
    penalties.
    """
    X, y = text
    dense, gammas = X.toarray().astype(float), (0.7, 9.0)
    selector = SparGECV(n_features_to_select=80, gammas=gammas, cv=4).fit(X, y)
    T, unit = lda_factor(y, 4)[y], np.mean(np.sum((dense - dense.mean(axis=0)) ** 2, axis=1))
    for found, (a, b) in zip(
        selector.losses_[0],
        StratifiedKFold(4, shuffle=True, random_state=0).split(dense, y),
        strict=True,
    ):
        Z, R = dense[a] - dense[a].mean(axis=0), T[a] - T[a].mean(axis=0)
        target, losses = T[b] - T[a].mean(axis=0), []
        for gamma in gammas:
            W = np.linalg.solve(Z.T @ Z + gamma * unit * np.eye(80), Z.T @ R)
            losses.append(
                np.sum((target - (dense[b] - dense[a].mean(axis=0)) @ W) ** 2) / np.sum(target**2)
            )
        assert found == pytest.approx(min(losses), rel=1e-8)


@pytest.mark.filterwarnings("ignore::bigfs.selectors.sparge.cross_validation.EndOfGridWarning")
def test_the_folds_share_their_passes(text):
    X, y = text
    matrix = Matrix.from_array(X, tile_columns=17)
    _ = matrix.stats
    cuts = []
    with observe(lambda name, record: cuts.append(name)):
        before = matrix.passes
        SparGECV(n_features_to_select=12, gammas=(0.5, 1.0, 4.0), cv=3).fit(matrix, y)
    assert matrix.passes - before == (cuts.count("SparGE folds of 12") + 1) + (
        cuts.count("SparGE") + 1
    )


@pytest.mark.filterwarnings("ignore::bigfs.selectors.sparge.cross_validation.EndOfGridWarning")
def test_large_folds_and_their_penalties_are_solved_by_themselves_with_the_same_losses(
    text, monkeypatch, change
):
    X, y = text
    selector = SparGECV(n_features_to_select=12, gammas=(0.5, 4.0), cv=3)
    together, names, held = clone(selector).fit(X, y), [], []
    folds = weakref.WeakSet()

    def make(*arguments):
        fold = training_data(*arguments)
        folds.add(fold)
        return fold

    def watch(name, record):
        names.append(name)
        held.append(len(folds))

    monkeypatch.setattr(fold_scores, "training_data", make)
    change(cross_validation.LARGE_FOLDS, 3 * 8 * 80**2 - 1)
    gc.disable()  # nothing may wait for the collector
    try:
        with observe(watch):
            alone = clone(selector).fit(X, y)
    finally:
        gc.enable()
    each = {f"SparGE fold {k} of 12, gamma {gamma}" for k in (1, 2, 3) for gamma in (0.5, 4.0)}
    assert set(names) == {*each, "SparGE"}
    assert max(held) == 1
    np.testing.assert_array_equal(alone.losses_, together.losses_)
    np.testing.assert_array_equal(alone.scores_, together.scores_)


def test_large_folds_end_at_a_penalty_that_is_worse_than_a_larger_one(text, change):
    X, y = text
    gammas = (1e-5, 1e-4, 0.001, 0.1, 10.0, 100.0)
    selector = SparGECV(gammas=gammas, n_features_to_select=12)
    every = clone(selector).fit(X, y)
    change(cross_validation.LARGE_FOLDS, 0)
    few = clone(selector).fit(X, y)
    tried = np.isfinite(few.losses_[:, 0])
    n_tried = int(tried.sum())
    assert 2 <= n_tried < len(gammas)
    assert tried[-n_tried:].all()
    np.testing.assert_array_equal(few.losses_[tried], every.losses_[tried])
    larger = every.losses_[-n_tried + 1 :]
    worse = every.losses_[-n_tried] - larger[np.argmin(larger.mean(axis=1))]
    assert worse.mean() > worse.std(ddof=1) / np.sqrt(3)
    assert few.gamma_ == every.gamma_
    np.testing.assert_array_equal(few.selected_, every.selected_)
    np.testing.assert_array_equal(np.isnan(few.cv_results_["mean_test_score"]), ~tried)


@pytest.mark.filterwarnings("ignore::bigfs.selectors.sparge.cross_validation.EndOfGridWarning")
def test_large_folds_of_one_size_do_not_go_on_from_those_of_another(text, tmp_path, change):
    X, y = text
    change(cross_validation.LARGE_FOLDS, 0)
    selector, run = (
        SparGECV(gammas=(0.3, 3.0), cv=2, tol=1e-4),
        Run.begin(tmp_path / "run", {"store": "x.zarr"}),
    )
    with observe(checkpoint=run.checkpoint("store")):
        for m in (4, 20):
            selector.set_params(n_features_to_select=m).fit(X, y)
            with observe():
                alone = clone(selector).fit(X, y)
            np.testing.assert_array_equal(selector.losses_, alone.losses_)
            np.testing.assert_array_equal(selector.scores_, alone.scores_)


def test_folds_see_nothing_of_the_samples_outside(text):
    """Spoil a fold's samples: what is chosen and fitted without them does not change, and its loss
    does.
    """
    X, y = text
    T, inside = lda_factor(y, 4)[y], np.flatnonzero(np.arange(120) % 3)
    spoiled = X.toarray()
    spoiled[::3] = np.random.default_rng(0).uniform(0, 9, (40, 80))
    found = []
    for data, T_fold in ((X, T), (spoiled, np.where((np.arange(120) % 3 == 0)[:, None], 7.0, T))):
        fold = training_data(GatheredColumns(Matrix.from_array(data), T_fold), inside)
        found.append(cutting_plane(Relaxation(fold, 6, 0.5), tol=1e-6, max_iter=50).value)
    np.testing.assert_array_equal(found[0].features, found[1].features)
    np.testing.assert_allclose(found[0].W, found[1].W, atol=1e-7)


def test_folds_hold_one_factor_at_a_time(text, monkeypatch):
    X, y = text
    data = GatheredColumns(Matrix.from_array(X), lda_factor(y, 4)[y])
    fold = training_data(data, np.flatnonzero(np.arange(120) % 3))
    problems = [Relaxation(fold, 6, gamma) for gamma in (0.1, 0.5, 2.0)]
    held, keep_factor = [], Relaxation.keep_factor

    def watch(problem, *factor):
        keep_factor(problem, *factor)
        held.append(sum(other.last_factor is not None for other in problems))

    monkeypatch.setattr(Relaxation, "keep_factor", watch)
    solve_jointly(problems, tol=1e-6, max_iter=50, name="folds")
    assert set(held) == {1}


def test_no_factor_is_held_beside_the_elimination(text):
    X, y = text
    problem = Relaxation(GatheredColumns(Matrix.from_array(X), lda_factor(y, 4)[y]), 6, 0.5)
    cutting_plane(problem, tol=1e-6, max_iter=50)
    assert problem.last_factor is None


@pytest.mark.parametrize("embedding", ["cca", "sda", "lpp", "pca"])
def test_gamma_is_chosen_for_every_embedding(text, embedding):
    X, y = text
    selector = SparGECV(
        embedding=embedding,
        n_features_to_select=10,
        gammas=(0.3, 3.0),
        weighting="degree" if embedding in ("sda", "lpp") else "uniform",
    )
    assert selector.fit(
        X, np.where(np.arange(120) % 3, -1, y) if embedding == "sda" else y
    ).gamma_ in (0.3, 3.0)
    assert (selector.losses_ < 1.2).all()  # about as good as the mean, or better


def test_penalties_that_are_none_are_refused(text):
    X, y = text
    with pytest.raises(ValueError, match="must hold one or more positive numbers"):
        SparGECV(gammas=(1.0, 0.0)).fit(X, y)


# --- what a gather reads --------------------------------------------------------------------------


def test_a_gather_reads_only_the_chunks_that_hold_its_columns(store, monkeypatch):
    corpus = storage.open(store)
    index = np.array([3, 4, 977, 5000, 12_345, 19_999])
    expected = corpus.X.columns(np.arange(corpus.X.shape[1]))[:, index].toarray()
    read, get = set(), verified.VerifiedStore.get

    async def noted(self, key, *given, **more):
        read.add(key)
        return await get(self, key, *given, **more)

    monkeypatch.setattr(verified.VerifiedStore, "get", noted)
    engine.clear_cache()
    np.testing.assert_array_equal(corpus.X.columns(index).toarray(), expected)
    chunks = {key for key in read if "/c/" in key and key.split("/")[-3] in ("data", "indices")}
    wanted = set()
    for part in {tuple(key.split("/")[:3]) for key in chunks}:
        path = "/".join(part)
        indptr = corpus.X.column_tiles[0].store.read(f"{path}/indptr")
        size = corpus.X.column_tiles[0].store.chunk(f"{path}/data")
        for j in index:
            if indptr[j + 1] > indptr[j]:
                for chunk in range(indptr[j] // size, (indptr[j + 1] - 1) // size + 1):
                    wanted |= {f"{path}/{name}/c/{chunk}" for name in ("data", "indices")}
    assert chunks == wanted
    assert (
        len(wanted)
        < len(
            [
                k
                for k in manifest.checksums_of(corpus.uri, corpus.manifest.content).documents
                if "uns/columns" in k and "/c/" in k
            ]
        )
        / 2
    )


# --- what dies ------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_worker_killed_in_a_pass_changes_nothing(store):
    corpus = storage.open(store)
    whole = SparGE(n_features_to_select=30, gamma=3.0, tol=1e-6).fit(corpus.X, corpus.y)
    killed, passes = [], []
    with engine.cluster(workers=2, memory_limit="1GB") as client:
        first = min(client.run(os.getpid).values())
        assert len(corpus.X.column_tiles) > 4

        def strike(label, done, total):  # the third pass: killed after two of its tiles
            if (label, done) == ("scores", 1):
                passes.append(total)
            if len(passes) == 3 and done == 2 and not killed:
                os.kill(first, signal.SIGKILL)
                killed.append(first)

        with engine.progress(strike):
            other = SparGE(n_features_to_select=30, gamma=3.0, tol=1e-6).fit(corpus.X, corpus.y)
    assert killed
    np.testing.assert_array_equal(other.scores_, whole.scores_)
    assert other.result_.history == whole.result_.history


DIES = """
import os, sys
from bigfs import storage
from bigfs import SparGE
from bigfs.result import observe
from bigfs.storage.runs import Run

corpus = storage.open(sys.argv[1])
cuts = []
def note(name, record):
    cuts.append(record)
    print("cut", flush=True)
def die(name, record):
    note(name, record)
    if len(cuts) == 4:
        os._exit(9)
watch = die if sys.argv[3] == "dies" else note
question = {"store": sys.argv[1], "method": "sparge-lda", "features": 30, "parameters": {}}
with observe(watch, Run.begin(sys.argv[2], question).checkpoint("store")):
    selector = SparGE(n_features_to_select=30, gamma=3.0, tol=1e-6).fit(corpus.X, corpus.y)
print(*selector.selected_)
"""


@pytest.mark.nightly
def test_a_process_killed_between_cuts_goes_on_without_repeating_one(store, tmp_path):
    corpus = storage.open(store)
    whole = SparGE(n_features_to_select=30, gamma=3.0, tol=1e-6).fit(corpus.X, corpus.y)
    assert whole.n_iter_ > 5

    def run(how):
        return subprocess.run(
            [sys.executable, "-c", DIES, store, tmp_path / "run", how],
            capture_output=True,
            text=True,
            timeout=300,
        )

    first = run("dies")
    assert first.returncode == 9, first.stderr
    assert first.stdout.split() == ["cut"] * 4
    second = run("goes on")
    assert second.returncode == 0, second.stderr
    *cuts, selected = second.stdout.splitlines()
    assert len(cuts) == whole.n_iter_ - 3  # the fourth was made and not saved
    np.testing.assert_array_equal(np.array(selected.split(), dtype=int), whole.selected_)


@pytest.mark.nightly
@pytest.mark.parametrize("after", [3, 5, 9])
def test_runs_side_by_side_go_on_from_their_checkpoint(text, tmp_path, after):
    X, y = text
    selector, sizes, steps = SparGECV(gammas=(0.3, 3.0), cv=2, tol=1e-4), [4, 20], []
    whole = selector.fit_path(X, y, sizes)

    def die(name, record):
        steps.append(name)
        if len(steps) == after:
            raise KeyboardInterrupt

    run = Run.begin(tmp_path / "run", {"store": "x.zarr"})
    with contextlib.suppress(KeyboardInterrupt), observe(die, run.checkpoint("store")):
        selector.fit_path(X, y, sizes)
    with observe(lambda name, record: steps.append(name), run.checkpoint("store")):
        again = selector.fit_path(X, y, sizes)
    assert {"SparGE folds of 20", "SparGE path"} == set(steps)
    for m in sizes:
        np.testing.assert_array_equal(again[m].scores_, whole[m].scores_)
        assert again[m].result_.history == whole[m].result_.history
        assert again[m].gamma_ == whole[m].gamma_
