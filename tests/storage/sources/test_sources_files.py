"""What lies behind a path is looked at in one place: damage, cuts, servers and large records."""

import collections
import json
import resource
import tracemalloc

import fsspec
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigfs import storage
from bigfs.engine import MemoryLimitError, limit_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import files, find, hdf5, trial
from bigfs.storage.sources.scratch_matrix import cut_sparse
from bigfs.storage.sources.svmlight import source
from bigfs.storage.sources.tables import columnar, jsonl, tables
from tests.helpers.sources import consumed, refused, rows_of, whole_or_refused


class Broken(json.JSONDecoder):
    def decode(self, text):
        raise AttributeError(text)


def table_of(rows, seed=0):
    rng = np.random.default_rng(seed)
    columns = {f"c{j}": rng.random(rows, dtype=np.float32) for j in range(4)}
    return pa.table({**columns, "label": np.arange(rows) % 2})


# --- damage ---------------------------------------------------------------------------------------


def test_a_flipped_bit_of_a_page_with_a_checksum_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table_of(2000), path, write_page_checksum=True, use_dictionary=False)
    raw = path.read_bytes()
    want, refusals = rows_of(find(path, columns="*"), tmp_path / "s")[0], 0
    for at in range(1000, 20_000, 3000):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        X = whole_or_refused(lambda: rows_of(find(path, columns="*"), tmp_path / "s")[0])
        assert isinstance(X, np.ndarray) or X == "refused"
        refusals += isinstance(X, str)
        if not isinstance(X, str):
            np.testing.assert_array_equal(X, want)
    assert refusals >= 5


def test_a_footer_that_ends_the_process_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"i": [[1, 2], [3]], "v": [[1.0, 2.0], [3.0]]}), path)
    words = {"indices": "i", "values": "v"}
    assert len(rows_of(find(path, **words), tmp_path / "s")[0]) == 2
    ends = trial.Trial("import os\nos.abort()")
    monkeypatch.setattr(columnar, "trial", lambda script: ends)
    refused(path, "is not a whole Parquet file: its footer is damaged", tmp_path / "s", **words)


def test_a_file_with_which_its_library_hangs_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "t.h5ad"
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
    hangs = trial.Trial("import sys, time\nprint('at')\ntime.sleep(1e6)", patience=0.1)
    monkeypatch.setattr(hdf5, "trial", lambda script: hangs)
    refused(path, "t.h5ad is broken: the HDF5 library does not come to an end", tmp_path / "s")
    assert hangs.child is None


def test_a_trial_goes_on_after_an_error_and_a_child_that_ended(tmp_path):
    script = "def tried(raw):\n    print('x' * 99_999)\n    return 1 / int(raw), raw.decode()"
    one = trial.Trial(script)
    assert [one.ask(raw) for raw in (b"0", b"2")] == [["error"], ["(0.5,", "'2')"]]
    one.child.kill()
    one.child.wait()
    assert one.ask(b"4") == ["(0.25,", "'4')"]
    one.close()


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_offsets_of_arrow_that_lead_out_are_refused(tmp_path, new):
    path, texts = tmp_path / "t.arrow", ["purr milk", "bark bone"]
    with new(path, pa.schema({"text": pa.string()})) as out:
        out.write_table(pa.table({"text": texts}))
    raw = bytearray(path.read_bytes())
    at = raw.index(np.array([0, 9, 18], dtype=np.int32).tobytes())
    raw[at + 6] = 64  # of 9
    path.write_bytes(raw)
    refused(path, r"record batch 0 is broken", tmp_path / "s")


def test_csv_that_is_cut_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("x,label\n" + "1.5,a\n" * 1_000_000)

    def read(self, size, read=tables._Lines.read):
        raw = read(self, size)
        with open(path, "r+b") as file:
            file.truncate(3_000_000)
        return raw

    monkeypatch.setattr(tables._Lines, "read", read)
    with limit_memory(32 << 20):
        refused(path, "was cut while it was read", tmp_path / "s", columns="x")


def test_arrow_that_is_cut_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(path, table_of(1).schema) as out:
        out.write_table(table_of(100_000), max_chunksize=1000)
    ready = find(path, columns="*").prepare(tmp_path / "s")
    pieces = ready.pieces(1)
    with open(path, "r+b") as file:
        file.truncate(200_000)
    with pytest.raises(SourceError, match=r"t\.arrow is not whole Arrow IPC"):
        ready.read(pieces[-1])


def test_a_mistake_of_ours_is_not_the_file_s(tmp_path):
    with (
        pytest.raises(SourceError, match="it is broken: bad magic"),
        files.source_errors("it is broken"),
    ):
        raise ValueError("bad magic")
    with pytest.raises(SourceError, match="it is broken"), files.source_errors("it is broken"):
        json.loads("{", cls=Broken)  # whose line is none of ours
    (tmp_path / "t.npy").write_bytes(b"\x93NUMPY\x01\x00")
    refused(tmp_path / "t.npy", "cannot be read as npy", tmp_path / "s")


def test_a_line_of_ours_that_is_wrong_stays_what_it_is(tmp_path, monkeypatch):
    np.save(tmp_path / "t.npy", np.eye(3))
    monkeypatch.setattr("bigfs.storage.sources.arrays.open_dense", None)
    with pytest.raises(TypeError, match="not callable"):
        consumed(tmp_path / "t.npy", tmp_path / "s")


# --- memory and descriptors -----------------------------------------------------------------------


def test_pieces_of_a_matrix_are_cut_by_their_entries():
    lengths = np.zeros(10_000, dtype=np.int32)
    lengths[:30] = 10_000  # that hold all
    pieces = cut_sparse([lengths[:7], lengths[7:]], 600_000)
    assert [a for a, _ in pieces[1:]] == [b for _, b in pieces[:-1]]
    assert (pieces[0][0], pieces[-1][1]) == (0, 10_000)
    sizes = [12 * int(lengths[a:b].sum()) + 8 * (b - a) for a, b in pieces]
    assert max(sizes) <= 600_000 + 12 * 10_000
    assert len(pieces) < 10


def test_a_long_first_line_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "' + "word " * 1_000_000 + '", "label": "a"}\n{"text": "b"}\n')
    tracemalloc.start()
    with limit_memory(32 << 20), pytest.raises(MemoryLimitError, match="line 1: a record of"):
        find(path, label="label").prepare(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("kinds", [("null", "float64"), ("int32", "float64")])
def test_tables_of_changing_types_keep_one_file_open(tmp_path, kinds):
    values = {
        "null": pa.nulls(2),
        "float64": pa.array([1.0, 2.0]),
        "int32": pa.array([1, 2], "int32"),
    }
    parts = [pa.table({"x": [1.0, 2.0], "y": values[kinds[i % 2]]}) for i in range(120)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        uri = storage.stage(iter(parts), tmp_path / "t.zarr", columns="*", missing="zero")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert storage.open(uri).X.shape == (240, 2)


# --- servers --------------------------------------------------------------------------------------


def counting(asked, name, real):
    def ask(self, *args, **options):
        asked[name] += 1
        return real(self, *args, **options)

    return ask


def test_a_file_of_parquet_behind_a_url_takes_three_requests(tmp_path, monkeypatch):
    fs, count = fsspec.filesystem("memory"), 20
    for i in range(count):
        out = pa.BufferOutputStream()
        pq.write_table(table_of(20, i), out)
        fs.pipe(f"/many/part={i % 2}/{i}.parquet", out.getvalue().to_pybytes())
    asked = collections.Counter()
    for name in ("info", "find", "ls", "cat_file", "ukey", "isfile", "isdir", "size", "exists"):
        monkeypatch.setattr(type(fs), name, counting(asked, name, getattr(type(fs), name)))
    try:
        uri = storage.stage("memory://many", tmp_path / "t.zarr", columns="*")
        assert asked["cat_file"] <= 3 * count + 1, asked
        assert sum(n for name, n in asked.items() if name not in ("cat_file", "ls")) <= 30, asked
        corpus = storage.open(uri)
        assert list(corpus.feature_names) == ["c0", "c1", "c2", "c3", "part"]
        assert corpus.X.rows(slice(None)).toarray()[:, 4].tolist() == [0] * 200 + [1] * 200
    finally:
        fs.store.clear()
        fs.pseudo_dirs[:] = [""]


# --- a look ---------------------------------------------------------------------------------------


def test_a_look_tells_what_would_be_read_and_reads_no_more(tmp_path):
    (tmp_path / "a.svm").write_text("1 0:2 3:1\n2 1:4\n" * 300_000)
    about = storage.look(tmp_path / "a.svm")
    assert about["guessed"] == {"zero_based": True}
    assert about["is_whole"] is False
    assert int(about["read"].split()[1].replace(",", "")) < 140_000
    assert [s["label"] for s in about["samples"]] == ["1", "2", "1"]
    assert [s["entries"] for s in about["samples"]] == [
        {"0": 2, "3": 1},
        {"1": 4},
        {"0": 2, "3": 1},
    ]


def test_a_look_at_a_table_in_partitions_and_at_texts(tmp_path):
    for part in ("x", "y"):
        (tmp_path / "h" / f"label={part}").mkdir(parents=True)
        pq.write_table(table_of(50).drop_columns("label"), tmp_path / f"h/label={part}/a.parquet")
    about = storage.look(tmp_path / "h", columns="*")
    assert (
        about["read"] == "parquet-features, 50 samples × 4 features; 1 classes ('x' 50); no split"
    )
    for name in ("cat", "dog"):
        (tmp_path / "d" / name).mkdir(parents=True)
        (tmp_path / "d" / name / "1").write_text("purr milk")
    about = storage.look(tmp_path / "d")
    assert about["is_whole"]
    assert [s["name"] for s in about["samples"]] == ["cat/1", "dog/1"]


def test_the_commands_say_what_is_read(bigfs, tmp_path):
    (tmp_path / "a.csv").write_text("x,split,label\n1,train,a\n2,train,b\n3,test,a\n")
    status, out, _ = bigfs("look", f"{tmp_path}/a.csv?columns=*")
    assert status == 0
    told = "csv-features, 3 samples × 1 features; 2 classes ('a' 2, 'b' 1); train 2, test 1"
    assert f"all of it: {told}" in out
    status, out, _ = bigfs("stage", f"{tmp_path}/a.csv?columns=*", "t.zarr", "--workers", 0)
    assert status == 0
    assert told in out


# --- names ----------------------------------------------------------------------------------------


def test_half_of_a_surrogate_pair_in_a_name_is_refused(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"features": {"\\ud800x": 1}, "label": "a"}\n{"features": {"?x": 2}, "label": "b"}\n'
    )
    refused(tmp_path / "t.jsonl", "line 1: the name .* holds half of a surrogate pair", tmp_path)


def test_names_of_vowpal_wabbit_are_kept_to_the_byte(tmp_path):
    (tmp_path / "t.vw").write_text("1 |a new\u00a0york:2 x\n-1 |a x:3\n", encoding="utf-8")
    corpus = storage.open(storage.stage(tmp_path / "t.vw", tmp_path / "t.zarr"))
    assert list(corpus.feature_names) == ["a^new\u00a0york", "a^x"]
    (tmp_path / "t.vw").write_bytes(b"1 |a caf\xe9:2\n-1 |a caf\xe8:3\n")
    refused(tmp_path / "t.vw", "line 1: it is not UTF-8 .*give its encoding=", tmp_path)
    corpus = storage.open(storage.stage(tmp_path / "t.vw", tmp_path / "u.zarr", encoding="latin-1"))
    assert list(corpus.feature_names) == ["a^cafè", "a^café"]
    (tmp_path / "t.vw").write_text("1 1 0.5 |a x\n")
    refused(tmp_path / "t.vw", "the initial prediction is 0.5, which is not kept", tmp_path)


def test_a_link_is_followed_once(tmp_path):
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "1").write_text("x")
    (tmp_path / "s" / "b").symlink_to(tmp_path / "s" / "a")
    (tmp_path / "s" / "a" / "up").symlink_to(tmp_path / "s")
    assert len(files.walk(tmp_path / "s")) == 1


# --- work -----------------------------------------------------------------------------------------


class Counted(str):
    """A name that counts how often it is compared and hashed."""

    work = 0

    def __eq__(self, other):
        Counted.work += 1
        return str.__eq__(self, other)

    def __hash__(self):
        Counted.work += 1
        return str.__hash__(self)


def work_of(function, *given):
    Counted.work = 0
    with pytest.raises((SourceError, ValueError), match=r"two columns|comes twice"):
        function(*given)
    return Counted.work


@pytest.mark.parametrize("kind", ["columns", "fields"])
def test_a_name_that_comes_twice_is_found_in_linear_work(kind, tmp_path):
    (tmp_path / "t.csv").write_text("text\n")
    table = find(tmp_path / "t.csv")
    work = []
    for count in (500, 2000):
        names = [Counted(f"c{j}") for j in range(count)] + [Counted(f"c{count - 1}")]
        if kind == "columns":
            work.append(work_of(table.columns_to_read, names))
        else:
            work.append(work_of(jsonl._without_repeats, [(name, 0) for name in names]))
    assert work[1] < 5 * work[0]


def test_a_line_of_blanks_is_looked_at_once(monkeypatch):
    lengths, is_entry = [], source.is_entry
    monkeypatch.setattr(
        source, "is_entry", lambda token: lengths.append(len(token)) or is_entry(token)
    )
    for line in (b" " * 5000 + b"x", b"x " * 2500, b"x" * 5000, b"1 " + b"2:" * 2500):
        lengths.clear()
        source.Svmlight.sniff(None, line)
        assert sum(lengths) <= 2 * len(line)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("min_df", -3),
        ("min_df", 0),
        ("min_df", 2.0),
        ("max_df", -1),
        ("tile_rows", 0),
        ("tile_rows", -1),
        ("hashing", 0),
        ("hashing", -5),
        ("hashing", "8"),
    ],
)
def test_a_setting_out_of_range_is_refused_before_the_source_is_looked_at(tmp_path, setting, value):
    with pytest.raises(SourceError, match=f"^{setting} must be a whole number") as caught:
        storage.stage(tmp_path / "nothing", tmp_path / "a.zarr", **{setting: value})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
