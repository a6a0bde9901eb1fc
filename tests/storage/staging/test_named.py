"""Rows that join a store by the names of their columns, against a store of all rows at once."""

import json

import numpy as np
import pytest

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.staging.build import MATRIX_PIECE
from tests.helpers.daily import daily
from tests.helpers.stores import dense_tiles, write_named

WORDS = [f"w{j}" for j in range(25)] + ["7", "été", "a b"]
PIECES = [700, 10**7]  # bytes


@pytest.fixture
def rows(rng):
    """60 rows {name: value}, of which the first has a number for its only name and two are empty.
    The first 40 have all names.
    """
    made = [{"7": 2.0}, {}]
    for i in range(2, 60):
        some = rng.choice(WORDS, 5, replace=False).tolist()
        if i % 10 == 0 and i < 40:
            some = WORDS[i // 10 * 7 - 7 : i // 10 * 7 + 7]
        made.append({} if i == 50 else {name: float(rng.integers(1, 9)) for name in some})
    assert set().union(*made[:40]) == set(WORDS)
    return made


def samples_of(uri):
    """The names, the labels and the rows of each split, and the names of the columns."""
    corpus = storage.open(uri)
    assert storage.check(uri).problems == []
    parts = [corpus.part(split) for split in corpus.splits] or [corpus]
    for part in parts:
        np.testing.assert_array_equal(
            dense_tiles(part.X.row_tiles, 0), dense_tiles(part.X.column_tiles, 1)
        )
    return [
        ([*map(str, part.sample_names)], [part.class_names[c] for c in part.y], row.tolist())
        for part in parts
        for row in [dense_tiles(part.X.row_tiles, 0)]
    ], list(corpus.feature_names[:])


@pytest.mark.parametrize("kind", ["maps", "lists"])
@pytest.mark.parametrize("suffix", daily([".jsonl", ".parquet"], ".parquet"))
def test_rows_by_names_join_as_if_staged_at_once(tmp_path, rows, suffix, kind, change):
    question = "&by_name=true" if kind == "maps" else ""  # the first key is a number
    rows[40] = {"7": 1.0}  # as it is here, where the store decides
    whole = write_named(tmp_path / f"all{suffix}", rows, kind) + question
    first = write_named(tmp_path / f"a{suffix}", rows[:40], kind) + question
    later = [row | {"unknown": 5.0, "!": 1.0} if len(row) > 1 else row for row in rows[40:]]
    second = write_named(tmp_path / f"b{suffix}", later, kind, 40)
    want = samples_of(storage.stage(whole, tmp_path / "all.zarr"))
    contents = set()
    for size in PIECES:
        change(MATRIX_PIECE, size)
        uri = storage.stage(first, tmp_path / f"{size}.zarr")
        for _ in range(2):  # what was appended is not appended again
            storage.append(second, uri)
        assert samples_of(uri) == want
        contents.add(storage.open(uri).spec["content"])
    assert len(contents) == 1


@pytest.mark.parametrize("kind", daily(["maps", "lists"], "lists"))
def test_hashed_rows_join_and_name_what_was_empty(tmp_path, rows, kind, change):
    few = [{"w1": 1.0, "w2": 2.0}, {"w3": 0.5}]
    whole = write_named(tmp_path / "all.parquet", [*few, *rows], kind, split=False)
    want = samples_of(storage.stage(whole, tmp_path / "all.zarr", hashing=64))
    for size in PIECES:
        change(MATRIX_PIECE, size)
        uri = storage.stage(
            write_named(tmp_path / "a.parquet", few, kind, split=False),
            tmp_path / f"{size}.zarr",
            hashing=64,
        )
        storage.append(write_named(tmp_path / "b.parquet", rows, kind, 2, split=False), uri)
        assert samples_of(uri) == want
    assert sum(name in WORDS for name in want[1]) > 10
    (tmp_path / "n.svm").write_text("1 2:1\n")
    with pytest.raises(SourceError, match=r"no names for its entries.*hashed: give by_name=true"):
        storage.append(tmp_path / "n.svm", uri)


def test_hashed_text_names_what_was_empty(tmp_path):
    texts = ["rain and rain", "snow", "sun over the sea", "rain on the hills"]
    for name, some in (("all", texts), ("a", texts[:2]), ("b", texts[2:])):
        lines = (json.dumps({"text": text}) for text in some)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    want = storage.open(storage.stage(tmp_path / "all.jsonl", tmp_path / "all.zarr", hashing=32))
    uri = storage.stage(tmp_path / "a.jsonl", tmp_path / "a.zarr", hashing=32)
    storage.append(tmp_path / "b.jsonl", uri)
    names = list(storage.open(uri).feature_names[:])
    assert names == list(want.feature_names[:])
    assert {"rain", "snow", "hills"} <= set(names)
    assert storage.check(uri).problems == []


def test_columns_of_tables_are_found_by_their_names(tmp_path):
    first = "y,size,color,weight\n1,0.5,red,2\n0,1.5,blue,0\n1,2,green,1\n"
    later = "weight,note,color,size,y\n3,9,red,0.25,0\n4,9,pink,0,1\n"
    (tmp_path / "a.csv").write_text(first)
    (tmp_path / "b.csv").write_text(later)
    question = "?columns=*&categories=color&label=y"
    uri = storage.stage(f"{tmp_path}/a.csv{question}", tmp_path / "a.zarr")
    names = ["color=blue", "color=green", "color=red", "size", "weight"]
    assert list(storage.open(uri).feature_names[:]) == names
    storage.append(f"{tmp_path}/b.csv{question}", uri)
    corpus = storage.open(uri)
    X = dense_tiles(corpus.X.row_tiles, 0)
    assert X[3:].tolist() == [[0, 0, 1, 0.25, 3], [0, 0, 0, 0, 4]]
    assert [corpus.class_names[c] for c in corpus.y] == ["1", "0", "1", "0", "1"]
    (tmp_path / "c.csv").write_text("y,color,size\n1,red,3\n")
    with pytest.raises(SourceError, match=r"c\.csv lacks 1 of the 5 columns of .*'weight': give"):
        storage.append(f"{tmp_path}/c.csv{question}", uri)


def test_rows_by_names_and_fixed_columns_join_one_another(tmp_path):
    X = np.array([[1.0, 0, 2], [0, 3, 0]], dtype=np.float32)
    fixed = storage.stage(X, tmp_path / "fixed.zarr", y=[0, 1], names=["b", "c", "a"])
    storage.append(X[:, [2, 0, 1]] + 1, fixed, y=[0, 1], names=["a", "b", "c"])
    (tmp_path / "x.jsonl").write_text('{"features": {"a": 5, "new": 1}, "label": 1}\n')
    storage.append(tmp_path / "x.jsonl", fixed)
    rows = dense_tiles(storage.open(fixed).X.row_tiles, 0)
    assert rows.tolist() == [*X.tolist(), *(X + 1).tolist(), [0, 0, 5]]
    (tmp_path / "y.jsonl").write_text('{"features": {"b": 1, "a": 2, "c": 3}, "label": 0}\n')
    named = storage.stage(tmp_path / "y.jsonl", tmp_path / "named.zarr")
    storage.append(np.array([[7.0, 9]]), named, y=[1], names=["c", "d"])
    assert dense_tiles(storage.open(named).X.row_tiles, 0).tolist() == [[2, 1, 3], [0, 0, 7]]
    with pytest.raises(SourceError, match=r"names=, entry 3: .b. comes again"):
        storage.append(X, fixed, y=[0, 1], names=["a", "b", "b"])
    numbers = storage.stage(X, tmp_path / "numbers.zarr", y=[0, 1])
    with pytest.raises(SourceError, match=r"has names of columns, and .*numbers\.zarr has numbers"):
        storage.append(tmp_path / "x.jsonl", numbers)
    storage.append(X, numbers, y=[1, 1], names=["b", "c", "a"])  # by their places
    assert dense_tiles(storage.open(numbers).X.row_tiles, 0).tolist() == [*X.tolist()] * 2
