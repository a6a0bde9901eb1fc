"""Training and test samples that lie apart are read as one file with a column of splits is."""

import json
import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.integrity import summarize


def table(n=60, seed=0, split="train"):
    """A frame with numbers, gaps, categories, an id and labels."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": [f"r{seed}-{i}" for i in range(n)],
            "a": rng.normal(size=n).round(3),
            "color": rng.choice(["red", "blue", "green"], n),
            "b": rng.integers(0, 9, n),
            "label": rng.choice(["yes", "no"], n),
        }
    )
    frame.loc[:4, "a"] = None
    return frame.assign(split=split)


TRAIN, TEST = table(), table(24, 1, "test")
ROWS, LABELS = sp.random_array((40, 12), density=0.4, rng=np.random.default_rng(3)).tocsr(), [1, 2]
y = np.resize(LABELS, 40)


def texts(frame):
    """A frame of texts that are made of the columns of another."""
    words = frame["color"] + " " + frame["color"].shift(1, fill_value="red") + " thing"
    return frame[["id", "label", "split"]].assign(text=words)


def same_stores(one, other):
    """Whether two stores hold the same samples, columns, labels, names and splits."""
    one, other = storage.open(one), storage.open(other)
    assert one.X.shape == other.X.shape
    rows = [corpus.X.rows(range(corpus.X.shape[0])).tocsr() for corpus in (one, other)]
    assert abs(rows[0] - rows[1]).max() == 0
    for name in ("feature_names", "sample_names", "class_names", "y"):
        assert list(getattr(one, name)) == list(getattr(other, name)), name
    for half in ("train", "test"):
        assert one.part(half).X.shape == other.part(half).X.shape
    return True


def as_csv(frame, path):
    frame.to_csv(path, index=False)
    return str(path)


def as_parquet(frame, path):
    frame.to_parquet(path, index=False)
    return str(path)


def as_jsonl(frame, path):
    frame.to_json(path, orient="records", lines=True)
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "csv and parquet", "arrow"])
def test_two_tables_are_read_as_one_with_a_split_column(kind, tmp_path):
    frames = [TRAIN.drop(columns="split"), TEST.drop(columns="split")[::-1][::-1]]
    # in another order of columns, and the label column last
    frames[1] = frames[1][["b", "id", "color", "a", "label"]]
    write = {
        "csv": [as_csv] * 2,
        "parquet": [as_parquet] * 2,
        "csv and parquet": [as_csv, as_parquet],
    }
    turn = {"polars": pl.from_pandas, "arrow": pa.Table.from_pandas, "pandas": lambda frame: frame}
    if kind in write:
        pairs = zip(write[kind], frames, (tmp_path / "a", tmp_path / "b"), strict=True)
        suffix = {as_csv: ".csv", as_parquet: ".parquet"}
        train, test = (f(frame, path.with_suffix(suffix[f])) for f, frame, path in pairs)
    else:
        train, test = map(turn[kind], frames)
    two = storage.stage({"test": test, "train": train}, tmp_path / "two.zarr")
    one = storage.stage(pd.concat([TRAIN, TEST]), tmp_path / "one.zarr")
    assert same_stores(two, one)
    assert storage.info(two)["splits"] == {"train": 60, "test": 24}


@pytest.mark.parametrize("columns", ["auto", "*"])
def test_samples_that_split_map_takes_for_the_test_count_in_no_mean(tmp_path, columns):
    rows = [("a", 1.0, "train"), ("b", None, "train"), ("a", 3.0, "train"), ("b", 99.0, "later")]
    pd.DataFrame(rows, columns=["label", "x", "split"]).to_csv(tmp_path / "a.csv", index=False)
    options = {"columns": columns, "missing": "mean", "split_map": "later=test"}
    corpus = storage.open(storage.stage(tmp_path / "a.csv", tmp_path / "a.zarr", **options))
    assert corpus.part("train").X.rows(range(3)).toarray().ravel().tolist() == [1, 2, 3]


def test_two_files_of_texts_are_read_as_one(tmp_path):
    frames = [texts(TRAIN), texts(TEST)]
    train, test = (
        as_jsonl(frame.drop(columns="split"), tmp_path / f"{i}.jsonl")
        for i, frame in enumerate(frames)
    )
    two = storage.stage(train, tmp_path / "two.zarr", test=test)
    one = storage.stage(as_jsonl(pd.concat(frames), tmp_path / "all.jsonl"), tmp_path / "one.zarr")
    assert same_stores(two, one)


def test_two_files_of_svmlight_are_read_as_one(tmp_path):
    # the largest column is in the training samples only, and the first one in no test sample
    ROWS_TEST = ROWS[30:, :11].copy()
    dump_svmlight_file(ROWS[:30], y[:30], str(tmp_path / "a9a"), zero_based=False)
    dump_svmlight_file(ROWS_TEST, y[30:], str(tmp_path / "a9a.t"), zero_based=False)
    two = storage.stage(
        {"train": tmp_path / "a9a", "test": tmp_path / "a9a.t"}, tmp_path / "s.zarr"
    )
    corpus = storage.open(two)
    assert corpus.X.shape == (40, 12)
    held = corpus.part("test").X.rows(range(10)).toarray()
    np.testing.assert_allclose(held[:, :11], ROWS_TEST.toarray(), rtol=1e-6)
    assert list(corpus.y) == list(y - 1)
    assert storage.info(two)["options"] == {"test": str(tmp_path / "a9a.t")}


def test_what_is_guessed_of_the_first_file_rules_the_other(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:5 2:1\n2 1:1\n")
    (tmp_path / "b.svm").write_text("1 1:7\n2 2:9\n")
    corpus = storage.open(
        storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", test=tmp_path / "b.svm")
    )
    assert corpus.part("test").X.rows(range(2)).toarray().tolist() == [[0, 7, 0], [0, 0, 9]]
    (tmp_path / "c.svm").write_text("1 1:7\n2 0:9\n")
    with pytest.raises(SourceError, match=r"c\.svm, line 2: indices begin at 1"):
        storage.stage(tmp_path / "b.svm", tmp_path / "b.zarr", test=tmp_path / "c.svm")
    # the means are those of the training samples
    frames = (
        pa.table({"x": [1.0, None, 3.0], "label": ["a", "b", "a"]}),
        pa.table({"x": [9.0, None]}),
    )
    corpus = storage.open(
        storage.stage({"train": frames[0], "test": frames[1]}, tmp_path / "m.zarr")
    )
    assert corpus.X.rows(range(5)).toarray().ravel().tolist() == [1, 2, 3, 9, 2]


def test_matrices_and_their_labels_are_given_for_each_split(tmp_path):
    parts = {"train": (ROWS[:30], y[:30]), "test": (ROWS[30:], y[30:])}
    pairs = storage.stage(parts, tmp_path / "a.zarr")
    parts = {"train": ROWS[:30].toarray(), "test": ROWS[30:]}
    each = storage.stage(parts, tmp_path / "b.zarr", y={"train": y[:30], "test": y[30:]})
    assert same_stores(pairs, each)


def test_test_samples_without_labels_are_unlabeled(tmp_path, caplog):
    train = as_csv(
        TRAIN.drop(columns="split").rename(columns={"label": "bought"}), tmp_path / "train.csv"
    )
    test = as_csv(TEST.drop(columns=["split", "label"]), tmp_path / "test.csv")
    with caplog.at_level(logging.WARNING, "bigfs"):
        uri = storage.stage(train, tmp_path / "a.zarr", test=test, label="bought")
    [line] = [line for line in caplog.messages if "have no labels" in line]
    assert line.startswith(f"{test}: row 0")
    corpus = storage.open(uri)
    assert (corpus.part("test").y == -1).all()
    assert (corpus.part("train").y >= 0).all()
    assert "24 unlabeled" in summarize(uri)
    with pytest.raises(SourceError, match=r"train\.csv has no column 'bougt'"):
        storage.stage(train, tmp_path / "b.zarr", test=test, label="bougt")


def change(**columns):
    return lambda: TEST.drop(columns="split").assign(**columns)


@pytest.mark.parametrize(
    ("frame", "message"),
    {
        "a lacking column": (
            lambda: TEST.drop(columns=["split", "a"]),
            r"test\.csv lacks the columns 'a' of .*train\.csv",
        ),
        "other words for the classes": (
            change(label=TEST["label"] + "."),
            r"test\.csv: row 0.*: no label of a test sample \('no\.', 'yes\.'\) is one of the "
            r"training samples \('no', 'yes'\)",
        ),
        "a number that is none": (change(b="x"), r"test\.csv: row 0.*'b' does not hold numbers"),
        "another split": (
            lambda: TEST.assign(split="train"),
            r"test\.csv: row 0.*the split is train here, and the source was given for test",
        ),
    }.values(),
)
def test_a_file_that_disagrees_with_the_first_is_refused_by_name(frame, message, tmp_path):
    train = as_csv(TRAIN.drop(columns="split"), tmp_path / "train.csv")
    test = as_csv(frame(), tmp_path / "test.csv")
    with pytest.raises(SourceError, match=message):
        storage.stage(train, tmp_path / "a.zarr", test=test)


def test_a_class_of_test_samples_only_and_a_further_column_are_said(tmp_path, caplog):
    frame = TEST.drop(columns="split").assign(more=1.5)
    frame.loc[3, "label"] = "maybe"
    with caplog.at_level(logging.WARNING, "bigfs"):
        storage.stage({"train": TRAIN.drop(columns="split"), "test": frame}, tmp_path / "a.zarr")
    lines = "\n".join(caplog.messages)
    assert "has also the columns 'more'" in lines
    assert "the classes 'maybe' are in test samples only" in lines


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ({"test": np.eye(2)}, {}, "has no training samples, only test"),
        ({"train": np.eye(2), "dev": np.eye(2)}, {}, "got 'dev': .*split_map=dev=test"),
        ({"train": np.eye(2), "test": np.eye(3)}, {}, "has 3 columns, and array has 2"),
        ({"train": np.eye(2), "test": ["a", "b"]}, {}, "block 0"),
        ({"train": np.eye(2), "test": pa.table({"text": ["a b"]})}, {}, "is text, and .* a matrix"),
        (
            {"train": np.eye(2)},
            {"split_map": "dev=tst"},
            "split_map= must say train, test or nothing",
        ),
    ],
)
def test_a_mapping_that_is_none_of_splits_is_refused(sources, options, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        storage.stage(sources, tmp_path / "a.zarr", **options)


# --- folders and data sets of Hugging Face --------------------------------------------------------


class Dataset:
    """What a data set of Hugging Face gives."""

    def __init__(self, frame):
        self.table = pa.Table.from_pandas(frame, preserve_index=False)

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def iter(self, rows):
        return (self.table.slice(start, rows) for start in range(0, len(self.table), rows))


class DatasetDict(dict):
    """What the splits of one give."""


def put(folder, name, frame):
    """Write a table by the suffix of its name."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pa.Table.from_pandas(frame, preserve_index=False)
    if name.endswith(".parquet"):
        pq.write_table(frame, path)
    elif name.endswith(".arrow"):
        with pa.ipc.new_stream(path, frame.schema) as out:
            out.write_table(frame)
    elif name.endswith(".csv"):
        frame.to_pandas().to_csv(path, index=False)
    else:
        frame.to_pandas().to_json(path, orient="records", lines=True)


VALIDATION = table(10, 2, "test")
NAMES = {
    "shards": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]
    + [f"data/{half}-00000-of-00001.parquet" for half in ("validation", "test")],
    "JSON lines": ["train-1.jsonl", "train-2.jsonl", "validation.jsonl", "test.jsonl"],
    "folders": ["train/a.csv", "train/b.csv", "validation/a.csv", "test/a.csv"],
    "saved": ["train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow"]
    + [f"{half}/data-00000-of-00001.arrow" for half in ("validation", "test")],
}


@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("validation", ["test", ""])
def test_a_folder_of_three_splits_is_read_as_one_table(shape, validation, tmp_path):
    frames = [frame.drop(columns="split") for frame in (TRAIN[:40], TRAIN[40:], VALIDATION, TEST)]
    folder = tmp_path / "folder"
    for name, frame in zip(NAMES[shape], frames, strict=True):
        put(folder, name, texts(frame.assign(split="")).drop(columns="split"))
        if shape == "saved":
            (folder / name).with_name("state.json").write_text("{}")
            put(folder, f"{name.partition('/')[0]}/cache-1.arrow", frame)
    if shape == "saved":
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(SourceError, match=r"validation.*: the split must be train or test"):
        storage.stage(folder, tmp_path / "a.zarr")
    uri = storage.stage(folder, tmp_path / "a.zarr", split_map=f"validation={validation}")
    splits = {"train": 60, "test": 34 if validation else 24}
    assert storage.info(uri)["splits"] == splits


def test_the_splits_of_hugging_face_are_read_as_objects(tmp_path):
    parts = {"train": TRAIN, "validation": VALIDATION, "test": TEST}
    data = DatasetDict(
        {half: Dataset(frame.drop(columns="split")) for half, frame in parts.items()}
    )
    two = storage.stage(data, tmp_path / "a.zarr", split_map={"validation": None})
    assert same_stores(two, storage.stage(pd.concat([TRAIN, TEST]), tmp_path / "b.zarr"))


def test_a_query_of_duckdb_for_each_split(tmp_path):
    base = pytest.importorskip("duckdb").connect()
    base.register("frame", pa.Table.from_pandas(pd.concat([TRAIN, TEST]), preserve_index=False))
    base.execute("create table posts as select * from frame")
    uri = storage.stage(base.sql("select * from posts"), tmp_path / "a.zarr")
    query = "select * exclude split from posts where split = '{}' order by id"
    parts = {half: base.cursor().sql(query.format(half)) for half in ("train", "test")}
    two = storage.stage(parts, tmp_path / "b.zarr")
    assert storage.info(uri)["splits"] == storage.info(two)["splits"] == {"train": 60, "test": 24}
    assert list(storage.open(uri).feature_names) == list(storage.open(two).feature_names)


def test_a_folder_with_a_file_of_no_split_is_refused(tmp_path):
    for name in ("train.csv", "test.csv", "sample_submission.csv"):
        put(tmp_path / "k", name, TRAIN.drop(columns="split"))
    with pytest.raises(SourceError, match=r"sample_submission\.csv is of no split by its name"):
        storage.stage(tmp_path / "k", tmp_path / "a.zarr")
    put(tmp_path / "two", "train.csv", TRAIN.drop(columns="split"))
    put(tmp_path / "two", "test.csv", TEST.drop(columns=["split", "label"]))
    with pytest.raises(SourceError, match="or the training file alone and the other as test="):
        storage.stage(tmp_path / "two", tmp_path / "a.zarr")


def test_other_words_for_splits_in_a_column_and_in_folders_of_texts(tmp_path):
    frame = TRAIN.assign(split=np.resize(["learn", "test", "dev"], len(TRAIN)))
    words = {"learn": "train", "dev": "test"}
    uri = storage.stage(frame, tmp_path / "a.zarr", split_map=words)
    assert storage.info(uri)["splits"] == {"train": 20, "test": 40}
    for half in ("train", "test", "dev"):
        for name in ("cat", "dog"):
            (tmp_path / "t" / half / name).mkdir(parents=True)
            (tmp_path / "t" / half / name / "0.txt").write_text(f"{name} word thing")
    with pytest.raises(SourceError, match=r"t: dev: the split must .* split_map=dev=test"):
        storage.stage(tmp_path / "t", tmp_path / "b.zarr")
    for split, counts in {"": (2, 2), "test": (2, 4), "train": (4, 2)}.items():
        uri = storage.stage(tmp_path / "t", tmp_path / f"t{split}.zarr", split_map=f"dev={split}")
        assert storage.info(uri)["splits"] == dict(zip(("train", "test"), counts, strict=True))
