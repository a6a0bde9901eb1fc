"""The model of a table owns its columns: frames, dicts, arrays, files, and scikit-learn alone."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bigfs
from bigfs import storage
from bigfs.flows.use.export import export
from bigfs.flows.use.predict import predict
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run
from tests.helpers import stages

N = 120
CHOSEN = ["age", "city", "height"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table whose classes hang on an age with gaps, a height and a city, and a run on it."""
    folder, rng = tmp_path_factory.mktemp("entry"), np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, N).round(1),
            "height": rng.normal(170, 10, N).round(1),
            "noise": rng.normal(size=N),
            "city": rng.choice(["Bern", "Oslo"], N),
        }
    )
    score = (frame["age"] - 40) / 10 + (frame["height"] - 170) / 10 + 2 * (frame["city"] == "Oslo")
    frame["kind"] = np.where(score > 1, "yes", "no")
    frame.loc[::10, "age"] = np.nan
    frame.to_csv(folder / "t.csv", index=False)
    store = storage.stage(folder / "t.csv", folder / "t.zarr", label="kind", scale="standard")
    run = stages.select(store, folder / "r", method="anova", features=4)
    stages.evaluate(run)
    run = str(stages.finish(run))
    assert sorted(Run.open(run).model().names) == ["age", "city=Bern", "city=Oslo", "height"]
    return frame, store, run, folder


def read(file):
    return pd.read_csv(file)["prediction"].tolist()


@pytest.fixture
def wanted(table, tmp_path):
    """The predictions of all samples, from the store of the run."""
    _, store, run, _ = table
    predict(run, store, tmp_path / "wanted.csv")
    return read(tmp_path / "wanted.csv")


def test_a_file_of_the_chosen_columns_is_enough(table, wanted, tmp_path):
    frame, _, run, _ = table
    frame[CHOSEN].to_csv(tmp_path / "few.csv", index=False)
    frame[CHOSEN[::-1]].to_parquet(tmp_path / "few.parquet")
    for name in ("few.csv", "few.parquet"):
        assert predict(run, str(tmp_path / name), tmp_path / "p.csv").left_out == 0
        assert read(tmp_path / "p.csv") == wanted
    frame[["age", "city"]].to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(SourceError, match=r"lacks 1 of the 4 columns .* 'height'"):
        predict(run, str(tmp_path / "less.csv"), tmp_path / "q.csv")
    assert not (tmp_path / "q.csv").exists()


def test_named_columns_are_as_those_that_were_guessed(table, wanted, tmp_path):
    frame, _, _, folder = table
    source = f"{folder / 't.csv'}?columns=*&categories=city&missing=mean&label=kind"
    store = storage.stage(source, tmp_path / "named.zarr", scale="standard")
    run = stages.select(store, tmp_path / "r", method="anova", features=4)
    stages.evaluate(run)
    run = str(stages.finish(run))
    frame[CHOSEN].to_csv(tmp_path / "few.csv", index=False)
    predict(run, str(tmp_path / "few.csv"), tmp_path / "p.csv")
    assert read(tmp_path / "p.csv") == wanted


def test_an_option_of_new_samples_stands_beside_those_of_the_run(table, tmp_path):
    frame, out = table[0], str(tmp_path / "r")
    frame.to_csv(tmp_path / "t.csv", index=False, sep="|", decimal=",")
    bigfs.run(
        *(f"{tmp_path}/t.csv?delimiter=%7C&decimal=,&label=kind", "anova", 4),
        **{"store": tmp_path / "named.zarr", "out": out, "settings": {"scale": "standard"}},
        **{"scoring": {"test_size": 0.5}, "engine": {"workers": 0}},
    )
    names = [f"row {i}" for i in range(len(frame))]
    few = frame[CHOSEN].assign(who=names)
    few.to_csv(tmp_path / "few.csv", index=False, sep="|", decimal=",")
    assert predict(out, f"{tmp_path}/few.csv?name=who", tmp_path / "p.csv").rows == N
    assert pd.read_csv(tmp_path / "p.csv")["sample"].tolist() == names


def test_frames_dicts_and_arrays_are_taken(table, wanted):
    frame, store, run, _ = table
    model, corpus = Run.open(run).model(), storage.open(store)
    assert model.predict(frame).tolist() == wanted
    assert model.predict(frame[CHOSEN[::-1]]).tolist() == wanted
    assert model.predict(frame[CHOSEN].to_dict("records")).tolist() == wanted
    assert model.predict(corpus.X).tolist() == wanted
    by_hand = pd.get_dummies(frame["city"], prefix="city", prefix_sep="=").join(frame)
    rows = by_hand[model.names].astype(float).fillna(frame["age"].mean()).to_numpy()
    assert model.predict(rows).tolist() == wanted
    assert model.predict(sp.csr_array(rows)).tolist() == wanted
    whole = np.zeros((N, model.n_features))
    whole[:, model.columns] = rows
    assert model.predict(whole).tolist() == wanted
    with pytest.raises(ValueError, match="X lacks 1 of the 3 columns of the model, such as 'age'"):
        model.predict(frame.drop(columns="age"))


def test_a_new_category_is_none_and_a_gap_is_the_training_mean(table, tmp_path):
    frame, _, run, _ = table
    model = Run.open(run).model()
    rows = frame[CHOSEN].head(4).assign(city=["Rome", None, "Bern", "Oslo"])
    rows.loc[2, "height"] = np.nan
    rows.to_csv(tmp_path / "odd.csv", index=False)
    predict(run, str(tmp_path / "odd.csv"), tmp_path / "p.csv")
    assert model.predict(rows).tolist() == read(tmp_path / "p.csv")
    filled = rows.assign(height=rows["height"].fillna(frame["height"].mean()))
    assert model.predict(filled).tolist() == model.predict(rows).tolist()


def test_the_file_holds_nothing_of_the_columns_left_out(table):
    _, _, run, _ = table
    with np.load(f"{run}/model.npz") as arrays:
        assert b"noise" not in b"".join(arrays[name].tobytes() for name in arrays.files)
        assert len(arrays["factors"]) == 4


def test_the_exported_pipeline_takes_the_frame_without_bigfs(table, wanted, tmp_path):
    pytest.importorskip("skops", reason="skops is an extra: pip install 'bigfs[export]'")
    frame, _, run, _ = table
    export(run, tmp_path / "model.skops")
    frame[CHOSEN[::-1]].to_csv(tmp_path / "few.csv", index=False)
    code = """
import sys, json, pandas
sys.modules["bigfs"] = None
from skops.io import get_untrusted_types, load
assert get_untrusted_types(file="model.skops") == []
print(json.dumps(load("model.skops").predict(pandas.read_csv("few.csv")).tolist()))
"""
    words = [sys.executable, "-W", "error", "-c", code]
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == wanted


def test_the_exported_pipeline_of_a_matrix_takes_dense_and_sparse_rows(tmp_path):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 5)).astype(np.float32)
    store = storage.stage(X, tmp_path / "m.zarr", y=(X[:, 1] > 0).astype(int), scale="max")
    run = stages.select(store, tmp_path / "r", method="anova", features=2)
    stages.evaluate(run)
    model = Run.open(stages.finish(run)).model()
    pipeline = model.to_sklearn()
    answers = [pipeline.predict(X), pipeline.predict(sp.csr_array(X)), model.predict(X)]
    assert answers[0].tolist() == answers[1].tolist() == answers[2].tolist()
    assert model.predict(X[:, model.columns]).tolist() == answers[0].tolist()
