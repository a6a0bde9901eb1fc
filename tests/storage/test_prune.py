"""What nothing needs any more is found and deleted, and nothing else."""

import json
import os
import shutil
from pathlib import Path

import pytest

from bigfs import storage
from bigfs.flows.comparison.files import AUDIT, COMPARISON, write_record
from bigfs.storage import atomic
from bigfs.storage.downloads import downloader
from bigfs.storage.locks import lock
from bigfs.storage.runs.runs import Run, lock_run, note_reader, results_of
from tests.helpers.commands import fails


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Stores of three states of a source, the second named by a run, and of other settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    stores = []
    for state in range(3):
        (tmp_path / "a.svm").write_text(f"1 1:1 2:{state + 1}\n2 2:1\n")
        stores.append(storage.stage("a.svm"))
        os.utime(f"{stores[-1]}/zarr.json", (1e9 + state, 1e9 + state))
    stores.append(storage.stage("a.svm", scale="max"))
    parameters = {"store": stores[1], "method": "anova", "features": 1, "parameters": {}}
    Run.begin("runs/r", parameters)
    storage.graph(storage.open(stores[0]), 1)
    return tmp_path, stores


def test_an_old_store_that_no_run_names_goes_with_its_graphs(home):
    folder, stores = home
    graphs = stores[0].replace(".zarr", ".graphs")
    found = storage.find_unused()
    assert [str(item.path) for item in found] == [stores[0], graphs]
    size = sum(p.stat().st_size for s in (stores[0], graphs) for p in _files(s))
    assert storage.delete_unused(found) == size
    assert {p.name for p in (folder / ".bigfs").glob("*.zarr")} == {
        os.path.basename(store) for store in stores[1:]
    }
    for store in stores[1:]:
        assert storage.check(store).problems == []
    assert storage.find_unused() == []
    shutil.rmtree(folder / "runs")
    assert [str(item.path) for item in storage.find_unused()] == [stores[1]]


def _files(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def test_runs_elsewhere_keep_their_store(home, tmp_path_factory):
    _, stores = home
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "c" / "d").mkdir(parents=True)
    (elsewhere / "c" / "d" / "compare.json").write_text(json.dumps({"store": stores[0]}))
    assert storage.find_unused(runs=[elsewhere]) == []
    assert len(storage.find_unused()) == 2


def test_what_grew_or_has_a_name_of_the_users_stays(home):
    folder, stores = home
    (folder / "more.svm").write_text("1 1:4\n")
    storage.append("more.svm", stores[0])
    shutil.copytree(stores[2], folder / ".bigfs" / "mine.zarr")
    shutil.copytree(stores[2], folder / ".bigfs" / "b-0123456789ab.zarr")
    (folder / ".bigfs" / "b-0123456789ab.zarr" / "zarr.json").write_text("{}")
    (folder / ".bigfs" / ".mine.staging").mkdir()
    (folder / ".bigfs" / ".mine.staging" / "notes").write_text("mine")
    assert [item.why for item in storage.find_unused()] == [
        "a graph of an earlier state of its store"
    ]


def test_remains_of_killed_commands_go_unless_somebody_works_there(home):
    folder, stores = home
    names = [f".{name}.{'0' * 16}.staging" for name in ("p.csv", "x.zarr")]
    for name in names:
        killed = folder / ".bigfs" / name
        atomic.write_marker(killed)
        (killed / "spills").mkdir()
        (killed / "spills" / "rows").write_bytes(b"1234")
    names.append(f".z.zarr.{'0' * 16}.staging")  # of a late thread, which marked nothing
    (folder / ".bigfs" / names[-1] / "new").mkdir(parents=True)
    (folder / ".bigfs" / names[-1] / "new" / "zarr.json").touch()
    with atomic.workplace(folder / ".bigfs" / "y.zarr") as live:
        (live / "rows").write_bytes(b"1234")
        killed = [item for item in storage.find_unused() if "killed" in item.why]
        assert [item.path.name for item in killed] == names
        storage.delete_unused(killed)
        assert (live / "rows").exists()
    assert not list((folder / ".bigfs").glob(".*.staging"))
    with lock(stores[0]):
        assert storage.delete_unused(storage.find_unused()[:1]) == 0
    assert storage.check(stores[0]).problems == []


def test_orphaned_graphs_and_old_copies_of_urls_go(home):
    folder, stores = home
    shutil.rmtree(stores[0])
    for i, version in enumerate(("v1", "v2")):
        copy = downloader.copy_folder("https://h/a.svm?token=1", version)
        copy.mkdir(parents=True)
        (copy / "a.svm").write_bytes(b"1 1:1\n")
        os.utime(copy, (1e9 + i, 1e9 + i))
    found = storage.find_unused()
    old = downloader.copy_folder("https://h/a.svm?token=1", "v1")
    assert [item.path for item in found] == [
        folder / ".bigfs" / os.path.basename(stores[0]).replace(".zarr", ".graphs"),
        old,
    ]
    storage.delete_unused(found)
    assert not old.exists()
    assert downloader.copy_folder("https://h/a.svm?token=1", "v2").exists()


def test_the_command_lists_and_deletes_only_when_told(home, bigfs):
    _, stores = home
    status, out, _ = bigfs("prune")
    assert status == 0
    assert f".bigfs/{os.path.basename(stores[0])}: an earlier state" in out
    assert "can be deleted: repeat the command with --yes" in out
    assert os.path.exists(stores[0])
    status, out, _ = bigfs("prune", "--yes", "--json")
    assert json.loads(out)["deleted"] is True
    assert not os.path.exists(stores[0])
    assert bigfs("prune")[1] == "nothing to delete\n"


# --- what is old ----------------------------------------------------------------------------------


def test_with_an_age_the_stores_without_a_run_go_and_what_is_younger_stays(home):
    folder, stores = home
    day = 86400.0
    assert [str(item.path) for item in storage.find_unused(older_than=day)] == [
        *(stores[0], stores[2])  # their record is from 2001; the graph is of now
    ]
    [partial] = map(str, (folder / "runs" / ".r").glob("2*"))
    everything = [str(item.path) for item in storage.find_unused(older_than=0)]
    assert sorted(everything) == sorted(
        [stores[0], stores[0].replace(".zarr", ".graphs"), stores[2], stores[3], partial]
    )
    storage.append(_svm(folder), stores[3])
    assert stores[3] not in [str(item.path) for item in storage.find_unused(older_than=0)]
    found = [item for item in storage.find_unused(older_than=0) if str(item.path) != partial]
    storage.delete_unused(found)
    assert {path.name for path in (folder / ".bigfs").glob("*.zarr")} == {
        os.path.basename(stores[1]),
        os.path.basename(stores[3]),
    }


def _svm(folder):
    (folder / "more.svm").write_text("1 1:4\n")
    return folder / "more.svm"


def test_earlier_results_of_a_run_go_by_age_and_need_no_store(home):
    folder, stores = home
    nights = [(stores[0], 1), (stores[2], 2), (stores[1], 3)]
    for store, day in nights:
        parameters = {"store": store, "method": "anova", "features": 1, "parameters": {}}
        run = Run.begin(folder / "runs" / "nightly", parameters, str(day))
        run.update_metadata(made=f"2026-11-0{day}T03:00:00+01:00")
        run.finish()
    *kept, _ = results_of(folder / "runs" / "nightly")
    assert len(kept) == 2
    assert stores[0] in [str(item.path) for item in storage.find_unused()]  # no run needs it
    mine = folder / "runs" / "mine"
    shutil.copytree(kept[0], mine)
    os.utime(kept[0] / "run.json", (1e9, 1e9))
    found = [item.path for item in storage.find_unused(older_than=86400.0)]
    assert [path for path in found if "runs" in path.parts] == [kept[0]]
    storage.delete_unused(storage.find_unused(older_than=86400.0))
    assert not kept[0].exists()
    assert kept[1].is_dir()
    assert mine.is_dir()
    assert (folder / "runs" / "nightly" / "run.json").exists()


def test_a_run_anywhere_keeps_its_store(home, tmp_path_factory):
    """The store has a line of it."""
    stores = home[1]
    for place in ("runs/team/project/2026/nov/r", str(tmp_path_factory.mktemp("far") / "r")):
        parameters = {"store": stores[0], "method": "anova", "features": 1, "parameters": {}}
        final = Run.begin(place, parameters).finish()
        assert stores[0] not in [str(item.path) for item in storage.find_unused(older_than=0)]
        shutil.rmtree(final.parent)
        assert stores[0] in [str(item.path) for item in storage.find_unused()]


@pytest.mark.parametrize("kind", [COMPARISON, AUDIT])
def test_a_comparison_or_an_audit_anywhere_keeps_its_store(home, tmp_path_factory, kind):
    store, place = home[1][0], tmp_path_factory.mktemp("elsewhere") / "c"
    assert store in [str(item.path) for item in storage.find_unused()]
    write_record(place, kind, {"corpus": {"store": store}}, (["method"], []), {})
    assert store not in [str(item.path) for item in storage.find_unused(older_than=0)]


def test_graphs_of_a_store_that_has_grown_go(home):
    folder = home[0]
    kept = storage.stage("a.svm", folder / "mine.zarr")
    graphs = []
    for number in (3, 4):
        graphs.append(storage.graph(storage.open(kept), 1).uri)
        assert graphs[-1] not in [str(item.path) for item in storage.find_unused()]
        (folder / "more.svm").write_text(f"1 1:{number}\n")
        storage.append(folder / "more.svm", kept)
    found = [item for item in storage.find_unused() if item.path.parent.stem == "mine"]
    assert sorted(str(item.path) for item in found) == sorted(graphs)
    assert storage.delete_unused(found) > 0
    assert storage.check(kept).problems == []


def test_what_commands_left_is_found_where_it_lies(home):
    folder, stores = home
    (folder / "deep" / "er").mkdir(parents=True)
    killed = folder / "deep" / "er" / ".big.zarr.0123456789abcdef.staging"
    atomic.write_marker(killed)
    assert killed in [item.path for item in storage.find_unused()]
    counts = folder / ".bigfs" / os.path.basename(stores[1]).replace(".zarr", ".counts")
    counts.mkdir()
    (counts / "a.npz").write_bytes(b"1234")
    work = folder / "comparison" / ".work" / "key"
    atomic.write_marker(work)
    partial = next(path for path in (folder / "runs" / ".r").iterdir() if path.is_dir())
    caches = {counts / "a.npz", work, partial}
    assert not caches & {item.path for item in storage.find_unused()}
    found = [item for item in storage.find_unused(older_than=0) if item.path in caches]
    assert {item.path for item in found} == caches
    with lock_run(folder / "runs" / "r"):
        storage.delete_unused(found)
    assert [path.exists() for path in (counts / "a.npz", work, partial)] == [False, False, True]
    storage.delete_unused(found)
    assert not partial.exists()


@pytest.mark.parametrize(("age", "seconds"), [("12h", 43200), ("30d", 2592000), ("1.5w", 907200)])
def test_an_age_is_read_in_hours_days_or_weeks(age, seconds):
    from bigfs.flows.cli.corpus import seconds_of

    assert seconds_of(age) == seconds


def test_an_age_without_a_unit_is_refused(bigfs, home):
    fails(bigfs("prune", "--older-than", "3m"), "12h, 30d or 4w; got '3m'")
    assert bigfs("prune", "--older-than", "0h", "--dry-run")[0] == 0
    assert len(list((home[0] / ".bigfs").glob("*.zarr"))) == 4
    assert json.loads(bigfs("prune", "--older-than", "0h", "--yes", "--json")[1])["deleted"]
    assert len(list((home[0] / ".bigfs").glob("*.zarr"))) == 1


def test_stores_of_other_options_are_no_earlier_states(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(downloader.FOLDER, str(tmp_path / "data"))
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n")
    stores = [storage.stage(f"t.csv?columns={c}&label=kind") for c in "ab"]
    assert [storage.info(store)["options"] for store in stores] == [
        {"columns": c, "label": "kind"} for c in "ab"
    ]
    assert storage.find_unused() == []
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,x\n3,5,y\n")
    os.utime(f"{stores[1]}/zarr.json", (1e9, 1e9))
    storage.stage("t.csv?columns=b&label=kind")
    assert [str(item.path) for item in storage.find_unused()] == [stores[1]]


def test_nothing_above_the_folder_is_looked_at_but_the_runs_of_its_stores(home):
    folder, stores = home
    inside, beside = folder / "project", folder / "beside"
    inside.mkdir()
    (folder / ".bigfs").rename(inside / ".bigfs")
    stores = [store.replace("/.bigfs/", "/project/.bigfs/") for store in stores]
    atomic.write_marker(killed := beside / f".x.zarr.{'0' * 16}.staging")
    (folder / "far").mkdir()
    (folder / "far" / "compare.json").write_text(json.dumps({"store": stores[0]}))
    note_reader(stores[0], folder / "far")
    found = [str(item.path) for item in storage.find_unused(inside, older_than=0)]
    assert str(killed) not in found
    assert stores[0] not in found  # which the comparison far away names
    assert str(killed) in [str(item.path) for item in storage.find_unused(folder)]
