"""What a run chose, in the files of other programs: a selector of scikit-learn, SQL, AnnData."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from bigfs import storage
from bigfs.flows.comparison.lists import read_lists
from bigfs.flows.use.export import export
from bigfs.storage.errors import StoreError
from bigfs.storage.runs.runs import Run
from tests.helpers import stages


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A frame with a quote in each name, and a selection from its store."""
    folder, rng = tmp_path_factory.mktemp("export"), np.random.default_rng(3)
    y = np.arange(90) % 3
    frame = pd.DataFrame(
        {
            'the "size"': y + rng.normal(0, 0.1, 90).round(3),
            "noise": rng.normal(size=90).round(3),
            "it's": -y + rng.normal(0, 0.3, 90).round(3),
            "town": np.array(["Bern", "L'Aquila", "Oslo"])[y],
            "label": np.array(list("abc"))[y],
        }
    )
    frame.to_csv(folder / "t.csv", index=False)
    store = storage.stage(folder / "t.csv", folder / "t.zarr", scale="none")
    chosen = stages.select(store, folder / "r", method="anova", features=5)
    return frame, storage.open(store), stages.finish(chosen)


def test_a_select_gives_the_chosen_columns(run, tmp_path):
    frame, corpus, path = run
    text = export(path, tmp_path / "q.sql", table="shop").read_text()
    with closing(sqlite3.connect(":memory:")) as base:
        frame.to_sql("shop", base)
        found = pd.read_sql(text, base)
    names = [row["name"] for row in Run.open(path).read_table("selected.csv")]
    assert set(found) == set(names) == {'the "size"', "it's", *corpus_names(corpus, "town")}
    columns = corpus.X.columns(Run.open(path).selected).toarray()
    np.testing.assert_allclose(found[names].to_numpy(), columns, rtol=1e-6)
    assert 'FROM "TABLE";' in export(path, tmp_path / "q.sql").read_text()  # its own is replaced
    with pytest.raises(
        ValueError, match=r"--table names the table of a SELECT, so OUT must end in \.sql"
    ):
        export(path, tmp_path / "q.py", table="shop")


def test_a_select_of_triplets_gives_the_rows_of_the_chosen_features(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.7, (40, 6))
    counts[:, 2] += 4 * (np.arange(40) % 2)
    user, item = np.nonzero(counts)
    names = np.array(["tea", "rum", "it's", "rye", "gin", "ale"])[item]
    frame = pd.DataFrame({"user": user, "an item": names, "n": counts[user, item]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"user": range(40), "y": np.arange(40) % 2}).to_csv(
        tmp_path / "y.csv", index=False
    )
    options = {"triplets": "user,an item,n", "labels": str(tmp_path / "y.csv"), "label": "y"}
    store = storage.stage(tmp_path / "t.csv", tmp_path / "t.zarr", **options)
    path = stages.finish(stages.select(store, tmp_path / "r", method="anova", features=2))
    chosen = [row["name"] for row in Run.open(path).read_table("selected.csv")]
    assert chosen[0] == "it's"
    with closing(sqlite3.connect(":memory:")) as base:
        frame.to_sql("log", base)
        found = pd.read_sql(export(path, tmp_path / "q.sql", table="log").read_text(), base)
    wanted = frame[frame["an item"].isin(chosen)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted)


def corpus_names(corpus, start):
    return [name for name in corpus.feature_names[:] if name.startswith(start)]


def test_the_selector_needs_scikit_learn_alone(run, tmp_path):
    frame, corpus, path = run
    export(path, tmp_path / "columns.py")
    frame.iloc[:, ::-1].to_csv(tmp_path / "t.csv", index=False)
    code = """
import sys, numpy, pandas
sys.modules["bigfs"] = None
from columns import columns
numpy.save("z.npy", columns.fit_transform(pandas.read_csv("t.csv")))
print(*columns.get_feature_names_out(), sep="|")
"""
    words = [sys.executable, "-W", "error", "-c", code]
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    names = [name.replace("town_", "town=") for name in answer.stdout.strip().split("|")]
    index = [corpus.feature_names[:].tolist().index(name) for name in names]
    wanted = corpus.X.columns(np.array(index)).toarray()
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), wanted, rtol=1e-6)
    assert sorted(index) == sorted(Run.open(path).selected)


def test_var_has_scores_ranks_and_marks_of_all_features(run, tmp_path):
    _, corpus, path = run
    file = str(export(path, tmp_path / "genes.h5ad"))
    names, opened = corpus.feature_names, Run.open(path)
    lists = read_lists([file, f"{file}?column=bigfs_rank"], len(names), names)
    marked, ranked = lists.values()
    assert ranked.tolist() == opened.selected.tolist()
    assert sorted(marked) == sorted(opened.selected)
    h5py = pytest.importorskip("h5py")
    with h5py.File(file) as root:
        assert root["var/highly_variable"][:].sum() == 5
        np.testing.assert_array_equal(root["var/bigfs_score"][:], opened.scores)
        assert root["uns/bigfs/method"].asstr()[()] == "anova"
        assert root["obs"].attrs["encoding-type"] == "dataframe"


def test_columns_without_names_are_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4))
    store = storage.stage(X, tmp_path / "x.zarr", y=np.arange(30) % 2)
    path = stages.finish(stages.select(store, tmp_path / "r", method="anova", features=2))
    for name in ("q.sql", "columns.py"):
        with pytest.raises(ValueError, match=r"are no columns with names: write the model, OUT\.s"):
            export(path, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_file_of_somebody_else_stays(run, tmp_path):
    for name in ("q.sql", "columns.py", "genes.h5ad", "model.skops"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(StoreError, match="is in the way"):
            export(run[2], tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"
