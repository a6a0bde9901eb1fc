"""Any bytes, and good files with bytes overwritten: read, or refused in one line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bigfs.storage import sources
from tests.helpers.sources import MATRICES, consumed, documents_of, save_matrix, whole_or_refused

pytestmark = pytest.mark.slow

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FIELDS = st.sampled_from(["text", "label", "features", "split", "0", "7"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
GOOD = st.fixed_dictionaries(
    {"text": st.text(max_size=20), "label": st.integers() | st.text(max_size=3)}
)
ROW = st.fixed_dictionaries(
    {
        "features": st.dictionaries(
            st.integers(0, 99).map(str), st.floats(allow_nan=False), max_size=4
        )
    }
)
LINE = st.binary(max_size=60) | (JSON | GOOD | ROW).map(lambda value: json.dumps(value).encode())


@FUZZ
@example(lines=[b'{"text":"","":""}', b'{"text":"","label":0}'], size=1)
@given(lines=st.lists(LINE, min_size=1, max_size=5), size=st.integers(1, 64))
def test_any_bytes_are_documents_or_refused(tmp_path, lines, size):
    """Nothing but SourceError leaves the reader, and what it gives doesn't depend on the pieces."""
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"\n".join(lines))

    def read(size):
        return [
            repr(document)
            for document in documents_of(sources.find(path, format="jsonl"), tmp_path, size)
        ]

    outcome = whole_or_refused(read, size)
    assert outcome != "refused at length"
    assert outcome == whole_or_refused(read, 10**9)


@FUZZ
@given(lines=st.lists(LINE, min_size=1, max_size=5), size=st.integers(1, 64))
def test_any_bytes_are_features_or_refused(tmp_path, lines, size):
    path = tmp_path / "fuzz.jsonl"
    path.write_bytes(b"\n".join(lines))

    def read(size):
        source = sources.find(path, format="jsonl-features", n_features=100).prepare(tmp_path)
        return np.vstack([source.read(piece).X.toarray() for piece in source.pieces(size)]).tolist()

    outcome = whole_or_refused(read, size)
    assert outcome != "refused at length"
    assert outcome == whole_or_refused(read, 10**9)


@FUZZ
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=6), size=st.integers(1, 50))
def test_any_text_comes_back_from_json(tmp_path, texts, size):
    path = tmp_path / "fuzz.jsonl"
    path.write_text("\n".join(json.dumps({"text": t}) for t in texts))
    assert [d.text for d in documents_of(sources.find(path), tmp_path, size)] == texts


@FUZZ
@example(content=bytes(6), where=680298, kind="csc")  # a file without indices
@given(
    content=st.binary(min_size=1, max_size=200),
    where=st.integers(0, 10**6),
    kind=st.sampled_from(
        ["npy", "csr", "csc", "coo", "dense.npz", "mtx", "dense.mtx", "csv", "parquet"]
    ),
)
def test_altered_files_are_read_or_refused(tmp_path, content, where, kind):
    """Bytes overwritten anywhere in a good file: rows, or a SourceError.

    Not .mat: each needs a process, which takes half a second.
    """
    name, format = MATRICES.get(kind, (f"d.{kind}", kind))
    path = tmp_path / name
    if kind == "csv":
        path.write_text("text,label\n" + 'a "b" c,1\n"x, y",2\n' * 5)
    elif kind == "parquet":
        pq.write_table(pa.table({"text": ["x", "y"]}), path)
    else:
        save_matrix(kind, path, sp.csr_array(np.arange(12.0).reshape(4, 3)))
    raw = bytearray(path.read_bytes())
    at = where % len(raw)
    raw[at : at + len(content)] = content
    path.write_bytes(raw)
    assert (
        whole_or_refused(consumed, path, tmp_path / "scratch", 50, format=format)
        != "refused at length"
    )
