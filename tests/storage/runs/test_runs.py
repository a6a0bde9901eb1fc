import contextlib
import errno
import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bigfs.storage import atomic
from bigfs.storage.errors import StoreError
from bigfs.storage.runs import runs
from bigfs.storage.runs.metadata import sealed_json
from bigfs.storage.runs.runs import Run, RunError, results_of, unfinished_of
from tests.helpers.listing import names_in

ASKED = {"store": "s.zarr", "method": "anova", "features": 3, "parameters": {}}


class State(NamedTuple):
    W: np.ndarray
    sets: tuple
    graph: sp.csr_array
    step: int
    gap: float
    missing: None


STATE = State(
    np.arange(6.0).reshape(2, 3),
    (np.array([3, 1]), np.array([2])),
    sp.csr_array(np.eye(3)),
    4,
    0.25,
    None,
)


def test_a_run_gets_its_name_when_it_is_whole(tmp_path):
    run = Run.begin(tmp_path / "a", ASKED | {"features": np.int64(3)})
    run.write_table(
        "selected.csv",
        ["rank", "index", "name", "score"],
        [[1, 7, "wheel, spare", 0.5], [2, 2, "ünïcode", 0.25]],
    )
    run.write_scores([0.1, 0.5])
    run.update_metadata(status="done", gap=np.float64(0.01))
    assert not (tmp_path / "a").exists()
    run.finish()
    again = Run.open(tmp_path / "a")
    assert again.metadata["parameters"] == ASKED
    assert again.metadata["gap"] == 0.01
    np.testing.assert_array_equal(again.selected, [7, 2])
    assert again.read_table("selected.csv")[0]["name"] == "wheel, spare"
    np.testing.assert_array_equal(again.scores, [0.1, 0.5])
    assert names_in(tmp_path) == [".a", "a"]


def test_a_finished_run_is_replaced_by_the_next_of_its_name(tmp_path):
    for mark in (1, 2):
        run = Run.begin(tmp_path / "a", ASKED)
        run.update_metadata(mark=mark)
        run.finish()
    assert Run.open(tmp_path / "a").metadata["mark"] == 2
    assert names_in(tmp_path) == [".a", "a"]


def test_checkpoints_keep_every_kind_of_field_and_survive_the_process(tmp_path):
    checkpoint = Run.begin(tmp_path / "a", ASKED).checkpoint("store", 1)
    assert checkpoint.load("SparGE") is None
    checkpoint.save("SparGE", STATE, [{"gap": 0.5}])
    fields, history = Run.begin(tmp_path / "a", ASKED).checkpoint("store", 1).load("SparGE")
    state = State(*fields)
    np.testing.assert_array_equal(state.W, STATE.W)
    np.testing.assert_array_equal(state.sets[1], [2])
    np.testing.assert_array_equal(state.graph.toarray(), np.eye(3))
    assert (state.step, state.gap, state.missing) == (4, 0.25, None)
    assert history == [{"gap": 0.5}]


def test_other_parameters_or_another_store_start_clean(tmp_path):
    Run.begin(tmp_path / "a", ASKED).checkpoint("store", 1).save("SparGE", STATE, [])
    assert Run.begin(tmp_path / "a", ASKED).checkpoint("store", 2).load("SparGE") is None
    assert (
        Run.begin(tmp_path / "a", ASKED | {"features": 4}).checkpoint("store", 1).load("SparGE")
        is None
    )


def test_a_failed_run_leaves_nothing_but_usable_checkpoints(tmp_path):
    Run.begin(tmp_path / "a", ASKED).abandon()
    assert list(tmp_path.iterdir()) == []
    run = Run.begin(tmp_path / "a", ASKED)
    (run.path / "checkpoints").mkdir()  # the first one could not be written
    run.abandon()
    assert list(tmp_path.iterdir()) == []
    run = Run.begin(tmp_path / "a", ASKED)
    run.checkpoint().save("SparGE", STATE, [])
    run.abandon()
    assert names_in(tmp_path) == [".a"]


def test_what_is_not_a_run_is_said_plainly(tmp_path):
    with pytest.raises(RunError, match=r"no run\.json"):
        Run.open(tmp_path / "nothing")
    (tmp_path / "notes").mkdir()
    with pytest.raises(RunError, match="not a run directory: give another --out"):
        Run.begin(tmp_path / "notes", ASKED)
    run = Run.begin(tmp_path / "b", ASKED)
    run.finish()
    for about, said in (
        (sealed_json({"version": 99, "parameters": ASKED}), "newer bigfs"),
        (json.dumps({"version": 3, "parameters": ASKED}), "before version 1.0: run it again"),
        (json.dumps({"version": 1, "parameters": ASKED}), "before version 1.0: run it again"),
    ):
        (tmp_path / "b" / "run.json").write_text(about)
        with pytest.raises(RunError, match=said):
            Run.open(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text('{"ver')
    with pytest.raises(RunError, match="damaged"):
        Run.open(tmp_path / "b")


def test_a_damaged_checkpoint_is_deleted_and_its_loop_begins_again(tmp_path, caplog):
    checkpoint = Run.begin(tmp_path / "a", ASKED).checkpoint()
    checkpoint.save("SparGE", STATE, [])
    [file] = tmp_path.glob(".a/*/checkpoints/*")
    for content in (file.read_bytes()[:100], b""):
        file.write_bytes(content)
        assert checkpoint.load("SparGE") is None
        assert f"{file.name} is damaged" in caplog.text
        assert not file.exists()
    assert checkpoint.resumed == {}


def whole(out, **figures):
    """A finished run."""
    run = Run.begin(out, ASKED)
    run.write_table("selected.csv", ["rank", "index", "name", "score"], [[1, 7, "wheel", 0.5]])
    run.write_scores(np.arange(8.0))
    run.update_metadata(**figures)
    return Run.open(run.finish())


# --- nothing foreign is deleted or overwritten ----------------------------------------------------


def test_folders_that_look_like_its_own_are_left_alone(tmp_path):
    for name in ("a.partial", "a.old", ".a.old", ".a.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    for _ in range(2):
        whole(tmp_path / "a")
    assert all(
        (tmp_path / name / "thesis.txt").exists()
        for name in ("a.partial", "a.old", ".a.old", ".a.partial")
    )


def test_what_has_the_name_of_the_folder_of_results_is_refused_and_kept(tmp_path):
    (tmp_path / ".a").mkdir()
    (tmp_path / ".a" / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"\.a is in the way"):
        whole(tmp_path / "a", mark=2)
    assert names_in(tmp_path) == [".a"]
    assert (tmp_path / ".a" / "thesis.txt").read_text() == "mine"


def test_folders_with_names_like_those_of_an_exchange_are_kept(tmp_path):
    for name in (".a.run-old", ".a.staging", f".a.{'0' * 16}.staging"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    for mark in (1, 2):
        whole(tmp_path / "a", mark=mark)
    assert Run.open(tmp_path / "a").metadata["mark"] == 2
    assert len(list(tmp_path.glob(".a.*/thesis.txt"))) == 3


def test_a_foreign_file_in_a_result_stays_with_it(tmp_path):
    first = whole(tmp_path / "a", mark=1, key="one")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    whole(tmp_path / "a", mark=2, key="two")
    assert (first.path / "notes.txt").read_text() == "mine"
    assert first.selected.tolist() == [7]


def test_a_folder_at_the_name_of_a_run_is_read_and_not_replaced(tmp_path):
    """A copy of a run, as by `cp -rL`."""
    shutil.copytree(whole(tmp_path / "a", mark=1).path, tmp_path / "copy")
    assert Run.open(tmp_path / "copy").metadata["mark"] == 1
    with pytest.raises(RunError, match="copy is a folder, and the name of a run is a link"):
        Run.begin(tmp_path / "copy", ASKED)


def test_every_result_of_other_data_is_kept(tmp_path):
    runs = [whole(tmp_path / "a", mark=mark, key=str(mark)) for mark in (1, 2, 3)]
    assert results_of(tmp_path / "a") == [run.path for run in runs]
    assert [Run.open(path).metadata["mark"] for path in results_of(tmp_path / "a")] == [1, 2, 3]
    again = whole(tmp_path / "a", mark=4, key="3")  # --fresh, on the same data
    assert results_of(tmp_path / "a") == [runs[0].path, runs[1].path, again.path]
    assert runs[0].selected.tolist() == [7]  # an opened run goes on reading its own result
    assert [Run.open(path).final for path in results_of(tmp_path / "a")] == [tmp_path / "a"] * 3


def test_a_run_is_moved_with_its_store(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "s.zarr").mkdir()
    run = Run.begin(
        tmp_path / "here" / "runs" / "a", ASKED | {"store": str(tmp_path / "here/s.zarr")}
    )
    run.finish()
    (tmp_path / "here").rename(tmp_path / "there")
    assert Run.open(tmp_path / "there" / "runs" / "a").store == str(tmp_path / "there" / "s.zarr")


def test_a_run_behind_a_symbolic_link_is_replaced_where_it_lies(tmp_path):
    whole(tmp_path / "real", mark=1)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    whole(tmp_path / "link", mark=2)
    assert (tmp_path / "link").is_symlink()
    assert Run.open(tmp_path / "real").metadata["mark"] == 2
    assert names_in(tmp_path) == [".real", "link", "real"]
    for spelled in ("link/", "./link"):
        whole(f"{tmp_path}/{spelled}", mark=3)
        assert os.readlink(tmp_path / "link") == str(tmp_path / "real")
    assert Run.open(tmp_path / "real").metadata["mark"] == 3


def test_a_link_to_itself_is_one_line(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunError, match="a symbolic link that leads to itself"):
        Run.begin(tmp_path / "loop", ASKED)


# --- places that can't be written -----------------------------------------------------------------


def test_a_place_that_cant_be_written_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for out in (
        tmp_path / "file",
        tmp_path / "file" / "r",
        tmp_path / ("x" * 250),
        tmp_path / "deep" / ("x" * 300) / "r",
    ):
        with pytest.raises(RunError, match=r"cannot be written|is not a run directory") as error:
            Run.begin(out, ASKED)
        assert "\n" not in str(error.value)
    # a folder of another user; the superuser may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RunError, match="is not writable"):
        Run.begin(tmp_path / "r", ASKED)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("write", ["write_text", "write_table", "write_scores", "update_metadata"])
def test_a_full_disk_leaves_a_finished_run_as_it_was(tmp_path, monkeypatch, write):
    run = whole(tmp_path / "a", mark=1)
    before = {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    given = {
        "write_text": ("report.html", "page"),
        "write_table": ("selected.csv", ["rank"], [[1]]),
        "write_scores": ([1.0],),
        "update_metadata": (),
    }
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        RunError, match=r"the disk of .*/\.a/.* is full: free some space and repeat"
    ):
        getattr(run, write)(*given[write])
    assert {p.name: p.read_bytes() for p in (tmp_path / "a").iterdir()} == before


def written_anew(run):
    with run.transaction():
        run.write_table("selected.csv", ["rank"], [[2]])
        run.update_metadata(mark=2)
        run.write_text("report.html", "page")


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_files_written_together_get_their_names_together(tmp_path):
    run = whole(tmp_path / "a", mark=1)
    before = contents(run.path)
    with run.transaction():
        written_anew(run)  # it ends with the outer block
        names = ("run.json", "selected.csv", "scores.npy")
        assert {name: contents(run.path)[name] for name in names} == before
    after = contents(run.path)
    assert set(after) == {*before, "report.html"}
    assert after["selected.csv"] != before["selected.csv"]
    assert Run.open(run.path).metadata["mark"] == 2


@pytest.mark.parametrize("name", ["selected.csv", "run.json", "report.html"])
def test_files_written_together_stay_as_they_were_on_a_full_disk(tmp_path, monkeypatch, name):
    run = whole(tmp_path / "a", mark=1)
    before = contents(run.path)

    def full(file, mode="r", *given, opens=Path.open, **options):
        if name in file.name and "w" in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opens(file, mode, *given, **options)

    monkeypatch.setattr("pathlib.Path.open", full)
    with pytest.raises(RunError, match=rf"the disk of .*/\.a/.*/{name} is full"):
        written_anew(run)
    assert contents(run.path) == before


@pytest.mark.parametrize("number", range(1, 5))
def test_a_kill_between_the_names_of_two_files_is_made_good_at_the_next_opening(
    tmp_path, monkeypatch, number
):
    run = whole(tmp_path / "a", mark=1)
    old = contents(run.path)["selected.csv"]
    renames = [0]

    def before(operation, path):
        renames[0] += operation == "rename"
        if renames[0] == number:
            raise SystemExit  # nothing of the process goes on

    monkeypatch.setattr(atomic, "fault_point", before)
    if number < 4:  # of three files
        with pytest.raises(SystemExit):
            written_anew(run)
    else:
        written_anew(run)
    monkeypatch.undo()
    assert Run.open(tmp_path / "a").metadata["mark"] == 2
    after = contents(run.path)
    assert after["selected.csv"] != old
    assert set(after) == {"run.json", "selected.csv", "scores.npy", "report.html"}


@pytest.mark.parametrize("number", range(1, 30))
def test_a_kill_at_any_operation_leaves_the_old_result_or_the_new_one(
    tmp_path, monkeypatch, number
):
    whole(tmp_path / "a", mark=1, key="one")
    run, calls = Run.begin(tmp_path / "a", ASKED, "two"), []
    run.write_table("selected.csv", ["rank", "index", "name", "score"], [[1, 7, "wheel", 0.5]])
    run.update_metadata(mark=2)

    def before(operation, path):
        calls.append(operation)
        if len(calls) >= number:
            raise SystemExit  # nothing of the process goes on

    monkeypatch.setattr(atomic, "fault_point", before)
    with contextlib.suppress(SystemExit):
        run.finish()
    monkeypatch.undo()
    mark = Run.open(tmp_path / "a").metadata["mark"]
    assert mark in (1, 2)
    assert len(results_of(tmp_path / "a")) == mark
    if mark == 1:  # what was whole is taken up
        again = Run.open_unfinished(tmp_path / "a")
        assert again.selected.tolist() == [7]
        again.finish()
    assert [Run.open(path).metadata["mark"] for path in results_of(tmp_path / "a")] == [1, 2]
    whole(tmp_path / "a", mark=3, key="three")
    assert unfinished_of(tmp_path / "a") is None
    assert [Run.open(path).metadata["mark"] for path in results_of(tmp_path / "a")] == [1, 2, 3]


@pytest.mark.parametrize("after", [0, 10])
def test_a_disk_that_is_full_from_the_start_leaves_nothing(tmp_path, monkeypatch, after):
    """The marker itself may be cut short."""

    def full(folder):
        os.makedirs(folder)
        with open(os.path.join(folder, atomic.MARKER), "wb") as file:
            file.write(atomic.WORDS[:after])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("bigfs.storage.atomic.write_marker", full)
        with pytest.raises(RunError, match=r"the disk of .* is full"):
            Run.begin(tmp_path / "a", ASKED)
    assert list(tmp_path.iterdir()) == []
    whole(tmp_path / "a")


# --- what is not as it was written ----------------------------------------------------------------

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        "{}",
        sealed_json({"version": "two", "parameters": {}}),
        sealed_json({"version": 1, "parameters": []}),
        sealed_json({"version": 1, "parameters": {**ASKED, "store": 1}}),
        sealed_json({"version": 1, "parameters": {"method": "anova", "features": 3}}),
        sealed_json({"version": 1, "parameters": ASKED}).replace("anova", "chi2"),
        f'{{"version": 1, "parameters": {DEEP}}}',
        *(
            sealed_json({"version": 1, "parameters": ASKED} | forged)
            for forged in (
                {"stages": {"a": 1}},
                {"stages": [{"stage": "select"}]},
                {"stages": [{"stage": "select", "seconds": "x", "peak_memory": {}}]},
                {"history": [[1]]},
                {"history": "x"},
                {"curves": [{"method": 3}]},
                {"curves": [{"method": "anova", "n_features": 3}]},
                {"curves": [{"method": "anova", "n_features": 3, "accuracy": "high"}]},
                {
                    "curves": [{"method": "anova", "n_features": 3, "accuracy": 1.0}],
                    "measured": {"metrics": ["micro_f1"]},
                },
                {"hints": 4},
                {"profile": [1]},
                {"status": None},
            )
        ),
        b"\xff\xfe",
        "",
    ],
    ids=lambda text: str(text)[:60],
)
def test_a_forged_run_json_is_one_line(tmp_path, text):
    whole(tmp_path / "a")
    (tmp_path / "a" / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RunError, match=r"run\.json is damaged") as error:
        Run.open(tmp_path / "a")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


HEADER = "rank,index,name,score\n"


@pytest.mark.parametrize(
    "text", ["", HEADER, "rank,name\n1,a\n", f"{HEADER}1,x,a,1\n", "index\n1,2\n", '"a']
)
def test_a_forged_selection_is_one_line(tmp_path, text):
    run = whole(tmp_path / "a")
    (tmp_path / "a" / "selected.csv").write_text(text)
    with pytest.raises(RunError, match=r"selected\.csv is damaged"):
        _ = run.selected
    run.metadata["files"]["selected.csv"] = runs._hash(run.path / "selected.csv")  # forged too
    with pytest.raises(RunError, match=r"selected\.csv is damaged"):
        _ = run.selected


def damages(content):
    """A file with one bit changed, cut, lengthened, emptied, and cut at the end of a line."""
    yield from (content[:i] + bytes([content[i] ^ 64]) + content[i + 1 :] for i in (3, -2, -1))
    yield from (content[: len(content) // 2], content + content[-8:], b"")
    yield content[: content[:-1].rfind(b"\n") + 1]


READS = {
    "run.json": lambda run: run.metadata,
    "selected.csv": lambda run: run.selected,
    "classes.csv": lambda run: run.read_table("classes.csv"),
    "curves.csv": lambda run: run.read_table("curves.csv"),
    "scores.npy": lambda run: run.scores,
    "columns.npz": lambda run: run.columns,
    "model.npz": lambda run: run.model(),
}


@pytest.mark.parametrize("name", READS)
def test_no_damage_of_a_file_gives_another_value(tmp_path, name):
    run = Run.begin(tmp_path / "a", ASKED)
    for table in ("selected.csv", "classes.csv", "curves.csv"):
        run.write_table(table, ["index", "name", "score"], [[7, "wheel", 0.5], [2, "tire", 0.25]])
    run.write_scores(np.arange(8.0))
    run.write_arrays("columns.npz", {"variances": np.arange(8.0)})
    with run._replacing("model.npz") as part:
        part.write_bytes(b"PK a model, which is compared before it is read")
    file = Path(run.finish(), name)
    content = file.read_bytes()
    for damage in damages(content):
        if damage != content:
            file.write_bytes(damage)
            with pytest.raises(RunError, match=rf"{name} is damaged|before version 1\.0"):
                READS[name](Run.open(tmp_path / "a"))


def test_forged_scores_are_one_line(tmp_path):
    run = whole(tmp_path / "a")
    file = tmp_path / "a" / "scores.npy"
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RunError, match=r"scores\.npy is damaged"):
        _ = run.scores
    file.write_bytes(b"\x93NUMPY nothing")
    with pytest.raises(RunError, match=r"scores\.npy is damaged"):
        _ = run.scores
    file.unlink()
    with pytest.raises(RunError, match=r"scores\.npy is missing"):
        _ = run.scores


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"form": "{"},
        {"form": "[]"},
        {"form": '{"fields": 3, "history": []}'},
        {"form": '{"fields": [["array"]], "history": []}'},
        {"form": '{"fields": [[]], "history": []}'},
        {"form": '{"fields": [], "history": [1]}'},
        {"form": '{"fields": [], "history": [{"gap": "x"}]}'},
        {
            "form": '{"fields": [["csr", 2, 2]], "history": []}',
            "0.data": [1.0],
            "0.indices": [70000],
            "0.indptr": [0, 1, 1],
        },
        {"form": '{"fields": [["number"]], "history": []}', "0": [1.0, 2.0]},
        {"form": f'{{"fields": {DEEP}, "history": []}}'},
    ],
    ids=lambda forged: str(forged)[:60],
)
def test_a_forged_checkpoint_is_made_again(tmp_path, caplog, forged):
    checkpoint = Run.begin(tmp_path / "a", ASKED).checkpoint()
    checkpoint.save("SparGE", STATE, [])
    [file] = tmp_path.glob(".a/*/checkpoints/*")
    np.savez(file, **forged)
    assert checkpoint.load("SparGE") is None
    assert f"{file.name} is damaged" in caplog.text


# --- CSV ------------------------------------------------------------------------------------------

NAMES = ["=HYPERLINK(0)", "+1", "-1", "@x", "\tx", "\rx", "'x", "''x", "'=x", "＝x"]
NAMES += ["plain", "it's", "a,b", 'say "hi"', "two\nlines", "", " "]


def test_names_are_written_as_they_are(tmp_path):
    run = Run.begin(tmp_path / "a", ASKED)
    run.write_table("selected.csv", ["name", "=score"], [[name, -0.5] for name in NAMES])
    assert [row["name"] for row in run.read_table("selected.csv")] == NAMES
    table = pd.read_csv(run.path / "selected.csv", keep_default_na=False)
    assert table["name"].tolist() == NAMES
    assert (table["=score"] == -0.5).all()


def test_numbers_that_are_not_finite_are_null_in_json_and_nan_again(tmp_path):
    run = Run.begin(tmp_path / "a", ASKED)
    history = [{"gap": np.nan, "upper": np.inf}, {"gap": 0.5, "upper": 2.0}]
    run.update_metadata(history=history, stats={"recall": np.nan})
    run.finish()

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "a" / "run.json").read_text(encoding="utf-8")
    written = json.loads(text, parse_constant=refuse)
    assert written["history"][0] == {"gap": None, "upper": None}
    assert written["stats"] == {"recall": None}
    read = Run.open(tmp_path / "a").metadata["history"]
    assert np.isnan(read[0]["gap"])
    assert read[1] == history[1]
