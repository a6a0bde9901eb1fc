"""The same rows from every kind of source: one content, whatever the memory limit and the pieces,
and one error for one bad fact of one row.
"""

import contextlib
import json
from types import SimpleNamespace

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.staging import build
from tests.helpers.daily import daily

N, D = 60, 5
NAMES = [f"c{j}" for j in range(D)]
LIMITS = {"320MB": 300, "4GB": 1 << 25}  # of memory, and the bytes of a piece


def facts(**changed):
    """What is told of the samples: a column of a dictionary each."""
    told = {
        "label": [f"k{i % 3}" for i in range(N)],
        "split": ["test" if i % 4 == 3 else "train" for i in range(N)],
        "id": [f"row {i}" for i in range(N)],
        "who": [f"g{i % 7}" for i in range(N)],
        "w": [1.0 + i % 2 for i in range(N)],
    }
    for name, (i, value) in changed.items():
        told[name][i] = value
    return told


def matrix():
    rng = np.random.default_rng(0)
    return np.where(rng.random((N, D)) < 0.4, rng.integers(1, 9, (N, D)) / 4, 0.0)


# --- what a record holds ---


def numbers():
    return dict(zip(NAMES, matrix().T, strict=True))


def maps():
    rows = [[(NAMES[j], row[j]) for j in np.flatnonzero(row)] for row in matrix()]
    return {"features": pa.array(rows, pa.map_(pa.string(), pa.float64()))}


def lists():
    X = matrix()
    return {
        "i": [np.flatnonzero(row).tolist() for row in X],
        "v": [row[row != 0].tolist() for row in X],
    }


def structs():
    pairs = zip(*lists().values(), strict=True)
    return {"vector": [{"indices": i, "values": v} for i, v in pairs]}


def texts():
    """A word for each column, which comes four times its value."""
    counts = (4 * matrix()).astype(int).tolist()
    return {"text": [" ".join(np.repeat(NAMES, row)) for row in counts]}


OBS = {"group": "who", "sample_weight": "w"}
HOLDS = {
    "numbers": (numbers, {"columns": "c*", **OBS}),
    "maps": (maps, {"features": "features", **OBS}),
    "lists": (lists, {"indices": "i", "values": "v", "n_features": D, **OBS}),
    "structs": (structs, {"features": "vector", "n_features": D, **OBS}),
    "texts": (texts, {"text": "text", "min_df": 1, **OBS}),
}


# --- where it lies ---


def csv(folder, table):
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def parts(folder, table):
    for i in range(0, N, 20):
        table.slice(i, 20).to_pandas().to_csv(folder / f"part-{i:02}.csv", index=False)
    return folder


def jsonl(folder, table):
    rows = table.to_pylist(maps_as_pydicts="strict")
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "t.jsonl"


def parquet(folder, table, name="t"):
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=17)
    return folder / f"{name}.parquet"


def arrow(folder, table):
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=17)
    return folder / "t.arrow"


def pair(folder, table):
    """A file for each split, of which no record tells."""
    halves = {split: table.filter(pc.equal(table["split"], split)) for split in ("train", "test")}
    return {name: parquet(folder, half.drop("split"), name) for name, half in halves.items()}


def stream(folder, table):
    return (table.slice(i, 17) for i in range(0, N, 17))


def cells(told):
    """What has the attributes of an AnnData object."""
    obs = pd.DataFrame({k: v for k, v in told.items() if k != "id"}, index=told["id"])
    names = {"obs_names": obs.index, "var_names": pd.Index(NAMES), "layers": {}}
    var = pd.DataFrame(index=NAMES)
    return SimpleNamespace(X=matrix(), obs=obs, var=var, isbacked=False, is_view=False, **names)


def h5ad(folder, told):
    with h5py.File(folder / "t.h5ad", "w") as file:
        file.attrs["encoding-type"] = "anndata"
        file["X"] = matrix()
        file["X"].attrs["encoding-type"] = "array"
        for name, index in (("obs", told["id"]), ("var", NAMES)):
            file.create_group(name).attrs["_index"] = "_index"
            file[name]["_index"] = np.array(index, dtype=h5py.string_dtype())
        file["obs"]["w"] = told["w"]
        for name in ("label", "split", "who"):
            column = pd.Categorical(told[name])
            group = file["obs"].create_group(name)
            group.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0"})
            group["codes"] = column.codes
            group["categories"] = np.array(column.categories, dtype=h5py.string_dtype())
    return folder / "t.h5ad"


LIES = {
    **{"csv": csv, "folder of csv": parts, "jsonl": jsonl, "parquet": parquet, "arrow": arrow},
    **{"pair": pair, "stream": stream, "pyarrow": lambda folder, table: table},
    **{"pandas": lambda folder, table: table.to_pandas()},
    **{"polars": lambda folder, table: pl.from_arrow(table)},
}
KINDS = [
    *(f"numbers: {name}" for name in LIES if name != "jsonl"),
    *(f"texts: {name}" for name in LIES),
    *(f"{kind}: {name}" for kind in ("lists", "structs") for name in LIES if "csv" not in name),
    *(f"maps: {name}" for name in ("jsonl", "parquet", "arrow", "stream")),
    *("h5ad", "anndata"),
]
# of each way to read them
FEW = [
    *("numbers: csv", "numbers: parquet", "numbers: stream", "texts: csv", "texts: jsonl"),
    *(
        "texts: pair",
        "lists: jsonl",
        "structs: jsonl",
        "structs: parquet",
        "maps: jsonl",
        "maps: arrow",
        "h5ad",
    ),
]


def svmlight(folder):
    y = [i % 3 for i in range(N)]
    dump_svmlight_file(matrix(), y, str(folder / "t.svm"), zero_based=False)
    return folder / "t.svm", {"n_features": D}


def vw(folder):
    rows = (" ".join(f"{NAMES[j]}:{row[j]}" for j in np.flatnonzero(row)) for row in matrix())
    lines = (f"{i % 3} | {row}\n" for i, row in enumerate(rows))
    (folder / "t.vw").write_text("".join(lines))
    return folder / "t.vw", {}


def saved(folder, X, save, suffix):
    save(folder / f"t{suffix}", X)
    (folder / "y.txt").write_text("".join(f"{i % 3}\n" for i in range(N)))
    return folder / f"t{suffix}", {"labels": str(folder / "y.txt")}


def matlab(folder):
    scipy.io.savemat(folder / "t.mat", {"X": matrix(), "Y": np.arange(N)[:, None] % 3})
    return folder / "t.mat", {}


Y = np.arange(N) % 3
BARE = {  # without names of columns, labeled by numbers
    "svmlight": svmlight,
    "vw": vw,
    "npy": lambda folder: saved(folder, matrix(), np.save, ".npy"),
    "csr": lambda folder: saved(folder, sp.csr_array(matrix()), sp.save_npz, ".npz"),
    "csc": lambda folder: saved(folder, sp.csc_array(matrix()), sp.save_npz, ".npz"),
    "coo": lambda folder: saved(folder, sp.coo_array(matrix()), sp.save_npz, ".npz"),
    "mtx": lambda folder: saved(folder, sp.coo_array(matrix()), scipy.io.mmwrite, ".mtx"),
    "mat": matlab,
    "an array": lambda folder: (matrix(), {"y": Y}),
    "an array of Dask": lambda folder: (da.from_array(matrix(), chunks=(17, D)), {"y": Y}),
    "a csc matrix": lambda folder: (sp.csc_array(matrix()), {"y": Y}),
    "blocks": lambda folder: (((matrix()[i : i + 7], Y[i : i + 7]) for i in range(0, N, 7)), {}),
}


def staged(folder, name, limit, change, told=None):
    """The corpus of the facts from a kind of source."""
    place = folder / f"{name} {limit}"
    place.mkdir()
    if told is None:
        source, options = BARE[name](place)
    elif name in ("h5ad", "anndata"):
        source, options = h5ad(place, told) if name == "h5ad" else cells(told), OBS
    else:
        holds, lies = name.split(": ")
        entries, options = HOLDS[holds]
        source = LIES[lies](place, pa.table({**told, **entries()}))
    change(build.MATRIX_PIECE, LIMITS[limit])
    change(build.TEXT_PIECE, LIMITS[limit])
    memory = max(limit, "420MB") if "text" in options else limit  # which needs scikit-learn
    uri = storage.stage(source, folder / f"{name} {limit}.zarr", memory_limit=memory, **options)
    return storage.open(uri)


def told_of(corpus):
    """All that a corpus says of its samples, and its rows by the names of the columns."""
    X = np.vstack([tile.load().toarray() for tile in corpus.X.row_tiles])
    names = list(corpus.feature_names)
    order = np.argsort(names) if corpus.manifest.named[1] else np.arange(X.shape[1])
    return (X[:, order].tolist(), list(corpus.class_names), corpus.y.tolist(), corpus.splits)


@pytest.mark.parametrize("name", daily(KINDS, *FEW))
def test_the_same_facts_from_every_kind_of_source(tmp_path, change, name):
    first, second = (staged(tmp_path, name, limit, change, facts()) for limit in LIMITS)
    assert first.spec["content"] == second.spec["content"]
    train = np.array(facts()["split"]) == "train"
    order = np.argsort(~train, kind="stable")
    want, y = matrix(), (np.arange(N) % 3)[order].tolist()
    if name.startswith("texts"):
        want = TfidfTransformer(sublinear_tf=True).fit(4 * want[train]).transform(4 * want)
        want = want.toarray().astype(np.float32)
    X, *told = told_of(first)
    np.testing.assert_allclose(X, want[order], rtol=1e-6 if name.startswith("texts") else 0)
    assert told == [["k0", "k1", "k2"], y, ("train", "test")]
    assert list(first.sample_names) == [f"row {i}" for i in order]
    assert list(first.categories("group")) == [f"g{i}" for i in range(7)]
    assert first.groups.tolist() == (order % 7).tolist()
    assert first.sample_weight.tolist() == (1.0 + order % 2).tolist()


@pytest.mark.parametrize("name", BARE)
def test_the_same_matrix_from_every_kind_of_source(tmp_path, change, name):
    first, second = (staged(tmp_path, name, limit, change) for limit in LIMITS)
    assert first.spec["content"] == second.spec["content"]
    assert told_of(first) == (matrix().tolist(), ["0", "1", "2"], Y.tolist(), ())


def test_a_matrix_has_one_key_however_it_lies_in_memory(tmp_path):
    X = matrix()
    kinds = [X, sp.csr_array(X), sp.csc_array(X), sp.coo_array(X)]
    uris = [storage.stage(X, tmp_path / f"{k}.zarr", y=Y) for k, X in enumerate(kinds)]
    assert len({storage.open(uri).manifest.key for uri in uris}) == 1


BAD = {  # a fact of row 41, and what is said of it everywhere
    "a missing split": ({"split": (41, None)}, "the split is missing here"),
    "a split that is none": ({"split": (41, "dev")}, "the split must be train or test; got 'dev'"),
    "a missing group": ({"who": (41, None)}, "must hold a text or a number for every sample"),
    "a negative weight": ({"w": (41, -1.0)}, "must hold a finite number of at least 0"),
}


EVERY = [(name, bad) for name in KINDS for bad in BAD if not ("pair" in name and "split" in bad)]


@pytest.mark.parametrize(("name", "bad"), daily(EVERY, *(case for case in EVERY if case[0] in FEW)))
def test_one_bad_fact_is_one_error(tmp_path, change, name, bad):
    changed, message = BAD[bad]
    for limit in LIMITS:
        with pytest.raises(SourceError) as caught:
            staged(tmp_path, name, limit, change, facts(**changed))
        assert message in str(caught.value)


@pytest.mark.parametrize("flips", [[(18377, 1), (17458, 4), (13559, 16)], [(12985, 2)]], ids=str)
def test_a_damaged_hdf5_file_is_one_line(tmp_path, flips):
    """Whatever h5py and HDF5 raise: a name of a frame that is a type, an unknown encoding."""
    h5ad(tmp_path, facts())
    raw = bytearray((tmp_path / "t.h5ad").read_bytes())
    for place, mask in flips:
        raw[place] ^= mask
    (tmp_path / "t.h5ad").write_bytes(raw)
    # another version of HDF5 lays the file out otherwise, and may find nothing wrong
    with contextlib.suppress(SourceError):
        storage.stage(tmp_path / "t.h5ad", tmp_path / "a.zarr", **OBS)
