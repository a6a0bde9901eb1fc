"""Highly variable genes against scanpy: numbers it gave, and scanpy itself where it is here."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import HighlyVariable, Matrix
from bigfs.linalg.loess import loess
from bigfs.matrix.tiles import BlockTile

# Of scanpy 1.11.5 (and of 1.12.4, but for the last, which depends on the order of the cells there):
# sc.pp.highly_variable_genes(A, n_top_genes=20, n_bins=8, flavor=…, batch_key=…, inplace=False)
# with A.X = COUNTS, or log1p(COUNTS / 4) but for seurat_v3. The `dispersions_norm` or
# `variances_norm` of every eighth gene, the genes chosen, and the `highly_variable_nbatches`.
EXPECTED = {
    ("seurat", False): (
        [
            -1.35384271,
            0.497612052,
            0.28464235,
            -0.380721776,
            -1.24827767,
            0.213353207,
            0.0666764041,
            -1.27860906,
            -0.249297243,
            -0.036905615,
            -0.320023091,
            0.216281662,
            0.093790678,
            -0.41689529,
            -0.980287862,
            2.29983558,
            -0.535313094,
            0.251152984,
            2.10436714,
            -0.34880367,
        ],
        [7, 18, 30, 34, 41, 47, 55, 57, 60, 65, 66, 68, 75, 87, 99, 120, 124, 141, 144, 150],
        [],
    ),
    ("seurat", True): (
        [
            -0.789356743,
            -0.146427522,
            0.635410599,
            -0.174400538,
            -1.03622618,
            -0.2654546,
            -0.460448746,
            -0.666054483,
            -0.691449116,
            0.175706253,
            0.103691178,
            0.415771718,
            0.529165484,
            -0.590174076,
            -0.545471967,
            0.698125284,
            0.147340921,
            0.399059072,
            1.23877771,
            0.639471229,
        ],
        [1, 6, 10, 36, 45, 51, 55, 57, 65, 66, 99, 100, 117, 120, 133, 135, 144, 149, 150, 152],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 2, 1],
    ),
    ("cell_ranger", False): (
        [
            -0.789973407,
            0.938960855,
            0.247571591,
            0.0178647778,
            -1.23796822,
            0.641220324,
            0.0406209524,
            -1.43599348,
            -0.599252491,
            -0.616190771,
            -0.370400753,
            0.268317617,
            -0.117970304,
            -0.404241171,
            -0.182117442,
            4.16336233,
            -0.247571591,
            0.407763547,
            4.13631623,
            -0.224994645,
        ],
        [7, 25, 30, 36, 47, 57, 60, 65, 68, 87, 91, 99, 106, 108, 120, 133, 135, 143, 144, 147],
        [],
    ),
    ("cell_ranger", True): (
        [
            -0.438433609,
            0.148081858,
            0.583983893,
            -0.269986332,
            -0.721911986,
            -0.568116456,
            -0.318421669,
            -0.718922361,
            0.173877447,
            0.124640191,
            0.0244264025,
            0.168262923,
            0.47351955,
            -0.712084986,
            -0.438777711,
            0.912029823,
            0.467361166,
            0.901637478,
            0.967978391,
            0.428629769,
        ],
        [1, 22, 25, 34, 36, 47, 57, 60, 65, 68, 90, 91, 99, 106, 117, 119, 124, 130, 143, 150],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0],
    ),
    ("seurat_v3", False): (
        [
            0.950820054,
            1.34661251,
            1.044203,
            0.801298112,
            0.543934337,
            1.03674512,
            0.924365856,
            0.580828965,
            0.999308145,
            1.01984139,
            0.95375823,
            0.979819839,
            1.02209712,
            0.765945892,
            0.633912326,
            1.74796168,
            0.899597612,
            1.18767652,
            1.85428236,
            1.00653016,
        ],
        [18, 30, 36, 41, 45, 47, 55, 57, 60, 66, 68, 75, 87, 99, 120, 124, 132, 133, 144, 150],
        [],
    ),
    ("seurat_v3", True): (
        [
            0.963218832,
            0.90229756,
            1.22107859,
            0.962295448,
            0.64688606,
            0.903860781,
            0.959827949,
            0.623296409,
            0.838523297,
            1.09194897,
            1.03270618,
            1.11767792,
            1.11603628,
            0.824670147,
            0.723690269,
            1.31687848,
            1.05346178,
            1.316287,
            1.43998912,
            1.17903288,
        ],
        [17, 25, 28, 29, 36, 41, 60, 70, 73, 83, 86, 90, 91, 103, 116, 128, 132, 136, 144, 155],
        [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1, 1],
    ),
}
CELL, GENE = np.ogrid[:60, :160]
MIXED = (CELL.astype(np.uint64) * 374761393 + GENE.astype(np.uint64) * 668265263) % 2**32
MIXED = (MIXED ^ (MIXED >> 13)) * 1274126177 % 2**32
RATES = (0.3 + GENE * 37 % 160 / 40) * (1 + 2 * ((CELL + GENE) % 11 == 0))
RATES = RATES * (1 - (GENE % 53 == 7) * (CELL % 3 == 0))
COUNTS = np.floor(-np.log1p(-((MIXED ^ (MIXED >> 16)) / 2**32)) * RATES)
BATCH = np.array(list("abc"))[np.arange(60) % 3]


def cells(flavor):
    return COUNTS if flavor.startswith("seurat_v3") else np.log1p(COUNTS / 4)


def by_rows(X):
    """A matrix by rows alone, in three tiles."""
    tiles = [BlockTile(a, a + 20, sp.csr_array(X[a : a + 20])) for a in (0, 20, 40)]
    return Matrix(X.shape, rows=tiles, local=True)


FORMS = {
    "dense": lambda X: X,
    "csr": sp.csr_array,
    "tiles": lambda X: Matrix.from_array(sp.csr_array(X), tile_rows=7, tile_columns=9),
    "rows": by_rows,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("flavor", "batched"), EXPECTED)
def test_genes_are_those_of_scanpy(flavor, batched, form):
    norms, chosen, n_batches = EXPECTED[flavor, batched]
    selector = HighlyVariable(n_features_to_select=20, flavor=flavor, n_bins=8)
    selector.fit(FORMS[form](cells(flavor)), batch=BATCH if batched else None)
    columns = selector.columns_
    name = "variances_norm" if flavor == "seurat_v3" else "dispersions_norm"
    np.testing.assert_allclose(columns[name][::8], norms, rtol=2e-8)
    assert np.flatnonzero(selector.support_).tolist() == chosen
    np.testing.assert_array_equal(columns["highly_variable"], selector.support_)
    assert columns.get("highly_variable_nbatches", np.empty(0))[::8].tolist() == n_batches


def residual_variances(X, theta):
    """The formula of Lause et al. on the dense matrix."""
    mu = np.outer(X.sum(1), X.sum(0)) / X.sum()
    with np.errstate(invalid="ignore"):
        r = np.nan_to_num((X - mu) / np.sqrt(mu + mu**2 / theta))
    return np.clip(r, -np.sqrt(len(X)), np.sqrt(len(X))).var(axis=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("theta", [100, 2.5])
def test_pearson_residuals_are_those_of_the_dense_formula(theta, form):
    X = COUNTS.copy()
    X[[3, 17]], X[:, [5, 80]], X[9, 11] = 0, 0, 900  # empty cells and genes, and one that is cut
    selector = HighlyVariable(n_features_to_select=20, flavor="pearson_residuals", theta=theta)
    selector.fit(FORMS[form](X))
    expected = residual_variances(X, theta)
    found = selector.columns_["residual_variances"]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert set(selector.selected_) == set(np.argsort(-expected, kind="stable")[:20])


@pytest.mark.parametrize("form", FORMS)
def test_pearson_residuals_rank_by_batches_and_then_by_their_median_rank(form):
    selector = HighlyVariable(n_features_to_select=20, flavor="pearson_residuals")
    selector.fit(FORMS[form](COUNTS), batch=BATCH)
    expected = np.array([residual_variances(COUNTS[k::3], 100) for k in range(3)])
    found = selector.columns_["residual_variances"]
    np.testing.assert_allclose(found, expected.mean(axis=0), rtol=1e-10)
    ranks = np.argsort(np.argsort(-expected, axis=1), axis=1).astype(float)
    ranks[ranks >= 20] = np.nan
    n_batches = np.sum(~np.isnan(ranks), axis=0)
    order = [
        (-n, np.median(r[~np.isnan(r)]) if n else np.inf)
        for n, r in zip(n_batches, ranks.T, strict=True)
    ]
    assert selector.selected_.tolist() == sorted(range(160), key=order.__getitem__)[:20]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper"])
@pytest.mark.filterwarnings("ignore")  # scanpy's own
def test_columns_are_those_of_the_scanpy_that_is_here(flavor, batched):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is no dependency: `make newest` has it")
    import anndata
    import pandas as pd

    if "v3" in flavor:
        pytest.importorskip("skmisc", reason="scanpy needs scikit-misc for seurat_v3")
    X = cells(flavor)
    if "v3" in flavor and batched:  # scanpy 1.12 rounds means so that it tells equal ones apart
        X = X * (1 + GENE / 977) + CELL % 5 * GENE / 1009
    frame = pd.DataFrame({"batch": pd.Categorical(BATCH)}, index=[f"c{i}" for i in range(60)])
    data = anndata.AnnData(X.copy(), obs=frame)
    data.var_names = [f"g{j:03d}" for j in range(160)]
    expected = scanpy.pp.highly_variable_genes(
        data,
        n_top_genes=20,
        flavor=flavor,
        batch_key="batch" if batched else None,
        inplace=False,
    ).loc[data.var_names]
    selector = HighlyVariable(n_features_to_select=20, flavor=flavor)
    selector.fit(X, batch=BATCH if batched else None)
    for name, values in selector.columns_.items():
        np.testing.assert_allclose(
            values.astype(float), expected[name].to_numpy(dtype=float), rtol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
@pytest.mark.parametrize("cutoffs", [{}, {"min_mean": 0.3, "max_mean": 0.9, "max_disp": 1.5}])
@pytest.mark.filterwarnings("ignore")  # scanpy's own
def test_cutoffs_are_those_of_the_scanpy_that_is_here(flavor, batched, cutoffs):
    scanpy = pytest.importorskip("scanpy", reason="scanpy is no dependency: `make newest` has it")
    import anndata
    import pandas as pd

    frame = pd.DataFrame({"batch": pd.Categorical(BATCH)}, index=[f"c{i}" for i in range(60)])
    data = anndata.AnnData(cells(flavor).copy(), obs=frame)
    data.var_names = [f"g{j:03d}" for j in range(160)]
    key = "batch" if batched else None
    expected = scanpy.pp.highly_variable_genes(
        data, flavor=flavor, batch_key=key, inplace=False, **cutoffs
    ).loc[data.var_names]
    selector = HighlyVariable(flavor=flavor, mode="cutoffs", **cutoffs)
    selector.fit(cells(flavor), batch=BATCH if batched else None)
    assert 0 < len(selector.selected_) < 160
    for name, values in selector.columns_.items():
        np.testing.assert_allclose(
            values.astype(float), expected[name].to_numpy(dtype=float), rtol=1e-6, err_msg=name
        )


@pytest.mark.parametrize("flavor", ["seurat", "cell_ranger"])
def test_cutoffs_choose_by_the_columns_and_the_constraints(flavor):
    between = HighlyVariable(flavor=flavor, mode="cutoffs", max_mean=1.0).fit(cells(flavor))
    mean, norm = (between.columns_[name] for name in ("means", "dispersions_norm"))
    expected = (mean > 0.0125) & (mean < 1.0) & (norm > 0.5)
    np.testing.assert_array_equal(between.support_, expected)
    assert (np.diff(norm[between.selected_]) <= 0).all()
    first, other = between.selected_[0], int(np.flatnonzero(~expected)[0])
    held = HighlyVariable(flavor=flavor, mode="cutoffs", keep=[other], forbid=[first])
    chosen = held.fit(cells(flavor)).selected_
    assert other in chosen
    assert first not in chosen


def test_a_batch_of_seurat_v3_counts_as_alone():
    batched = HighlyVariable(flavor="seurat_v3").fit(COUNTS, batch=BATCH).columns_
    alone = [
        HighlyVariable(flavor="seurat_v3").fit(COUNTS[b == BATCH]).columns_["variances_norm"]
        for b in "abc"
    ]
    np.testing.assert_allclose(batched["variances_norm"], np.mean(alone, axis=0), rtol=1e-12)
    np.testing.assert_allclose(batched["means"], COUNTS.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(batched["variances"], COUNTS.var(axis=0, ddof=1), rtol=1e-12)


def test_a_matrix_brings_its_batches():
    rows = np.arange(0, 60, 2)
    expected = HighlyVariable(n_features_to_select=20).fit(cells("")[rows], batch=BATCH[rows])
    whole = Matrix.from_array(cells(""), tile_rows=9)
    whole.batches = BATCH
    for part in (whole.take_rows(rows), whole.take_columns(np.arange(160)).take_rows(rows)):
        taken = HighlyVariable(n_features_to_select=20).fit(part)
        np.testing.assert_array_equal(taken.selected_, expected.selected_)


def test_the_paper_ranks_first_by_the_number_of_batches():
    selectors = {
        flavor: HighlyVariable(n_features_to_select=20, flavor=flavor).fit(COUNTS, batch=BATCH)
        for flavor in ("seurat_v3", "seurat_v3_paper")
    }
    rank, n_batches = (
        selectors["seurat_v3"].columns_[f"highly_variable_{name}"] for name in ("rank", "nbatches")
    )
    by = {flavor: selector.selected_.tolist() for flavor, selector in selectors.items()}
    assert by["seurat_v3"] == np.lexsort((-n_batches, rank))[:20].tolist()
    assert by["seurat_v3_paper"] == np.lexsort((rank, -n_batches))[:20].tolist()
    assert by["seurat_v3"] != by["seurat_v3_paper"]


def test_constant_and_forbidden_genes_come_last():
    X = np.log1p(COUNTS / 4)
    X[:, 3], X[:, 4] = 0, 1
    plain = HighlyVariable(n_features_to_select=5).fit(np.delete(X, [9, 50], axis=1))
    selector = HighlyVariable(n_features_to_select=5, forbid=[9, 50]).fit(X)
    kept = np.delete(np.arange(160), [9, 50])
    np.testing.assert_array_equal(selector.scores_[kept], plain.scores_)
    assert np.isnan(selector.columns_["dispersions_norm"][[3, 4, 9, 50]]).all()
    others = np.delete(selector.scores_, [3, 4, 9, 50])
    assert (selector.scores_[[3, 4, 9, 50]] < others.min()).all()


@pytest.mark.parametrize(
    ("flavor", "X", "batch", "message"),
    [
        ("seurat", COUNTS - 3, None, "Negative values in data"),
        ("seurat", sp.csr_array(COUNTS - 3), None, "Negative values in data"),
        ("seurat", COUNTS * 1e3, None, "takes the logarithms of normalized counts"),
        ("seurat", COUNTS * (150 / COUNTS.max()), None, "takes the logarithms of normalized"),
        ("seurat", COUNTS, ["a"] * 59, "X has 60 samples but batch has 59"),
        ("seurat", COUNTS, list(range(60)), "60 of 60 batches, such as 0, 1, 2, have one sample"),
        ("seurat", COUNTS, ["a"] * 59 + [None], "batch is missing for some samples"),
        ("seurat", COUNTS, [1.0] * 59 + [np.nan], "batch is missing for some samples"),
        (
            *("seurat_v3", np.tile([[0.0, 1], [2, 1]], (5, 20)), ["few"] * 10),
            "the batch few of 10 samples: span is too small .* join it with another batch",
        ),
    ],
)
def test_bad_input_is_one_line(flavor, X, batch, message):
    batch = None if batch is None else np.array(batch, dtype=object)
    with pytest.raises(ValueError, match=message) as error:
        HighlyVariable(flavor=flavor, n_features_to_select=2).fit(X, batch=batch)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features_to_select": 9}, "chooses the number of genes by itself"),
        ({"flavor": "seurat_v3"}, "has no cutoffs"),
    ],
)
def test_cutoffs_that_say_nothing_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        HighlyVariable(mode="cutoffs", **parameters).fit(COUNTS)


def test_seurat_v3_warns_of_values_that_are_no_counts():
    with pytest.warns(UserWarning, match="is for counts, and X holds values that are not whole"):
        HighlyVariable(flavor="seurat_v3").fit(COUNTS + 0.5)


def test_loess_follows_a_quadratic_exactly(rng):
    """A local quadratic has the values and slopes of a quadratic, and cubics interpolate it."""
    x = rng.normal(size=300)
    y = 1 - 2 * x + 3 * x**2
    np.testing.assert_allclose(loess(x, y, 0.3), y, rtol=1e-10, atol=1e-10)
    assert loess(x[:0], y[:0], 0.3).shape == (0,)


@pytest.mark.parametrize("flavor", ["seurat", "seurat_v3"])
def test_a_batch_of_one_cell_takes_no_part(flavor):
    batch = np.array(["a"] * 30 + ["alone"] + ["b"] * 29)
    several = batch != "alone"
    settings = {"flavor": flavor, "n_features_to_select": 5, "span": 0.8}
    with pytest.warns(UserWarning, match="1 of 3 batches, such as alone, have one sample") as said:
        selector = HighlyVariable(**settings).fit(COUNTS, batch=batch)
    assert len(said) == 1
    oracle = HighlyVariable(**settings).fit(COUNTS[several], batch=batch[several])
    np.testing.assert_array_equal(selector.scores_, oracle.scores_)
