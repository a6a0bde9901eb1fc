"""Groups, batches, weights and times of samples: from the columns of a source into the store."""

import datetime
import json

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import zarr
from pyarrow import parquet

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import samples
from bigfs.storage.write_back import write_element
from tests.helpers.commands import fails

ROLES = {"group": "donor", "batch": "lane", "sample_weight": "w", "time": "day"}
N = 60


def frame(n=N, start=0):
    rng = np.random.default_rng(5)
    numbers = pd.DataFrame(rng.integers(0, 3, (start + n, 3)), columns=["a", "b", "c"])
    row = np.arange(start + n)
    roles = pd.DataFrame(
        {
            "label": np.where(row % 2, "yes", "no"),
            "split": np.where(row % 3 == 2, "test", "train"),
            "donor": [f"d{i}" for i in row % 7],
            "lane": row % 4,
            "w": row / 8,
            "day": [f"2024-03-{1 + i % 28:02}" for i in row],
            "text": [f"word{i % 5} word{i % 3}" for i in row],
        }
    )
    return pd.concat([numbers, roles], axis=1)[start:].reset_index(drop=True)


def write(table, kind, folder):
    if kind == "csv":
        table.to_csv(path := folder / "rows.csv", index=False)
    elif kind == "jsonl":
        path = folder / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_dict("records")))
    elif kind == "parquet":
        days = pa.array(pd.to_datetime(table["day"]).dt.date)  # a date instead of a text
        written = pa.Table.from_pandas(table).set_column(table.columns.get_loc("day"), "day", days)
        parquet.write_table(written, path := folder / "rows.parquet", row_group_size=17)
    elif kind == "h5ad":
        with h5py.File(path := folder / "rows.h5ad", "w") as root:
            root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
            write_element(root, "X", sp.csr_array(table[["a", "b", "c"]].to_numpy(np.float32)))
            obs = root.create_group("obs")
            obs.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0"})
            write_element(obs, "_index", table.index.astype(str).tolist())
            for name in ("label", "split", "donor", "lane", "w", "day"):
                values = table[name]
                if name == "donor":
                    codes, names = pd.factorize(values)
                    write_element(obs, name, (names, codes))
                else:
                    write_element(obs, name, values.to_numpy() if name in "lanew" else [*values])
    return path


def require_roles(corpus, table):
    assert corpus.roles == ROLES
    np.testing.assert_array_equal(
        np.array(corpus.categories("group"))[corpus.groups], table["donor"]
    )
    np.testing.assert_array_equal(
        np.array(corpus.categories("batch"))[corpus.batches], table["lane"].astype(str)
    )
    np.testing.assert_array_equal(corpus.sample_weight, table["w"])
    np.testing.assert_array_equal(corpus.times, pd.to_datetime(table["day"]).to_numpy())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", {"columns": "*", "categories": "text"}),
        ("csv", {}),
        ("parquet", {"columns": "a,b,c"}),
        ("parquet", {}),
        ("jsonl", {}),
        ("h5ad", {}),
        ("csv", {"columns": "a,b,c", "scale": "standard"}),
    ],
)
def test_roles_reach_the_store_in_its_order(tmp_path, kind, options):
    table = frame()
    uri = storage.stage(
        write(table, kind, tmp_path), tmp_path / "rows.zarr", **ROLES, **options, tile_rows=13
    )
    halves = [table[table["split"] == split] for split in ("train", "test")]
    corpus = storage.open(uri)
    require_roles(corpus, pd.concat(halves))
    for half, part in zip(halves, (corpus.part("train"), corpus.part("test")), strict=True):
        require_roles(part, half)
    if "columns" in options:  # no role is a feature
        assert not set(corpus.feature_names[:]) & {"label", "split", *ROLES.values()}
    assert storage.check(uri).problems == []
    assert storage.info(uri)["roles"] == ROLES
    obs = zarr.open_group(uri, mode="r")["obs"]  # the layout is AnnData's
    assert obs.attrs["column-order"] == ["label", "split", *ROLES]
    assert obs["group"].attrs["encoding-type"] == "categorical"


def test_a_store_without_roles_stays_as_it_was(tmp_path):
    path = write(frame(), "csv", tmp_path)
    plain = storage.stage(path, tmp_path / "plain.zarr", columns="a,b,c")
    corpus = storage.open(plain)
    assert "roles" not in corpus.manifest.source
    assert corpus.roles == {}
    assert (corpus.groups, corpus.batches, corpus.sample_weight, corpus.times) == (None,) * 4
    assert corpus.categories("group") == []
    with_roles = storage.stage(path, tmp_path / "roles.zarr", columns="a,b,c", group="donor")
    assert storage.open(with_roles).manifest.key != corpus.manifest.key


def test_append_takes_roles_along(tmp_path):
    (tmp_path / "more").mkdir()
    table, more = frame().drop(columns="split"), frame(30, start=N).drop(columns="split")
    more.loc[3, "donor"] = "a new one"
    uri = storage.stage(
        write(table, "csv", tmp_path), tmp_path / "rows.zarr", columns="a,b,c", **ROLES
    )
    new = write(more, "csv", tmp_path / "more")
    storage.append(new, uri, columns="a,b,c", **ROLES)
    corpus = storage.open(uri)
    require_roles(corpus, pd.concat([table, more]))
    assert corpus.categories("group")[-1] == "a new one"
    assert storage.check(uri).problems == []
    more.loc[0, "a"] = 9
    other = write(more, "csv", tmp_path / "more")
    without = {role: name for role, name in ROLES.items() if role != "time"}
    with pytest.raises(SourceError, match=r"the store has batch=, group=, sample_weight=, time=: "):
        storage.append(other, uri, columns="a,b,c", **without)
    with pytest.raises(SourceError, match="both numbers and dates"):
        storage.append(
            write(more.assign(day=1), "csv", tmp_path / "more"), uri, columns="a,b,c", **ROLES
        )


@pytest.mark.parametrize(
    ("role", "column", "value", "told"),
    [
        ("group", "donor", "", "group= names a column that must hold a text or a number"),
        ("sample_weight", "w", -1, "sample_weight= names .* of at least 0 for every sample; got"),
        ("sample_weight", "w", "much", "a finite number of at least 0"),
        ("time", "day", "soon", "a number or a date such as 2024-03-01T12:30 .* got 'soon'"),
        ("time", "day", "17", "both numbers and dates"),
        ("group", "patient", None, "has no column 'patient'"),
    ],
)
@pytest.mark.parametrize("options", [{"columns": "a,b,c"}, {}])
def test_a_value_that_is_none_is_refused_by_its_place(tmp_path, role, column, value, told, options):
    table = frame().astype({"w": object})
    if column in table:
        table.loc[4, column] = value
    path = write(table, "csv", tmp_path)
    with pytest.raises(SourceError, match=told) as error:
        storage.stage(path, tmp_path / "rows.zarr", **{role: column}, **options)
    assert str(path) in str(error.value)
    assert not (tmp_path / "rows.zarr").exists()


def test_numbers_and_dates_in_two_files_are_refused(tmp_path):
    for name, day in (("a", [1.5, 2.5]), ("b", ["2024-01-01", "2024-01-02"])):
        parquet.write_table(pa.table({"x": [1, 2], "day": day}), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match="both numbers and dates"):
        storage.stage(tmp_path, tmp_path / "rows.zarr", columns="x", time="day")


def test_times_are_utc_and_numbers_stay_numbers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,day\n1,2024-01-01T01:00+02:00\n1,2024-01-01\n")
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr", columns="x", time="day"))
    assert [str(t)[:16] for t in corpus.times] == ["2023-12-31T23:00", "2024-01-01T00:00"]
    path.write_text("x,day\n1,1.5\n1,-2\n")
    corpus = storage.open(storage.stage(path, tmp_path / "b.zarr", columns="x", time="day"))
    assert corpus.times.tolist() == [1.5, -2.0]


def test_names_of_groups_are_within_the_memory(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,g\n" + "".join(f"1,{i:06}\n" for i in range(320_000)))
    with pytest.raises(MemoryError, match=r"values of group= in .* is allowed"):
        storage.stage(path, tmp_path / "a.zarr", columns="x", group="g", memory_limit="300MB")


def test_the_command_line_takes_roles_and_shows_them(tmp_path, bigfs):
    path = write(frame(), "csv", tmp_path)
    uri = tmp_path / "rows.zarr"
    assert bigfs("stage", f"{path}?columns=a,b,c&group=donor&time=day", uri)[0] == 0
    assert "group donor, time day" in bigfs("info", uri)[1]
    told = json.loads(bigfs("info", uri, "--json")[1])
    assert told["roles"] == {"group": "donor", "time": "day"}
    fails(bigfs("stage", f"{path}?columns=a,b,c&bach=lane", "b.zarr"), "bach", "batch")


def test_times_come_as_objects_too():
    times = [
        datetime.date(2024, 1, 1),
        datetime.datetime(2024, 1, 1, 3),
        np.datetime64("2024-01-01T05"),
        pd.Timestamp("2024-01-01 07:00", tz="Europe/Berlin"),
        "2024-01-01T07:00Z",
    ]
    column = pa.concat_arrays([samples.read("time", [time], str) for time in times])
    hours = column.to_numpy() - np.datetime64("2024-01-01")
    assert (hours / np.timedelta64(1, "h")).tolist() == [0, 3, 5, 6, 7]


@pytest.mark.parametrize(
    "value", [pd.NaT, np.datetime64("NaT", "s"), None, "", np.nan, True, "x", []]
)
def test_a_missing_time_is_refused(value):
    with pytest.raises(SourceError, match="row 1: time= names a column that must hold a number or"):
        samples.read("time", [datetime.date(2024, 1, 1), value], "row {}".format)
