"""Rows by names are predicted as those of their store, whatever the order and what is new."""

import json

import numpy as np
import pytest

from bigfs import storage
from bigfs.flows.use.predict import predict
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run
from tests.helpers import stages

WORDS = ["7", *(f"w{j}" for j in range(30))]


def run_on(folder, source, **settings):
    store = storage.stage(source, folder / "x.zarr", **settings)
    run = stages.select(store, folder / "r", method="anova", features=4)
    stages.evaluate(run, baselines=[])
    return store, str(stages.finish(run))


@pytest.fixture
def rows(rng):
    """60 rows of counts by names, two of which tell the class."""
    rows = []
    for i in range(60):
        names = ["7"] if i == 0 else rng.choice(WORDS[3:], 6, replace=False)
        row = {str(name): float(rng.integers(1, 5)) for name in names}
        rows.append(row | {WORDS[1 + i % 2]: 3.0})
    return rows


def write(path, rows):
    lines = (json.dumps({"features": row, "label": f"c{i % 2}"}) for i, row in enumerate(rows))
    path.write_text("".join(f"{line}\n" for line in lines))
    return f"{path}?by_name=true"


@pytest.mark.parametrize(
    "settings",
    [{}, {"weight": "tfidf"}, {"weight": "lognorm"}, {"scale": "max"}, {"hashing": 50}],
    ids=["plain", "tfidf", "lognorm", "max", "hashing"],
)
def test_rows_by_names_are_predicted_as_their_store(rows, settings, tmp_path, bigfs):
    _, run = run_on(tmp_path, write(tmp_path / "x.jsonl", rows), **settings)
    store = predict(run, str(tmp_path / "x.zarr"), tmp_path / "a.csv", scores=True)
    assert store.scores["accuracy"] > 0.8
    # the options are those of the run, and new names do not count
    new = [rows[0], *({"new": 9.0} | dict(reversed(row.items())) for row in rows[1:])]
    write(tmp_path / "new.jsonl", rows if "hashing" in settings else new)
    options = ("--scores", "--workers", 0, "--json")
    status, told, err = bigfs("predict", run, "new.jsonl", "b.csv", *options)
    assert status == 0, err
    # only a model of weighed rows has the names of all columns
    assert json.loads(told)["left_out"] == (59 if "weight" in settings else 0)
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    if not settings:
        write(tmp_path / "other.jsonl", [{"new": 9.0}] * 59)
        _, told, _ = bigfs("predict", run, "other.jsonl", "c.csv", "--workers", 0)
        assert f"left out 59 values whose names the corpus of {run} does not have" in told


def test_a_hashed_store_whose_names_came_in_another_order_is_predicted(rows, tmp_path):
    _, run = run_on(tmp_path, write(tmp_path / "x.jsonl", rows), hashing=16)
    other = storage.stage(write(tmp_path / "y.jsonl", rows[::-1]), tmp_path / "y.zarr", hashing=16)
    names = [list(storage.open(uri).feature_names[:]) for uri in (other, tmp_path / "x.zarr")]
    assert names[0] != names[1]
    predict(run, other, tmp_path / "a.csv")
    predict(run, str(tmp_path / "x.zarr"), tmp_path / "b.csv")
    a, b = ((tmp_path / f"{name}.csv").read_text().splitlines()[1:] for name in "ab")
    assert [line.split(",")[1] for line in a] == [line.split(",")[1] for line in b[::-1]]


@pytest.mark.parametrize("settings", [{}, {"weight": "lognorm"}])
def test_columns_of_tables_may_come_in_another_order(settings, tmp_path, rng):
    X, y = rng.integers(0, 9, (40, 5)).astype(float), np.arange(40) % 2
    X[:, 2] += 9 * y
    kinds = np.array(["x", "y"])[rng.integers(0, 2, 40)]
    names = ["a", "b", "c", "d", "e"]

    def save(path, columns):
        table = dict(zip(names, X.T, strict=True)) | {"kind": kinds, "label": y, "note": y + 1}
        lines = [columns, *([str(table[name][i]) for name in columns] for i in range(40))]
        path.write_text("\n".join(map(",".join, lines)))
        return path

    options = {"columns": "*", "categories": "kind", "missing": "zero"}
    source = save(tmp_path / "x.csv", [*names, "kind", "label"])
    _, run = run_on(tmp_path, source, **options, **settings)
    predict(run, str(tmp_path / "x.zarr"), tmp_path / "a.csv", scores=True)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    later = save(tmp_path / "y.csv", ["note", "e", "kind", "c", "a", "d", "b"])
    told = predict(run, f"{later}?{query}", tmp_path / "b.csv", scores=True)
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    assert told.left_out == (40 if settings else 0)
    chosen = Run.open(run).model().names
    save(tmp_path / "z.csv", ["kind", *(name for name in names if name != chosen[0])])
    with pytest.raises(SourceError, match=rf"z\.csv lacks 1 of .*, such as '{chosen[0]}'"):
        predict(run, f"{tmp_path}/z.csv?{query}", tmp_path / "c.csv")
    assert Run.open(run).model().n_features == 7
