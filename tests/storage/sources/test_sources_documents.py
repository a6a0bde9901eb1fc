"""Documents in, as JSON Lines, CSV and Parquet: what is written comes back, in any pieces; what is
broken is one clear line.
"""

import bz2
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.tables.columnar import MAX_GROUP_BYTES
from bigfs.storage.sources.tables.records import TextRecords
from bigfs.storage.sources.tables.tables import BATCH_BYTES, Table
from tests.helpers.sources import SIZES, documents_of, refused, rows_of

TEXTS = [
    "one",
    "zwei, drei",
    'say "four"\nand five',
    "",
    "naïve café 東京",
    "x" * 1000,
    "tab\there",
]


def write_documents(kind, path):
    label = ["a", "b", None, "a", "", "b", "a"]
    if kind == "jsonl":
        lines = [
            json.dumps({"text": t, "label": c, "id": i, "split": "train"})
            for i, (t, c) in enumerate(zip(TEXTS, label, strict=True))
        ]
        path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    elif kind == "jsonl.gz":
        write_documents("jsonl", path)
        path.write_bytes(gzip.compress(path.read_bytes()))
    elif kind in ("csv", "tsv", "csv.bz2"):
        mark = "\t" if kind == "tsv" else ","
        quoted = ['"' + t.replace('"', '""') + '"' for t in TEXTS]
        lines = [
            mark.join((str(i), t, c or "", "train"))
            for i, (t, c) in enumerate(zip(quoted, label, strict=True))
        ]
        text = "\n".join([mark.join(("id", "text", "label", "split")), *lines])
        path.write_bytes(bz2.compress(text.encode()) if kind == "csv.bz2" else text.encode())
    else:
        table = pa.table(
            {
                "text": TEXTS,
                "label": label,
                "id": range(len(TEXTS)),
                "split": ["train"] * len(TEXTS),
                "more": [[1]] * len(TEXTS),
            }
        )
        if kind == "folder":
            path.mkdir()
            pq.write_table(table.slice(0, 3), path / "a.parquet")
            pq.write_table(table.slice(3), path / "b.parquet")
        else:
            pq.write_table(table, path, row_group_size=2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "name", "format"),
    [
        ("jsonl", "d.jsonl", "jsonl"),
        ("jsonl.gz", "d.jsonl.gz", "jsonl"),
        ("csv", "d.csv", "csv"),
        ("tsv", "d.tsv", "csv"),
        ("csv.bz2", "d.csv.bz2", "csv"),
        ("parquet", "d.parquet", "parquet"),
        ("folder", "d", "parquet"),
    ],
)
def test_documents_come_back(tmp_path, change, kind, name, format, size):
    change(BATCH_BYTES, size)
    write_documents(kind, tmp_path / name)
    # a quote may be a letter of a TSV file, so the user says that it is none
    source = sources.find(tmp_path / name, **({"quote": '"'} if kind == "tsv" else {}))
    assert source.format == format
    found = documents_of(source, tmp_path, size)
    assert [d.text for d in found] == TEXTS
    assert [d.label for d in found] == ["a", "b", None, "a", None, "b", "a"]
    assert [d.split for d in found] == ["train"] * len(TEXTS)
    assert [d.name for d in found] == [str(i) for i in range(len(TEXTS))]


def test_large_row_groups_are_cut(tmp_path, change):
    """One row group of everything, as pandas and others write it, is more than a task may hold."""
    texts = [f"document {i} " + "x" * (i % 50) for i in range(3000)]
    (tmp_path / "d").mkdir()
    for name, some in (("a", texts[:2000]), ("b", texts[2000:])):
        labels = [["odd"] if i % 2 else [] for i in range(len(some))]
        pq.write_table(
            pa.table({"text": some, "label": labels, "more": some}),
            tmp_path / "d" / f"{name}.parquet",
        )
    source = sources.find(tmp_path / "d")
    assert len(source.prepare(tmp_path / "scratch").pieces(1)) == 2
    change(MAX_GROUP_BYTES, 1 << 14)
    change(BATCH_BYTES, 1 << 13)
    ready = source.prepare(tmp_path / "scratch")
    assert max(map(ready.weight, ready.pieces(1))) <= 1 << 14
    found = documents_of(source, tmp_path / "scratch")
    assert [d.text for d in found] == texts
    assert found[1].label == ["odd"]


BATCHES = [
    {"text": pa.array(["x", "y", "x"]).dictionary_encode(), "label": [1, 2, None]},
    {"text": pa.array(["z"]).dictionary_encode(), "label": [3]},
    {"text": ["w", None], "label": ["a", "1"]},
]


class Streamed(Table, TextRecords):
    format = "streamed"

    def files(self):
        return [self.path]

    def columns_of(self, file):
        return ["text", "label", "more"]

    def streams(self):
        yield self.path, map(pa.RecordBatch.from_pydict, BATCHES)


def test_a_table_is_its_columns_and_a_stream_of_batches(tmp_path, monkeypatch):
    """Batches of any size, whose dictionaries and even types may change."""
    source = Streamed("here")
    source.check()
    found = documents_of(source, tmp_path)
    assert [d.text for d in found] == ["x", "y", "x", "z", "w", ""]
    assert [d.label for d in found] == ["1", "2", None, "3", "a", "1"]
    monkeypatch.setitem(BATCHES[2], "text", [5, 6])
    with pytest.raises(SourceError, match=r"here: row 4 \(from 0\): text must be a text; got int"):
        documents_of(source, tmp_path)


def test_other_columns_and_kinds_of_label(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"body": "x", "y": -1}\n{"body": "z", "y": 0.5}\n{"body": "w", "y": true}\n')
    found = documents_of(sources.find(path, text="body", label="y"), tmp_path)
    assert [d.label for d in found] == ["-1", "0.5", "true"]
    found = documents_of(sources.find(path, text="body", label="y", unlabeled="-1"), tmp_path)
    assert found[0].label is None
    table = pa.table({"text": ["x", "y"], "label": [["a", "b"], []]})
    pq.write_table(table, tmp_path / "multi.parquet")
    assert [d.label for d in documents_of(sources.find(tmp_path / "multi.parquet"), tmp_path)] == [
        ["a", "b"],
        [],
    ]


@pytest.mark.parametrize("size", SIZES)
def test_features_in_json(tmp_path, matrix, size):
    path = tmp_path / "X.jsonl"
    with open(path, "w") as file:
        for i in range(23):
            row = matrix[[i]]
            features = {str(j): float(v) for j, v in zip(row.indices, row.data, strict=True)}
            file.write(json.dumps({"features": features, "label": i % 2, "id": f"r{i}"}) + "\n")
    source = sources.find(path, n_features=17)
    assert source.format == "jsonl-features"
    X, y, _, names = rows_of(source, tmp_path, size)
    np.testing.assert_array_equal(X, matrix.toarray())
    assert y.tolist() == [i % 2 for i in range(23)]
    assert names[3] == "r3"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', "line 2 is not JSON"),
        ("[1, 2]", "line 2 holds list, not an object"),
        (
            '{"body": "x", "label": 1}',
            "line 2 has no field 'text', only 'body', 'label': name it with text=",
        ),
        ('{"text": 5}', "line 2: text must be a text; got int"),
        ('{"text": "x", "label": NaN}', "line 2 is not JSON: NaN is not a number"),
        ('{"text": "x", "label": {"a": 1}}', "line 2: a label must be a text"),
        ('{"text": "x", "split": "dev"}', "line 2: the split must be train or test; got 'dev'"),
        ('{"text": ' + "[" * 100_000, "line 2: the object is nested too deeply"),
        (
            '{"text": "' + "\\uD800" * 2 + '", "label": 1e999}',
            "line 2: a label must be a text, a number",
        ),
    ],
)
def test_bad_documents_in_json(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "fine"}\n' + line + "\n")
    refused(path, message, tmp_path, size=5)


@pytest.mark.parametrize(
    "line",
    [b'{"features": {"a": ' + b"9" * 5000 + b"}}", b'{"text": "caf\xe9"}', b"{'text': 'x'}"],
    ids=["a long number", "Latin-1", "of Python"],
)
def test_a_first_line_that_is_no_json_is_named(tmp_path, line):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(line + b'\n{"text": "fine"}\n')
    refused(path, "line 1 is not JSON", tmp_path, size=5)


BEYOND = r"line 2, column 1 \(from 0\) is inf: values must be finite and fit in float32"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"features": {"-1": 1}}', r"'-1' is not a column number \(from 0\)"),
        ('{"features": {"a": 1}}', "'a' is not a column number"),
        ('{"features": {"1": "2"}}', "the value of column 1 is '2', not a finite number"),
        (
            '{"features": {"1": 1e999}}',
            BEYOND,
        ),
        ('{"features": {"1": null}}', "the value of column 1 is None"),
        ('{"features": {"1": true}}', "the value of column 1 is True"),
        ('{"features": [1]}', "features is list, but must be {column: value}"),
        ('{"features": {"99": 1}}', r"column 99 \(from 0\) lies outside 50 columns"),
        (
            '{"features": {"1": 1' + "0" * 400 + "}}",
            BEYOND,
        ),
    ],
)
def test_bad_features_in_json(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"features": {"1": 1}}\n' + line + "\n")
    refused(path, message, tmp_path, n_features=50)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,text\nx,y\n", "two columns called 'text'"),
        (b"text,label\nx\n", "Expected 2 columns"),
        (b'text,label\n"x,1\n', "a quote that is never closed"),
        (b'text,label\n5" pipe,1\n"two\nlines",2\n"6" pipe,1\n', "line 5: a field begins with"),
        (b"text\n\xff\xfe\xff\n", "(?i)utf"),
        (b"\xff\xfe\n1\n", "no header can be read"),
        (b"text,split\nx,dev\n", "the split must be train or test; got 'dev'"),
    ],
)
def test_bad_csv(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    refused(path, message, tmp_path)


def test_bad_parquet(tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"text": [1, 2]}), path)
    refused(
        path, r"bad\.parquet, row group 0: row 0 \(from 0\): text must be a text; got int", tmp_path
    )
    pq.write_table(pa.table({"words": ["x"]}), path)
    refused(
        path, r"no column of numbers or categories \(left out .words. \(all different\)", tmp_path
    )
    path.write_bytes(path.read_bytes()[:-20])
    refused(path, "not a whole Parquet file", tmp_path)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    refused(path, "holds no rows", tmp_path)


def test_jsonl_with_a_long_first_line_is_known_by_its_start(tmp_path):
    """The head of a file ends within the line."""
    path = tmp_path / "X.jsonl"
    row = {"label": 1, "features": {str(i): 1.5 for i in range(20_000)}}
    path.write_text(json.dumps(row) + "\n")
    assert sources.find(path).format == "jsonl-features"
    path.write_text(json.dumps({"text": '"features": {' + "word " * 40_000}) + "\n")
    assert sources.find(path).format == "jsonl"


@pytest.mark.parametrize("role", ["label", "split", "name"])
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "csv", "csv.bz2", "parquet", "folder"])
def test_a_named_field_that_no_record_has_is_an_error(tmp_path, kind, role):
    write_documents(kind, tmp_path / f"d.{kind}")
    match = rf"no (column|field) 'grp'.*'text', 'label'.*with {role}=, or leave {role}= out"
    refused(tmp_path / f"d.{kind}", match, tmp_path, **{role: "grp"})


def test_a_field_of_json_lines_may_come_late_and_escaped(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "grp"}\n{"text": "b"}\n{"text": "c", "g\\u0072p": "x"}\n')
    found = documents_of(sources.find(path, label="grp"), tmp_path)
    assert [d.label for d in found] == [None, None, "x"]


def test_no_field_is_needed_where_none_is_named(tmp_path):
    (tmp_path / "d.csv").write_text("text\none\n")
    for options in ({}, {"label": ""}):
        assert documents_of(sources.find(tmp_path / "d.csv", **options), tmp_path)[0].label is None


STRAY = ['a pipe of 5" steel', '"first line\nsecond ""line"""', '6" more', '"q"r"', '""']


@pytest.mark.parametrize("size", [1, 9, 20, 10**9])
@pytest.mark.parametrize("mark", ["\t", ","])
def test_a_quote_inside_a_field_is_a_letter(tmp_path, change, mark, size):
    """What pyarrow reads of the whole file is what is read in pieces, of one record each too."""
    change(BATCH_BYTES, size)
    rows = ["text{0}label", *(f"{text}{{0}}x" for text in STRAY * 3)]
    path = tmp_path / "d.tsv"
    path.write_text("\n".join(rows).format(mark))
    parse = pa_csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    table = pa_csv.read_csv(path, parse_options=parse)["text"].to_pylist()
    assert table[:2] == ['a pipe of 5" steel', 'first line\nsecond "line"']
    source = sources.find(path, delimiter=mark, quote='"').prepare(tmp_path)
    parts = [part for piece in source.pieces(size) for part in source.read(piece)]
    assert [text for part in parts for text in part.texts] == table
    if size == 1:
        assert len(source.pieces(size)) == len(table)


def test_a_header_may_hold_quotes_and_line_ends(tmp_path):
    (tmp_path / "d.csv").write_text('\ufefftext,5" pipe,"two\nlines"\none,2,3\n', encoding="utf-8")
    source = sources.find(tmp_path / "d.csv")
    assert source.column_names() == ["text", '5" pipe', "two\nlines"]
    assert [d.text for d in documents_of(source, tmp_path)] == ["one"]


def test_the_option_features_says_that_records_hold_numbers(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"vector": {"0": 1, "2": 0.5}}\n')
    source = sources.find(f"{tmp_path}/r.jsonl?features=vector")
    assert source.format == "jsonl-features"
    assert rows_of(source, tmp_path)[0].tolist() == [[1, 0, 0.5]]
