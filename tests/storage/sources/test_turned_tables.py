"""Tables of features × samples are read with `transpose=` as pandas turns them."""

import numpy as np
import pandas as pd
import pytest

from bigfs import engine, storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import find
from bigfs.storage.sources.tables import tables

R = np.random.default_rng(0)
CELLS = [f"GSM{10_001 + i}" for i in R.permutation(30)]
GENES = pd.DataFrame(R.poisson(0.6, (40, 30)) / 4, [f"g{j}" for j in R.permutation(40)], CELLS)
GENES.iloc[7] = 0
GENES.iloc[:, 3] = 0
GENES.index.name = "gene"
GAPS = GENES.mask(R.random(GENES.shape) < 0.1)


def write(frame, folder, name):
    folder.mkdir(exist_ok=True)
    path = folder / name
    if name.endswith("parquet"):
        frame.rename_axis(None).to_parquet(path, row_group_size=7)
    elif name.endswith("arrow"):
        frame.reset_index().to_feather(path)
    else:
        frame.to_csv(path, sep="\t" if ".tsv" in name else ",", na_rep="NA")
    return path


def read(uri):
    corpus = storage.open(uri)
    X = corpus.X.rows(range(corpus.X.shape[0])).toarray()
    return pd.DataFrame(X, corpus.sample_names[:], corpus.feature_names[:])


def same(found, wanted):
    assert found.index.tolist() == wanted.index.tolist()
    assert found.columns.tolist() == wanted.columns.tolist()
    assert np.array_equal(found.to_numpy(), wanted.to_numpy())


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet", "t.arrow"])
@pytest.mark.parametrize(
    ("frame", "options"), [(GENES, {}), (GAPS, {"missing": "zero"}), (GAPS, {})]
)
def test_it_is_the_table_that_pandas_turns(tmp_path, name, frame, options, change):
    change(tables.BATCH_BYTES, 1000)
    path = write(frame, tmp_path, name)
    turned = write(frame.T.rename_axis("id"), tmp_path, "turned.csv")
    found = storage.stage(path, tmp_path / "x.zarr", transpose=True, **options)
    columns = {"columns": "*", "missing": "mean"} | options
    same(read(found), read(storage.stage(turned, tmp_path / "y.zarr", **columns)))
    same(read(found), frame.T.fillna(0 if options else frame.mean(axis=1)).astype(np.float32))


def test_columns_and_rows_are_left_out(tmp_path):
    frame = GENES.assign(kind="a", length=3).reset_index().assign(id=range(40))
    frame.loc[::2, "kind"] = "b"
    frame[["id", *CELLS, "kind", "length", "gene"]].to_csv(tmp_path / "t.csv", index=False)
    options = {"columns": "GSM*", "names": "gene", "where": "kind == 'b'", "transpose": True}
    found = storage.stage(tmp_path / "t.csv", tmp_path / "x.zarr", **options)
    same(read(found), GENES.iloc[::2].T.astype(np.float32))


def test_a_table_of_the_samples_is_joined_by_their_names(tmp_path):
    facts = pd.DataFrame({"kind": [f"k{i % 3}" for i in range(30)], "cell": sorted(CELLS)})
    facts.to_csv(tmp_path / "m.csv", index=False)
    path = write(GENES, tmp_path, "t.tsv.gz")
    source = f"{path}?transpose=true&labels={tmp_path}/m.csv&label=kind"
    corpus = storage.open(storage.stage(source, tmp_path / "x.zarr"))
    known = facts.set_index("cell").kind
    names = corpus.sample_names[:].tolist()
    assert names == CELLS
    assert [corpus.class_names[code] for code in corpus.y] == known[names].tolist()


def test_new_samples_find_the_columns_and_the_means_of_a_store(tmp_path):
    path = write(GAPS, tmp_path, "t.csv")
    uri = storage.stage(path, tmp_path / "x.zarr", transpose=True)
    new = pd.DataFrame(np.nan, GAPS.index[::-1], ["new"])
    new.iloc[:5] = 2.0
    storage.append(write(new, tmp_path / "new", "t.csv"), uri, transpose=True)
    wanted = GAPS.mean(axis=1).astype(np.float32)
    wanted.iloc[-5:] = 2
    assert read(uri).loc["new"].tolist() == wanted.tolist()


def test_a_second_file_is_the_test(tmp_path):
    path, test = (
        write(f, tmp_path, n)
        for f, n in [(GENES.iloc[:, :20], "a.csv"), (GENES.iloc[::-1, 20:], "b.csv")]
    )
    uri = storage.stage(path, tmp_path / "x.zarr", test=test, transpose=True)
    same(read(uri), GENES.T.astype(np.float32))
    assert len(storage.open(uri).part("test").y) == 10


def test_pieces_do_not_matter(tmp_path):
    path = write(GENES, tmp_path, "t.csv")
    with engine.session():
        ready = find(path, transpose=True).prepare(tmp_path)
    parts = [ready.read(piece) for piece in ready.pieces(400)]
    assert len(parts) > 3
    assert np.array_equal(np.vstack([part.X.toarray() for part in parts]), GENES.T)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("gene,a,b\ng,1,2\nh,3,4\ng,5,6\n", {}, "record 3: 'g' comes again, after 1"),
        ("gene,a,b,a\ng,1,2,3\n", {}, "has two columns called 'a'"),
        ("gene,a,b\ng,1,2\nh,3\n", {}, "Expected 3 columns, got 2: h,3"),
        ("gene,a,b\ng,1,2\n,3,4\n", {}, r"row 1 \(from 0\): 'gene' must hold a text .*got 'none'"),
        ("gene,a,b\ng,1,x\n", {}, "column 'b' .*'x'.*: name it with names=, .* by columns=auto,!b"),
        ("gene,a,b\ng,1,\n", {"columns": "*"}, r"row 0 .*: column 'b' is missing: give missing="),
        ("gene,a,b\ng,1,2\n", {"label": "b"}, "label= names .* a column is no sample"),
        ("gene,a,b\ng,1,2\n", {"names": "c"}, "has no column 'c', only 'gene', 'a', 'b'"),
        ("gene,a,b\ng,1,2\n", {"transpose": False}, "rows of a table are samples without"),
        ("gene,a,b\n", {}, "holds no rows"),
        ("gene\ng\n", {}, "columns are none"),
    ],
    ids=[
        "name",
        "sample",
        "ragged",
        "none",
        "text",
        "gap",
        "label",
        "names",
        "false",
        "rows",
        "one",
    ],
)
def test_a_broken_one_is_refused_in_a_line(tmp_path, content, options, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(SourceError, match=message) as caught:
        storage.stage(tmp_path / "t.csv", tmp_path / "x.zarr", **({"transpose": True} | options))
    assert "\n" not in str(caught.value)
