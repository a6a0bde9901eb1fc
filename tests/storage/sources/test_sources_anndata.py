"""AnnData in, by its published encoding."""

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigfs import ANOVA, LaplacianScore, storage
from bigfs.flows.evaluation import selection
from bigfs.storage import sources
from bigfs.storage.anndata_view import MAX_CHUNK_BYTES
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging.scratch import TILE_NNZ
from tests.helpers.anndata import write_anndata, zarr_text
from tests.helpers.commands import fails
from tests.helpers.sources import SIZES, refused, rows_of, told_of


# zarr on its own strings
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "array"])
@pytest.mark.parametrize("container", ["zarr", "h5ad"])
def test_anndata(tmp_path, matrix, kind, container):
    path = tmp_path / f"cells.{container}"
    if container == "zarr":
        write_anndata(zarr.open_group(path, mode="w"), matrix, kind, zarr_text)
    else:
        h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")
        with h5py.File(path, "w") as file:
            write_anndata(
                file,
                matrix,
                kind,
                lambda group, name, values: group.create_dataset(name, data=values),
            )
    for size in SIZES:
        X, y, _, names = rows_of(sources.find(path), tmp_path, size)
        np.testing.assert_array_equal(X, matrix.toarray())
        assert y.tolist() == [i % 3 for i in range(23)]
        assert names.tolist() == [f"obs{i}" for i in range(23)]
    source = sources.find(path, label="cell").prepare(tmp_path)
    assert source.feature_names == [f"var{j}" for j in range(17)]
    assert rows_of(source, tmp_path, 200)[1].tolist() == ["", *["B", "T"] * 11]
    refused(
        path,
        r"no obs\['none'\], only cell, label|no " r"obs\['none'\], only label, cell",
        tmp_path,
        label="none",
    )
    refused(path, "has no layers/raw", tmp_path, layer="raw")


@pytest.fixture
def named(tmp_path, matrix):
    """A folder with symbols beside the index of var, and a raw part of fewer genes."""
    path = tmp_path / "cells.zarr"
    root = zarr.open_group(path, mode="w")
    write_anndata(root, matrix, "csr_matrix", zarr_text)
    symbols = ["CD3E", "CD3E-1", "CD3E", "", "CD3E", *(f"G{j}" for j in range(5, 17))]
    zarr_text(root["var"], "symbol", symbols)
    root["var/symbol"].attrs["encoding-type"] = "string-array"
    write_anndata(root.create_group("raw"), matrix[:, :6], "csr_matrix", zarr_text)
    return path


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_names_of_features_come_from_a_column(named, tmp_path, matrix):
    source = sources.find(named, names="symbol")
    unique = ["CD3E", "CD3E-1", "CD3E-2", "var3", "CD3E-3", *(f"G{j}" for j in range(5, 17))]
    assert source.prepare(tmp_path).feature_names == unique
    plain = sources.find(named)
    assert plain.prepare(tmp_path).feature_names == [f"var{j}" for j in range(17)]
    assert source.fingerprint() != plain.fingerprint()
    refused(named, r"has no var\['feature_name'\], only symbol", tmp_path, names="feature_name")
    uri = storage.stage(f"{named}?names=symbol", tmp_path / "staged.zarr")
    corpus = storage.open(uri)
    selector = ANOVA(n_features_to_select=3, keep=["CD3E"]).fit(corpus.X, corpus.y)
    corpus.write_var(selector)
    assert zarr.open_group(named)["var/bigfs_selected"][:].sum() == 3
    assert zarr.open_group(named)["var/bigfs_selected"][0]


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_raw_is_read_with_its_own_features(named, tmp_path, matrix):
    source = sources.find(f"{named}?raw=true")
    X, y, _, _ = rows_of(source, tmp_path, 200)
    np.testing.assert_array_equal(X, matrix[:, :6].toarray())
    assert y.tolist() == [i % 3 for i in range(23)]
    assert source.prepare(tmp_path).feature_names == [f"var{j}" for j in range(6)]
    with pytest.raises(SourceError, match="raw has no layers"):
        sources.find(named, raw=True, layer="counts")


def test_a_staged_store_is_a_source_itself(tmp_path):
    """What we write is AnnData's layout: the same matrix, labels, split and names come back."""
    source = sources.find("synthetic:newswire?rows=300")
    uri = storage.stage(source, tmp_path / "nw.zarr")
    again = sources.find(uri)
    assert again.format == "anndata"
    X, y, split, _ = rows_of(again, tmp_path / "scratch", 10_000)
    expected = source.read((0, 300))
    # a store has the training rows first
    labels, splits = (told_of([expected], role) for role in ("label", "split"))
    order = np.argsort(splits == "test", kind="stable")
    np.testing.assert_array_equal(X, expected.X.toarray()[order])
    assert y.tolist() == [source.class_names[c] for c in labels[order]]
    assert split.tolist() == splits[order].tolist()
    assert again.prepare(tmp_path).feature_names == list(source.feature_names)


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_what_suits_is_used_where_it_lies(tmp_path, matrix, change):
    path = tmp_path / "cells.zarr"
    write_anndata(zarr.open_group(path, mode="w"), matrix, "csr_matrix", zarr_text)
    zarr_text(
        zarr.open_group(path)["obs"], "split", ["train", "test", "train"] * 7 + ["test", "test"]
    )
    change(TILE_NNZ, 10)
    corpus, staged = storage.open(path), storage.open(storage.stage(path, tmp_path / "staged.zarr"))
    assert len(corpus.X.row_tiles) > 3
    X = matrix.toarray().astype(np.float32)
    np.testing.assert_array_equal(corpus.X @ np.eye(17), X)
    np.testing.assert_array_equal(corpus.X.columns([3, 1]).toarray(), X[:, [3, 1]])
    assert (corpus.class_names, corpus.y.tolist()) == (["0", "1", "2"], [i % 3 for i in range(23)])
    assert list(corpus.feature_names) == list(staged.feature_names[:])
    for half in corpus.splits:
        part, same = corpus.part(half), staged.part(half)
        np.testing.assert_array_equal(part.X @ np.eye(17), same.X @ np.eye(17))
        assert (part.y.tolist(), list(part.sample_names)) == (
            same.y.tolist(),
            list(same.sample_names),
        )
        assert (list(part.split), part.splits, part.has_test_half) == (
            list(same.split),
            same.splits,
            False,
        )
        assert repr(part) == f"<AnnDataCorpus {path}: {same.X.shape[0]} × 17>"
        assert part.part(half).y.tolist() == part.y.tolist()
        with pytest.raises(StoreError, match=f"has no rows of split 'all'; it has {half}"):
            part.part("all")
        np.testing.assert_allclose(
            ANOVA().fit(part.X, part.y).scores_, ANOVA().fit(same.X, same.y).scores_, rtol=1e-6
        )
    assert corpus.has_test_half
    with pytest.raises(StoreError, match="this step needs a staged store: bigfs stage"):
        storage.check(path)
    change(MAX_CHUNK_BYTES, 10)
    with pytest.raises(StoreError, match="has chunks of 0 MB, too large"):
        storage.open(path)
    write_anndata(zarr.open_group(path, mode="w"), matrix, "csc_matrix", zarr_text)
    with pytest.raises(StoreError, match="holds X as csc"):
        storage.open(path)


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
@pytest.mark.parametrize("staged", [True, False])
def test_anndata_without_label_names_the_columns_that_could_be_it(tmp_path, matrix, staged):
    path = tmp_path / "cells.zarr"
    write_anndata(zarr.open_group(path, mode="w"), matrix, "csr_matrix", zarr_text)
    root = zarr.open_group(path)
    root["obs"]["batch"] = root["obs"]["label"][:]
    del root["obs"]["label"]
    corpus = storage.open(storage.stage(path, tmp_path / "staged.zarr") if staged else path)
    with pytest.raises(
        ValueError,
        match=r"anova cannot learn from .*has no labels: give --label, one "
        r"of (batch, cell|cell, batch)",
    ):
        selection.selector_for(corpus, "anova", 2, {})
    selection.selector_for(corpus, "sparge-pca", 2, {})
    uri = storage.stage(path, tmp_path / "labeled.zarr", label="batch")
    selection.selector_for(storage.open(uri), "anova", 2, {})
    assert "label_columns" not in storage.open(uri).spec["source"]


def test_broken_anndata_names_the_file(tmp_path, matrix):
    path = tmp_path / "cells.zarr"
    root = zarr.open_group(path, mode="w")
    root.attrs["encoding-type"] = "anndata"
    refused(path, "has no X", tmp_path)
    group = root.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [23, 17]})
    refused(path, "is broken", tmp_path)


@pytest.fixture
def with_graph(tmp_path, matrix, rng):
    """A folder with a graph of its 23 cells, whose split is not in order, and the dense graph."""
    path = tmp_path / "cells.zarr"
    root = zarr.open_group(path, mode="w")
    write_anndata(root, matrix, "csr_matrix", zarr_text)
    zarr_text(root["obs"], "split", ["train", "test", "train"] * 7 + ["test", "train"])
    weights = np.triu(rng.random((23, 23)) * (rng.random((23, 23)) < 0.5), 1)
    A = sp.csr_array(weights + weights.T)
    for name in ("connectivities", "distances", "dense"):
        group = root.require_group("obsp").create_group(name)
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(A, part)
        kind = "array" if name == "dense" else "csr_matrix"
        group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": [23, 23]})
    return path, A.toarray()


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_a_graph_of_obsp_has_the_order_of_the_corpus(with_graph, tmp_path, bigfs):
    path, A = with_graph
    corpus = storage.open(storage.stage(path, tmp_path / "staged.zarr"))
    split = np.array(["train", "test", "train"] * 7 + ["test", "train"])
    order = np.argsort(split == "test", kind="stable")
    np.testing.assert_array_equal(corpus.obsp("connectivities").toarray(), A[np.ix_(order, order)])
    in_place = storage.open(path)
    np.testing.assert_array_equal(in_place.obsp("connectivities").toarray(), A)
    train = corpus.part("train")
    rows = np.flatnonzero(split == "train")
    for part in (train, in_place.part("train")):
        graph = part.obsp("connectivities")
        np.testing.assert_array_equal(graph.toarray(), A[np.ix_(rows, rows)])
    expected = LaplacianScore(n_features_to_select=3, graph=graph).fit(train.X)
    command = ("select", "staged.zarr", "--method", "laplacian", "--features", "3")
    options = ("--out", "run", "--workers", "0")
    status, _, err = bigfs(*command, *options, "--set", "graph=obsp/connectivities")
    assert status == 0, err
    run = Run.open(tmp_path / "run")
    np.testing.assert_array_equal(run.scores, expected.scores_)
    assert run.metadata["stats"]["graph_method"] == "given"
    assert not (tmp_path / "staged.graphs").exists()
    # the same graph is not read again, and another one is
    assert (
        "has this result already"
        in bigfs(*command, *options, "--set", "graph=obsp/connectivities")[2]
    )
    zarr.open_group(path)["obsp/connectivities/data"][:] = 1.0
    status, _, err = bigfs(*command, *options, "--set", "graph=obsp/connectivities")
    assert status == 0, err
    assert not np.array_equal(Run.open(tmp_path / "run").scores, expected.scores_)
    fails(bigfs(*command, "--out", "n", "--set", "graph=mine"), "graph must be obsp/NAME")
    fails(
        bigfs(
            "select",
            "staged.zarr",
            "--method",
            "anova",
            *command[4:],
            "--out",
            "n",
            "--set",
            "graph=obsp/connectivities",
        ),
        "anova has no parameter graph",
    )


@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_a_graph_that_does_not_fit_is_refused(with_graph, tmp_path):
    path, _ = with_graph
    corpus = storage.open(storage.stage(path, tmp_path / "staged.zarr"))
    for name, message in {
        "knn": r"has no obsp\['knn'\], only connectivities, dense, distances",
        "distances": "holds distances: give affinities",
        "dense": "has the encoding 'array', not csr_matrix of 23 × 23",
    }.items():
        with pytest.raises(SourceError, match=message):
            corpus.obsp(name)
    names = zarr.open_group(path)["obs/_index"]
    before = names[:]
    for wrong, message in {
        "obs1": "repeats names of samples",
        "mine": "has no sample 'obs0'",
    }.items():
        names[:] = np.array([wrong, *before[1:]])
        with pytest.raises(SourceError, match=message):
            corpus.part("test" if wrong == "obs1" else "train").obsp("connectivities")
