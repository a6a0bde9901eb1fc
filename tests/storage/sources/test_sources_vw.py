"""Vowpal Wabbit's text and UCI's bags of words."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage.errors import SourceError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def staged(source, **options):
    return storage.open(storage.stage(source, **options))


def rows_of(corpus):
    """Each row as {name: value}."""
    X = corpus.X.columns(slice(None)).tocsr()
    names = np.array(corpus.feature_names[:], dtype=object)
    return [
        dict(zip(names[X.indices[a:b]], X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr, X.indptr[1:], strict=False)
    ]


def test_lines_of_vowpal_wabbit(home):
    (home / "clicks.vw").write_text(
        "1 'first|user u1 age:0.5 |ad a7:2 a7\n"
        "-1 1.0 second| plain:3\n"
        "\n"
        "1 | plain |user:2 u1 age:0.25\n"
        "|user u2\n"
    )
    corpus = staged("clicks.vw")
    assert rows_of(corpus) == [
        {"user^u1": 1, "user^age": 0.5, "ad^a7": 3},
        {"plain": 3},
        {"plain": 1, "user^u1": 2, "user^age": 0.5},
        {"user^u2": 1},
    ]
    assert corpus.class_names == ["-1", "1"]
    assert corpus.y.tolist() == [1, 0, 1, -1]
    assert corpus.sample_names[:2].tolist() == ["first", "second"]
    assert corpus.spec["source"]["format"] == "vw"


def test_importances_become_weights_or_are_refused(home):
    (home / "a.vw").write_text("1 2 'x|a b\n-1 'y|a c\n")
    with pytest.raises(SourceError, match=r"a\.vw, line 1: the importance is 2: keep it by sample"):
        staged("a.vw")
    assert staged("a.vw?sample_weight=importance").sample_weight.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1:0.5 2:1 |a b", "line 2: '1:0.5' is no number; labels with a colon are not read"),
        ("1 |a b:x", "line 2: 'x' is no number"),
        ("1 |a b:1_0", "line 2: '1_0' is no number"),
        ("1 2 3 4 |a b", "is no label, importance and base"),
        ("1 |a b:nan", "not a finite|nan|NaN"),
    ],
)
def test_broken_lines_are_named(home, line, reason):
    (home / "a.vw").write_text(f"1 |a b\n{line}\n")
    with pytest.raises(SourceError, match=reason):
        staged("a.vw")


def test_the_same_rows_as_json_lines(home):
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.2, format="csr", rng=rng)
    y = rng.integers(0, 3, 200)
    with open("a.vw", "w") as vw, open("a.jsonl", "w") as lines:
        for i in range(200):
            entries = list(zip(X[[i]].indices.tolist(), X[[i]].data.tolist(), strict=True))
            vw.write(f"{y[i]} | {' '.join(f'f{j}:{v!r}' for j, v in entries)}\n")
            row = ", ".join(f'"f{j}": {v!r}' for j, v in entries)
            lines.write(f'{{"features": {{{row}}}, "label": {y[i]}}}\n')
    contents = [staged(file).spec["content"] for file in ("a.vw", "a.jsonl")]
    assert contents[0] == contents[1]
