"""Atoms from batches against SPAMS in one call, and settings that must not change them."""

import builtins
import re

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.decomposition import sparse_encode

from bigfs import engine
from bigfs.advice import install_command
from bigfs.coding import dictionary
from bigfs.coding.dictionary import SpamsMissingError, default_atoms, learn_atoms
from bigfs.matrix import Matrix
from bigfs.result import NotConvergedWarning, Status, observe
from tests.helpers.fitting import MemoryCheckpoint

pytestmark = pytest.mark.slow

spams = pytest.importorskip("spams", reason="the extra bigfs[jgsc] is not installed")


def planted(seed):
    """1,200 × 60 sparse rows: about 3 of 20 sparse bases each, and some noise."""
    rng = np.random.default_rng(seed)
    bases = rng.random((20, 60)) * (rng.random((20, 60)) < 0.3)
    codes = rng.random((1200, 20)) * (rng.random((1200, 20)) < 0.15)
    X = codes @ bases + 0.01 * rng.random((1200, 60))
    return sp.csr_array(np.where(X > 0.02, X, 0))


@pytest.fixture
def signals():
    return planted(0)


def error(X, D, lam=0.05):
    """‖X − codes·Dᵀ‖² with scikit-learn's lasso codes: no SPAMS in the check."""
    X = X.toarray()
    codes = sparse_encode(X, D.T, algorithm="lasso_lars", alpha=lam)
    return float(np.sum((X - codes @ D.T) ** 2))


def one_call(X, start, lam, updates, rows):
    return spams.trainDL(
        sp.csc_matrix(X.T),
        D=start,
        lambda1=lam,
        iter=updates,
        batchsize=rows,
        numThreads=1,
        verbose=False,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(2))
@pytest.mark.parametrize("seed", range(3))
def test_atoms_from_batches_match_spams_in_one_call(seed, start):
    """The reconstruction is within 2 %, with the same first atoms, updates and rows per update."""
    signals = planted(seed)
    X, lam = Matrix.from_array(signals), 0.1 * np.sqrt((signals.data**2).sum() / signals.shape[0])
    first = dictionary._data_rows(X, 20, np.random.RandomState(start))
    ours = learn_atoms(X, 20, lam=0.1, batch_rows=100, epochs=8, seed=start).value.D
    whole = one_call(signals, first, lam, 96, 100)
    # there was something to learn
    assert error(signals, first, lam) > 5 * error(signals, whole, lam)
    assert error(signals, ours, lam) <= 1.02 * error(signals, whole, lam)


def test_atoms_of_real_text_match_spams_in_one_call(real_data):
    counts = scipy.io.loadmat(real_data / "PCMAC.mat")["X"].astype(float)
    X = sp.csr_array(counts / np.linalg.norm(counts, axis=1, keepdims=True))
    ours = learn_atoms(Matrix.from_array(X), 32, batch_rows=256, epochs=2, seed=0).value.D
    start = dictionary._data_rows(Matrix.from_array(X), 32, np.random.RandomState(0))
    whole = one_call(X, start, 0.05, 16, 256)
    assert error(X, ours) <= 1.02 * error(X, whole)


def test_tiles_and_density_do_not_matter(signals):
    one = learn_atoms(Matrix.from_array(signals), 16, batch_rows=256, seed=3).value.D
    tiled = learn_atoms(
        Matrix.from_array(signals, tile_rows=77), 16, batch_rows=256, seed=3
    ).value.D
    dense = learn_atoms(
        Matrix.from_array(signals.toarray(), tile_rows=500), 16, batch_rows=256, seed=3
    ).value.D
    np.testing.assert_array_equal(one, tiled)
    np.testing.assert_allclose(one, dense, atol=1e-10)  # sparse products round otherwise


def test_codes_equal_the_lasso_of_scikit_learn(signals):
    D = dictionary._data_rows(Matrix.from_array(signals), 20, np.random.RandomState(0))
    ours = dictionary.encode(spams.lasso, signals[:50], D, 0.1)
    theirs = sparse_encode(signals[:50].toarray(), D.T, algorithm="lasso_lars", alpha=0.1)

    def values(codes):
        return 0.5 * ((signals[:50].toarray() - codes @ D.T) ** 2).sum(axis=1) + 0.1 * np.abs(
            codes
        ).sum(axis=1)

    np.testing.assert_allclose(values(ours), values(theirs), rtol=1e-6)


def test_sweeps_equal_the_printed_loops(rng):
    """Compare with the loops as printed, D and B in full at every atom.

    They never raise ½tr(DᵀDA) − tr(DᵀB).
    """
    m = dictionary.GROUP * 2 + 5
    codes = rng.standard_normal((60, m))
    codes[:, 7] = 0  # an atom that nothing uses
    A, B, D = codes.T @ codes, rng.standard_normal((30, m)), rng.standard_normal((30, m))
    D /= np.linalg.norm(D, axis=0)
    printed = D.copy()
    for k in dictionary.SWEEPS * list(range(m)):
        if k != 7:
            u = printed[:, k] + (B[:, k] - printed @ A[:, k]) / A[k, k]
            printed[:, k] = u / max(1, np.linalg.norm(u))
    ours = dictionary.update_atoms(D, A, B)
    np.testing.assert_allclose(ours, printed, atol=1e-10)
    np.testing.assert_array_equal(ours[:, 7], D[:, 7])

    def surrogate(D):
        return 0.5 * np.trace(D.T @ D @ A) - np.trace(D.T @ B)

    assert surrogate(ours) < surrogate(D)


@pytest.mark.parametrize(
    ("n", "batch_rows"), [(1, 512), (10, 1), (10, 3), (1200, 100), (1201, 512), (5000, 512)]
)
def test_batches_cover_every_row_once_and_are_spread(n, batch_rows):
    batches = dictionary.spread_batches(n, batch_rows)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(n))
    assert len(batches) == -(-n // batch_rows)
    assert all(
        0 < len(b) <= batch_rows + dictionary.RUNS_PER_BATCH and np.all(np.diff(b) > 0)
        for b in batches
    )
    if n >= 1000:
        assert all(b.max() - b.min() > 0.5 * (n - 1) for b in batches)


def test_seed_decides(signals):
    X = Matrix.from_array(signals)
    first, again, other = (learn_atoms(X, 8, seed=s).value.D for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("batch_rows", "batches"), [(1200, 1), (500, 3), (20, 60)])
def test_few_batches_are_used_often_enough(signals, batch_rows, batches):
    updates = len(learn_atoms(Matrix.from_array(signals), 4, batch_rows=batch_rows).history)
    assert updates % batches == 0
    assert (
        max(dictionary.MIN_UPDATES, batches)
        <= updates
        < max(dictionary.MIN_UPDATES, batches) + batches
    )


def test_atoms_are_in_the_unit_ball_and_the_history_counts_batches(signals):
    result = learn_atoms(Matrix.from_array(signals), 12, batch_rows=500, epochs=2)
    assert result.status is Status.FINISHED
    # ⌈1200/500⌉ batches, twice
    assert [r["batches_left"] for r in result.history] == [5, 4, 3, 2, 1, 0]
    assert np.all(np.linalg.norm(result.value.D, axis=0) <= 1 + 1e-12)
    assert np.isfinite(result.value.D).all()


def test_interrupted_run_resumes_to_the_same_atoms(signals):
    X, settings = (
        Matrix.from_array(signals),
        {"n_atoms": 10, "batch_rows": 200, "epochs": 1, "seed": 0},
    )
    straight = learn_atoms(X, **settings).value.D
    checkpoint = MemoryCheckpoint(die_after=3)
    with pytest.raises(KeyboardInterrupt), observe(checkpoint=checkpoint):
        learn_atoms(X, **settings)
    seen = []
    with observe(callback=lambda name, record: seen.append(record), checkpoint=checkpoint):
        resumed = learn_atoms(X, **settings).value.D
    np.testing.assert_array_equal(straight, resumed)
    assert len(seen) == 3  # of six


def test_more_atoms_than_rows_and_empty_rows(rng):
    X = sp.csr_array(np.vstack([rng.random((5, 7)), np.zeros((2, 7))]))
    D = learn_atoms(Matrix.from_array(X), 10).value.D
    assert D.shape == (7, 10)
    assert np.isfinite(D).all()


@pytest.mark.parametrize(
    ("X", "message"),
    [(np.zeros((4, 3)), "zero everywhere"), (np.array([[1.0, np.nan], [0, 1]]), "contains NaN")],
)
def test_bad_data_is_refused_before_spams_sees_it(X, message):
    with pytest.raises(ValueError, match=message):
        learn_atoms(Matrix.from_array(X), 2)


def test_memory_is_projected(signals, allow_memory):
    X = Matrix.from_array(signals)
    allow_memory(50_000)
    with pytest.raises(engine.MemoryLimitError, match="a dictionary of 60 atoms over 60 features"):
        learn_atoms(X, 60)
    assert default_atoms(1200, 60) == 10  # 25,000 // (5 · 8 · 60)


def test_default_is_bounded_by_samples_features_and_256(allow_memory):
    allow_memory(10**12)
    assert default_atoms(1000, 30) == 30
    assert default_atoms(20, 300) == 20
    assert default_atoms(10**6, 10**4) == 256
    assert default_atoms(10**6, 10**5) == 125  # half of 1 GB // (5 · 8 · 10⁵), on any machine


def test_without_spams_the_extra_is_named(signals, monkeypatch):
    real = builtins.__import__

    def hide(name, *rest, **named):
        if name == "spams":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", hide)
    with pytest.raises(SpamsMissingError, match=re.escape(install_command("jgsc"))):
        learn_atoms(Matrix.from_array(signals), 4)


def test_no_warning_about_convergence(signals, recwarn):
    learn_atoms(Matrix.from_array(signals), 4)
    assert not [w for w in recwarn if issubclass(w.category, NotConvergedWarning)]
