"""SMR against dense formulas, closed forms in its limits, and RFS-like convex optima."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.result import NotConvergedWarning, Status
from bigfs.selectors.images.smr import SMR
from bigfs.selectors.images.systems import CovarianceSystems, ImageLayout
from tests.helpers.fitting import fit_few_steps

M, N, CLASSES = 6, 5, 3


@pytest.fixture
def images(rng):
    """90 noisy 6 × 5 images in three classes that show at cells (1, 2) and (4, 0), C order, and
    y.
    """
    y = np.repeat(np.arange(CLASSES), 30)
    X = rng.standard_normal((90, M, N))
    X[:, 1, 2] += 2.0 * (y == 1)
    X[:, 4, 0] += 2.0 * (y == 2)
    return X.reshape(90, M * N), y


def onehot(y):
    return (y[:, None] == np.unique(y)).astype(float)


def dense_u_step(X, Y, V, D, alpha):
    """Solve the u-step sample by sample, with F = [X_iv_1; …; X_iv_k] and the dense L_c."""
    n = len(X)
    Lc = np.eye(n) - 1 / n
    Us = []
    for r in range(Y.shape[1]):
        k = V[r].shape[1]
        # kM × n
        F = np.stack([np.concatenate([x @ V[r][:, a] for a in range(k)]) for x in X], axis=1)
        A = np.block(
            [
                [
                    np.diag([np.sum(V[r][:, a] * V[r][:, b] * D[i]) for i in range(len(D))])
                    for b in range(k)
                ]
                for a in range(k)
            ]
        )
        u = np.linalg.solve(F @ Lc @ F.T + alpha * A, F @ Lc @ Y[:, r])
        Us.append(u.reshape(k, len(D)).T)
    return Us


def dense_smr(X, y, alpha, k, p, zeta, rounds):
    """Run Alg. 1 as printed (eq. 23 and 35 corrected) after a round at D = 1.

    Nothing is made orthonormal, and the objective is computed from its definition.
    """
    X, Y = X.reshape(len(X), M, N), onehot(y)
    V = [np.eye(N, k)] * Y.shape[1]
    D = np.ones((M, N))
    history = []

    def weights(U, V):
        P = np.stack([u @ v.T for u, v in zip(U, V, strict=True)])
        return p / 2 * ((P**2).sum(axis=0) + zeta) ** (p / 2 - 1), P

    for i in range(1 + rounds):
        U = dense_u_step(X, Y, V, D, alpha)
        D = weights(U, V)[0] if i else D
        V = dense_u_step(X.transpose(0, 2, 1), Y, U, D.T, alpha)
        D, P = weights(U, V)
        fitted = np.einsum("nij,rij->nr", X, P)
        residual = fitted - fitted.mean(axis=0) - Y + Y.mean(axis=0)
        history.append(np.sum(residual**2) + alpha * np.sum(((P**2).sum(axis=0) + zeta) ** (p / 2)))
    return P, history[1:]


def fit(X, y, **parameters):
    return fit_few_steps(SMR(**{"sample_shape": (M, N), **parameters}), X, y)


@pytest.mark.parametrize("gram", ["kernel", "covariance", "samples"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("k", "p"), [(1, 1.0), (2, 1.0), (3, 0.5), (2, 1.5)])
def test_rounds_are_the_papers(images, gram, order, k, p):
    X, y = images
    stored = X if order == "C" else X.reshape(-1, M, N).transpose(0, 2, 1).reshape(len(X), -1)
    model = fit(stored, y, alpha=3.0, k=k, p=p, gram=gram, order=order, max_iter=6, tol=0)
    P, history = dense_smr(X, y, 3.0, k, p, model.result_.stats["zeta"], rounds=6)
    np.testing.assert_allclose([r["objective"] for r in model.result_.history], history, rtol=1e-6)
    np.testing.assert_allclose(
        model.score_map_, np.sqrt((P**2).sum(axis=0)), atol=1e-6 * np.abs(P).max()
    )


def test_intercept_and_factors_are_those_of_the_loss(images):
    """The last objective, recomputed from U_, V_, intercept_ and the definition alone."""
    X, y = images
    model = fit(X, y, alpha=3.0, k=2)
    P = np.stack([u @ v.T for u, v in zip(model.U_, model.V_, strict=True)])
    residual = np.einsum("nij,rij->nr", X.reshape(-1, M, N), P) + model.intercept_ - onehot(y)
    value = np.sum(residual**2) + 3.0 * np.sum(
        np.sqrt((P**2).sum(axis=0) + model.result_.stats["zeta"])
    )
    assert model.result_.history[-1]["objective"] == pytest.approx(value, rel=1e-10)


def test_full_rank_with_p_2_is_ridge(images):
    X, y = images
    model = fit(X, y, alpha=7.0, k=N, p=2.0, max_iter=3)
    ridge = Ridge(alpha=7.0).fit(X, onehot(y))
    np.testing.assert_allclose(model.scores_, np.linalg.norm(ridge.coef_, axis=0), rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, ridge.intercept_, rtol=1e-9)


def test_full_rank_with_p_1_meets_the_optimality_condition(images):
    """With k = N the problem is convex in P: 2 XcᵀR + α p_j/√(‖p_j‖² + ζ) = 0 for every cell j."""
    X, y = images
    model = fit(X, y, alpha=10.0, k=N, max_iter=3000, tol=1e-15)
    P = np.stack([(u @ v.T).ravel() for u, v in zip(model.U_, model.V_, strict=True)], axis=1)
    Xc, Yc = X - X.mean(axis=0), onehot(y) - onehot(y).mean(axis=0)
    pull = 2 * Xc.T @ (Xc @ P - Yc)
    push = 10.0 * P / np.sqrt((P**2).sum(axis=1) + model.result_.stats["zeta"])[:, None]
    # a row that goes to zero does so geometrically and is at 1e-5 of the others here; its own
    # condition comes last
    alive = model.scores_ > 1e-3 * model.scores_.max()
    assert 0 < alive.sum() < M * N
    assert np.linalg.norm((pull + push)[alive]) <= 1e-4 * np.linalg.norm(push)
    assert np.all(np.linalg.norm(pull[~alive], axis=1) <= 10.0 * (1 + 1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("k", [1, 4])
def test_the_objective_never_rises(images, k, p):
    X, y = images
    values = [
        r["objective"] for r in fit(X, y, alpha=20.0, k=k, p=p, max_iter=200, tol=0).result_.history
    ]
    assert np.all(np.diff(values) <= 1e-10 * values[0])  # rounding


def test_finds_the_cells_where_classes_show(images):
    X, y = images
    best = fit(X, y, alpha=20.0, k=2, n_features_to_select=2).get_support(indices=True)
    assert set(best) == {1 * N + 2, 4 * N + 0}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("transpose", [False, True])
def test_grams_of_the_covariance_are_those_of_the_images(rng, order, transpose):
    """Of 11 classes with two columns each, more than the 3 or 5 that one product has."""
    X, layout = rng.standard_normal((20, 15)), ImageLayout(5, 3, order)
    images = (X - X.mean(axis=0)).reshape((20, 5, 3) if order == "C" else (20, 3, 5))
    if (order == "F") != transpose:
        images = images.swapaxes(1, 2)
    V = rng.standard_normal((11, images.shape[2], 2))
    tiled, none = Matrix.from_array(X, tile_rows=7), np.empty(0, dtype=int)
    grams = CovarianceSystems(tiled, X[:, :1], layout, none).grams(V, transpose)
    for Vr, gram in zip(V, grams, strict=True):
        F = np.concatenate([images @ v for v in Vr.T], axis=1)
        np.testing.assert_allclose(gram, F.T @ F, atol=1e-12)


def test_tiles_cluster_storage_and_density_do_not_matter(images):
    X, y = images
    X = np.where(np.abs(X) > 1, X, 0)
    one = fit(X, y, k=2).scores_
    for other in (
        Matrix.from_array(X, tile_rows=13),
        Matrix.from_array(sp.csr_array(X), tile_rows=7),
    ):
        for gram in ("kernel", "covariance", "samples"):
            np.testing.assert_allclose(
                fit(other, y, k=2, gram=gram).scores_, one, rtol=1e-6, atol=1e-9
            )


def test_samples_route_reads_the_data_and_the_covariance_route_does_not(images):
    X, y = images
    passes = {}
    for gram in ("covariance", "samples"):
        matrix = Matrix.from_array(X)
        fit(matrix, y, gram=gram, max_iter=5, tol=0)
        passes[gram] = matrix.passes
    assert passes["covariance"] == 3  # statistics, Xᵀ Y, C
    assert passes["samples"] == 2 + 2 + 2 * 5  # statistics, Xᵀ Y, the round at D = 1, two per round


def test_auto_leaves_the_covariance_when_memory_is_short(images, allow_memory):
    X, y = images
    assert fit(X, y).result_.stats["route"] == "covariance"
    allow_memory(100_000)
    assert fit(X, y).result_.stats["route"] == "samples"
    allow_memory(10_000)
    with pytest.raises(engine.MemoryLimitError, match="covariance of the pixels"):
        fit(X, y, gram="covariance")


@pytest.mark.slow
def test_few_samples_of_many_features_need_no_square_of_the_features(rng, allow_memory):
    y = np.arange(30) % 3
    X = rng.normal(size=(30, 700))
    X[:, 7] += 3 * y
    allow_memory(8_000_000)  # the covariance takes 20 MB
    model = fit(X, y, sample_shape=None, n_features_to_select=1)
    assert model.result_.stats["route"] == "kernel"
    assert model.selected_.tolist() == [7]
    allow_memory(2_000_000_000)
    same = fit(X, y, sample_shape=None, gram="covariance")
    np.testing.assert_allclose(model.scores_, same.scores_, atol=1e-6 * same.scores_.max())


@pytest.mark.slow
def test_scaling_pixels_scales_the_map_only(images):
    """At X·t and P/t the penalty is 1/t of what it was, so α·t gives the same fit; the convex case
    has one optimum.
    """
    X, y = images
    settings = {"k": N, "max_iter": 3000, "tol": 1e-13}
    one, scaled = fit(X, y, alpha=10.0, **settings), fit(X * 100, y, alpha=1000.0, **settings)
    # ζ differs
    np.testing.assert_allclose(scaled.scores_ * 100, one.scores_, atol=1e-3 * one.scores_.max())


def test_stops_and_says_how(images):
    X, y = images
    with pytest.warns(NotConvergedWarning, match="SMR stopped at the iteration limit"):
        SMR(sample_shape=(M, N), max_iter=1).fit(X, y)
    assert fit(X, y, p=2.0, alpha=50.0).result_.status is Status.FINISHED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_shape": (6, 6)}, r"sample_shape must be \(M, N\) with M·N = 30"),
        ({"sample_shape": (30,)}, "sample_shape must be"),
        ({"p": 3.0}, "'p' parameter of SMR"),
        ({"alpha": 1e300}, "'alpha' parameter of SMR"),  # else NaN in LAPACK
        ({"alpha": 1e100}, "SMR tells no feature from another, because every score is zero"),
    ],
)
def test_bad_parameters_say_what_to_do(images, change, message):
    X, y = images
    with pytest.raises(ValueError, match=message):
        fit(X, y, **change)


@pytest.mark.parametrize("gram", ["kernel", "covariance", "samples"])
def test_a_forbidden_pixel_is_blank_in_every_image(images, gram):
    X, y = images
    blank = np.array(X)
    blank[:, [7, 22]] = 0
    expected, found = fit(blank, y, gram=gram), fit(X, y, gram=gram, forbid=[7, 22])
    others = np.delete(np.arange(X.shape[1]), [7, 22])
    np.testing.assert_allclose(found.scores_[others], expected.scores_[others], rtol=1e-6)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-8)
    assert (found.scores_[[7, 22]] == 0).all()


@pytest.mark.nightly
@pytest.mark.slow
def test_eyes_that_are_covered_are_not_chosen(real_data):
    """ORL: of 100 pixels, 14 would fall on the eyes by chance; more do, and hardly any once a block
    of noise covers them.
    """
    data = scipy.io.loadmat(real_data / "ORL.mat")
    X = data["X"].astype(float).reshape(400, 32, 32).transpose(0, 2, 1) / 255  # column-major
    covered, eyes = X.copy(), (slice(8, 14), slice(4, 28))
    covered[(slice(None), *eyes)] = 0.5 * np.random.default_rng(0).random((400, 6, 24))
    chosen = [
        fit(
            Z.reshape(400, -1),
            data["Y"].ravel(),
            sample_shape=(32, 32),
            alpha=1.0,
            n_features_to_select=100,
        ).get_support()
        for Z in (X, covered)
    ]
    as_they_are, behind = (int(mask.reshape(32, 32)[eyes].sum()) for mask in chosen)
    assert as_they_are > 2 * 14
    assert behind <= 14 / 4
