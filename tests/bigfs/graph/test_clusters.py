"""Clusters that fall apart in the neighbor graph: what separates them is chosen."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from bigfs import JELSR, MCFS, MRSF, NDFS, SPEC, LaplacianScore, Matrix, SparGE
from bigfs.graph import Neighbors, affinity, components, knn, with_bridges
from bigfs.result import Status
from bigfs.selectors.base.sample_graph import neighbors_of, sample_graph
from bigfs.selectors.registry import METHODS, groups_of
from tests.helpers.fitting import fit_few_steps

# the axis that separates clusters varies far more than the others, as it should
pytestmark = pytest.mark.filterwarnings("ignore::bigfs.validation.UnequalScalesWarning")

N = 60  # samples per blob


def blobs(distance, d=6):
    """Two blobs of unit variance, which feature 0 alone tells apart."""
    X = np.random.default_rng(0).normal(size=(2 * N, d))
    X[:N, 0] += distance
    return X


def first_feature(selector, X):
    fit_few_steps(selector.set_params(n_features_to_select=1), X)
    return int(np.argmax(getattr(selector, "column_importance_", selector.scores_)))


# Their weights have the inverse unit of a feature, so one of larger spread scores less for the same
# use: their pages say to standardize.
STANDARDIZED = {"glspfs", "jhlsr"}
UNSUPERVISED = sorted(
    name
    for name, method in METHODS.items()
    if (groups_of(method) == ["none"] or name in STANDARDIZED)
    and "metric" in method.make().get_params()
)


def test_the_methods_without_classes_are_all_there():
    assert {
        "glspfs", "gsc", "jelsr", "jgsc", "jhlsr", "laplacian", "mcfs", "mrsf", "ndfs", "rjgsc",
        "sparge-lpp", "spec", "trace-ratio-laplacian", "udfs",
    } <= set(UNSUPERVISED)  # fmt: skip


@pytest.mark.parametrize("distance", [3, 5, 7, 20])
@pytest.mark.parametrize("name", UNSUPERVISED)
def test_the_feature_that_separates_blobs_is_first(name, distance):
    selector, X = METHODS[name].make(metric="euclidean"), blobs(distance)
    if "n_components" in selector.get_params() and name not in STANDARDIZED | {"spfs", "udfs"}:
        # one direction tells two blobs apart; NDFS has a column per cluster
        selector.set_params(n_components=2 if name == "ndfs" else 1)
    if name == "rjgsc":  # its loss is not squared, and at λ = 1 the codes explain next to nothing
        selector.set_params(lam=0.1)
    if name in STANDARDIZED:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    assert first_feature(selector, X) == 0


@pytest.mark.parametrize("distance", [3, 5, 7, 20])
@pytest.mark.parametrize(
    "selector",
    [
        SparGE(embedding="hsl", n_components=1, metric="euclidean"),
        SPEC(ranking="phi1", metric="euclidean"),
        SPEC(ranking="phi2", metric="euclidean"),
    ],
    ids=["hsl", "phi1", "phi2"],
)
def test_so_it_is_by_hyperedges_and_by_each_ranking_of_spec(selector, distance):
    assert first_feature(selector, blobs(distance)) == 0


ON_GRAPH = {
    "lpp": SparGE(embedding="lpp"),
    "mcfs": MCFS(),
    "mrsf": MRSF(),
    "spec": SPEC(),
    "jelsr": JELSR(),
    "ndfs": NDFS(n_components=5),
}


def five_clusters(clumps=0):
    """Five separated clusters on features 0 to 19, smooth inside on 20 to 79, the rest noise.

    A clump is eight samples far from all others.
    """
    rng = np.random.default_rng(1)
    y = np.arange(300) % 5
    X = 0.3 * rng.normal(size=(300, 200))
    X[:, :20] += 3 * rng.normal(size=(5, 20))[y]
    X[:, 20:80] += 0.5 * rng.normal(size=(300, 3)) @ rng.normal(size=(3, 60))
    for c in range(clumps):
        X[8 * c : 8 * c + 8, :20] = 6 * rng.normal(size=20) + 0.1 * rng.normal(size=(8, 20))
        y[8 * c : 8 * c + 8] = -1
    return X, y


@pytest.mark.parametrize("clumps", [0, 3])
@pytest.mark.parametrize("name", [*ON_GRAPH, "hsl"])
def test_separated_clusters_are_found_again_by_k_means(name, clumps):
    X, y = five_clusters(clumps)
    neighbors = knn(Matrix.from_array(X), 5, metric="euclidean")
    assert components(affinity(neighbors)).count == 5 + clumps
    selector = SparGE(embedding="hsl") if name == "hsl" else ON_GRAPH[name]
    selector.set_params(n_features_to_select=20, metric="euclidean").fit(X)
    kept = y >= 0
    found = KMeans(5, n_init=5, random_state=0).fit_predict(X[kept][:, selector.selected_[:20]])
    assert normalized_mutual_info_score(y[kept], found) > 0.95
    stats = selector.result_.stats
    assert (stats["n_components"], stats["n_joined"]) == (5 + clumps, 4 + clumps)
    assert stats["n_set_aside"] == 0


@pytest.mark.parametrize("name", list(ON_GRAPH))
def test_the_contrasts_of_a_given_graph_come_first(name):
    """Five parts, a part of four samples that is set aside, and an isolated sample."""
    X, y = five_clusters()
    X = np.vstack([X, 20 + X[:4], 40 + X[:1]])
    A = sp.block_diag(
        [affinity(knn(Matrix.from_array(X[:300]), 5, metric="euclidean"), "heat"), 1 - np.eye(4)]
    )
    A.resize((305, 305))
    selector = ON_GRAPH[name].set_params(n_features_to_select=20, graph=sp.csr_array(A))
    try:
        selector.fit(X)
    finally:
        selector.set_params(graph=None)
    stats = selector.result_.stats
    assert (stats["n_components"], stats["n_joined"], stats["n_set_aside"]) == (7, 0, 5)
    assert (stats["contrasts"], stats["graph_method"]) == (4, "given")
    found = KMeans(5, n_init=5, random_state=0).fit_predict(X[:300, selector.selected_[:20]])
    assert normalized_mutual_info_score(y, found) > 0.95


def test_graphs_in_memory_with_and_without_bridges_give_the_same():
    X, _ = five_clusters()
    neighbors = knn(Matrix.from_array(X), 5, metric="euclidean")
    expected = LaplacianScore(metric="euclidean").fit(X)
    for graph in (neighbors, with_bridges(Matrix.from_array(X), neighbors)):
        found = LaplacianScore(metric="euclidean", graph=graph).fit(X)
        np.testing.assert_array_equal(found.scores_, expected.scores_)
        assert found.result_.stats["n_joined"] == 4


# --- connected graphs ---------------------------------------------------------------------------

# The scores at commit 7345305, before components were joined, of X below.
BEFORE = {
    "laplacian": [
        0.9393987636424587,
        0.7692400036067667,
        0.7565420966928588,
        0.7537609238359801,
        0.7614179957099483,
        0.7647631369359296,
    ],
    "spec": [
        0.8111690924707463,
        1.2218044889909314,
        1.295077155211152,
        1.1715098044956387,
        1.285642554068926,
        1.2626258918562874,
    ],
    "mrsf": [
        0.009365897373893206,
        0.0025681308975805633,
        0.0019990687600083667,
        0.0010924354643290848,
        0.0032291516695357294,
        0.0016195180770090572,
    ],
    "jelsr": [
        0.025813389701737976,
        0.042158678034904806,
        0.043643236159048644,
        0.04550893423615609,
        0.04388218635091099,
        0.04408205027209771,
    ],
    "ndfs": [
        0.02407954440271561,
        0.016778248311436178,
        0.01884200000688099,
        0.004961135341288688,
        0.0216129579309363,
        0.02092352898184283,
    ],
    "sparge-lpp": [
        0.4312522777646943,
        0.19685976115889656,
        0.1616471999402884,
        0.20809414532922532,
        0.2320872068793383,
        0.18905353517940576,
    ],
    "sparge-hsl": [
        0.4135750178350636,
        0.1643941346923145,
        0.1310341479564327,
        0.126752395744863,
        0.23744672625225546,
        0.1991006911039709,
    ],
}


def connected():
    X = np.random.default_rng(5).normal(size=(350, 6))
    X[:, 0] += 2 * (np.arange(350) % 3)
    return X


@pytest.mark.parametrize("name", list(BEFORE))
def test_a_connected_graph_gives_what_it_gave(name):
    selector = METHODS[name].make(metric="euclidean", n_features_to_select=3)
    selector.fit(connected(), None)
    np.testing.assert_allclose(selector.scores_, BEFORE[name], rtol=1e-9, atol=1e-12)
    stats = selector.result_.stats
    assert (stats["n_components"], stats["n_joined"]) == (1, 0)
    assert stats.get("contrasts", 0) == stats.get("n_set_aside", 0) == 0


# --- what a graph says, and what is asked of it ---------------------------------------------------


def test_a_graph_with_negative_edges_is_refused(rng):
    X, A = rng.normal(size=(20, 4)), np.ones((20, 20))
    for wrong in (-1.0, np.nan, np.inf):
        A[2, 3] = A[3, 2] = wrong
        with pytest.raises(ValueError, match="negative or not finite"):
            LaplacianScore(graph=sp.csr_array(A)).fit(X)


@pytest.mark.parametrize("name", ["laplacian", "spec", "mcfs", "jelsr", "sparge-lpp"])
def test_an_asymmetric_graph_is_made_symmetric_with_a_warning(name, rng):
    from sklearn.neighbors import kneighbors_graph

    X = rng.normal(size=(50, 6))
    A = kneighbors_graph(X, 5)
    make = METHODS[name].make
    expected = make(graph=A.maximum(A.T), n_features_to_select=2).fit(X).scores_
    with pytest.warns(UserWarning, match="graph is not symmetric"):
        found = make(graph=A, n_features_to_select=2).fit(X).scores_
    np.testing.assert_array_equal(found, expected)


def test_the_diagonal_of_a_graph_does_not_count(rng):
    X = rng.normal(size=(50, 6))
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat")
    given = sp.csr_array(A + sp.diags_array(rng.random(50)))
    before = given.toarray()
    expected = LaplacianScore(graph=A).fit(X).scores_
    np.testing.assert_array_equal(LaplacianScore(graph=given).fit(X).scores_, expected)
    np.testing.assert_array_equal(given.toarray(), before)


def test_rounding_makes_no_warning(rng, recwarn):
    X = rng.normal(size=(50, 6))
    A = affinity(knn(Matrix.from_array(X), 5, metric="euclidean"), "heat")
    A.data *= 1 + 1e-15 * rng.normal(size=A.nnz)
    LaplacianScore(graph=A).fit(X)
    assert not recwarn.list


@pytest.mark.parametrize(
    "name", [name for name in METHODS if "n_neighbors" in METHODS[name].make().get_params()]
)
def test_few_samples_have_all_others_as_neighbors(name, rng):
    """Of six samples each has five others, and nine neighbors are those."""
    y = np.array([0, 1, 0, 1, 0, 1])
    X = np.abs(rng.normal(size=(6, 5))) + 2 * np.eye(5)[y]
    weak = {"beta": 0.01} if name == "ndfs" else {}
    asked = [
        METHODS[name].make(n_neighbors=k, n_features_to_select=2, **weak).fit(X, y) for k in (5, 9)
    ]
    np.testing.assert_array_equal(asked[1].scores_, asked[0].scores_)


def test_the_result_says_what_the_graph_and_the_embedding_are(monkeypatch, text):
    X = text[0]
    stats = SPEC(metric="euclidean").fit(X).result_.stats
    assert stats["graph_method"] == "exact"
    assert stats["embedding_status"] == "CONVERGED"
    assert stats["degenerate"] is False
    assert "graph_recall" not in stats
    assert SPEC().fit(X).result_.status is Status.EXACT
    neighbors = knn(Matrix.from_array(X), 5, method="approx", recall=0.5)
    for selector in (SPEC(), LaplacianScore()):
        result = selector.set_params(graph=neighbors).fit(X).result_
        assert result.status is Status.FINISHED
        assert result.stats["graph_recall"] == neighbors.info["recall"]


def test_an_embedding_that_ended_early_is_no_closed_form(monkeypatch, change, text):
    from bigfs.embedding import spectral
    from bigfs.result import NotConvergedWarning

    change(spectral.MAX_DENSE_VERTICES, 0)
    largest = spectral.largest_eigenvectors
    monkeypatch.setattr(
        spectral,
        "largest_eigenvectors",
        lambda *a, **options: largest(*a, **options | {"max_iter": 1}),
    )
    with pytest.warns(NotConvergedWarning):
        result = SPEC(n_components=2).fit(text[0]).result_
    assert result.status is Status.MAX_ITER
    assert result.stats["embedding_status"] == "MAX_ITER"


def test_neighbors_of_another_metric_are_taken_as_they_are(rng):
    X, _ = five_clusters()
    neighbors = knn(Matrix.from_array(X), 5, metric="euclidean")
    other = Neighbors(neighbors.index, neighbors.distance, "manhattan")
    graph = sample_graph(Matrix.from_array(X), other, 5, "cosine")
    assert (graph.stats["n_components"], graph.stats["n_joined"]) == (5, 0)
    assert graph.parts.n_parts == 5


def test_one_function_limits_the_neighbors(rng):
    X = Matrix.from_array(rng.normal(size=(4, 3)))
    assert neighbors_of(X, 9, "euclidean")[0].index.shape == (4, 3)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("method", ["sparge-lpp", "mcfs"])
def test_far_clumps_take_no_eigenvector(method, size, rng):
    """Edges from a clump to the rest weigh 1e-14: its samples are set aside."""
    parts = []
    for c in range(3):
        parts.append(rng.normal(size=(40, 12)) / 2)
        parts[-1][:, c] += 6
    for q in range(4):
        parts.append(rng.normal(size=(size, 12)) / 2)
        parts[-1][:, 4 + q] += 25 + 3 * q
    selector = METHODS[method].make(n_features_to_select=3, n_components=2, metric="euclidean")
    selector.fit(np.vstack(parts))
    assert sorted(selector.selected_) == [0, 1, 2]
    assert selector.result_.stats["n_set_aside"] == 4 * size


@pytest.mark.parametrize("method", ["sparge-lpp", "mcfs", "mrsf"])
def test_the_default_width_stops_at_positive_eigenvalues(method, rng):
    """The graph of the clusters has one contrast less than clusters, and nothing else."""
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 200))
    X[:, :3] += 4 * (y[:, None] == [0, 1, 2])
    A = sp.csr_array((y[:, None] == y) - np.eye(60))
    selector = METHODS[method].make(n_features_to_select=3, graph=A).fit(X)
    assert sorted(selector.selected_) == [0, 1, 2]
