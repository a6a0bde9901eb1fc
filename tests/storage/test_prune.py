"""What nothing needs any more is found and deleted, and nothing else."""

import json
import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

import storage
from storage import atomic
from storage.downloads import downloader
from storage.runs.runs import Run


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
    found = storage.leftovers()
    assert [str(item.path) for item in found] == [stores[0], graphs]
    size = sum(p.stat().st_size for s in (stores[0], graphs) for p in _files(s))
    assert storage.delete_leftovers(found) == size
    assert {p.name for p in (folder / ".bigfs").glob("*.zarr")} == {
        os.path.basename(store) for store in stores[1:]
    }
    for store in stores[1:]:
        assert storage.check(store).problems == []
    assert storage.leftovers() == []
    shutil.rmtree(folder / "runs")
    assert [str(item.path) for item in storage.leftovers()] == [stores[1]]


def _files(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def test_runs_elsewhere_keep_their_store(home, tmp_path_factory):
    _, stores = home
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "c" / "d").mkdir(parents=True)
    (elsewhere / "c" / "d" / "compare.json").write_text(json.dumps({"store": stores[0]}))
    assert storage.leftovers(runs=[elsewhere]) == []
    assert len(storage.leftovers()) == 2


def test_what_grew_or_has_a_name_of_the_users_stays(home):
    folder, stores = home
    (folder / "more.svm").write_text("1 1:4\n")
    storage.append("more.svm", stores[0])
    shutil.copytree(stores[2], folder / ".bigfs" / "mine.zarr")
    shutil.copytree(stores[2], folder / ".bigfs" / "b-0123456789ab.zarr")
    (folder / ".bigfs" / "b-0123456789ab.zarr" / "zarr.json").write_text("{}")
    (folder / ".bigfs" / ".mine.staging").mkdir()
    (folder / ".bigfs" / ".mine.staging" / "notes").write_text("mine")
    assert storage.leftovers() == []


def test_remains_of_killed_commands_go_unless_somebody_works_there(home):
    folder, stores = home
    for name in ("x.zarr.0123456789abcdef", "p.csv"):
        killed = folder / ".bigfs" / f".{name}.staging"
        atomic.mark(killed)
        (killed / "spills").mkdir()
        (killed / "spills" / "rows").write_bytes(b"1234")
    with atomic.workplace(folder / ".bigfs" / "y.zarr") as live:
        (live / "rows").write_bytes(b"1234")
        killed = [item for item in storage.leftovers() if "killed" in item.why]
        names = [".p.csv.staging", ".x.zarr.0123456789abcdef.staging"]
        assert [item.path.name for item in killed] == names
        storage.delete_leftovers(killed)
        assert (live / "rows").exists()
    assert not list((folder / ".bigfs").glob(".*.staging"))
    with FileLock(folder / ".bigfs" / f".{os.path.basename(stores[0])}.lock"):
        assert storage.delete_leftovers(storage.leftovers()[:1]) == 0
    assert storage.check(stores[0]).problems == []


def test_orphaned_graphs_and_old_copies_of_urls_go(home):
    folder, stores = home
    shutil.rmtree(stores[0])
    for i, version in enumerate(("v1", "v2")):
        copy = downloader.copy_folder("https://h/a.svm?token=1", version)
        copy.mkdir(parents=True)
        (copy / ".lock").touch()
        (copy / "a.svm").write_bytes(b"1 1:1\n")
        os.utime(copy, (1e9 + i, 1e9 + i))
    found = storage.leftovers()
    old = downloader.copy_folder("https://h/a.svm?token=1", "v1")
    assert [item.path for item in found] == [
        folder / ".bigfs" / os.path.basename(stores[0]).replace(".zarr", ".graphs"),
        old,
    ]
    storage.delete_leftovers(found)
    assert not old.exists()
    assert downloader.copy_folder("https://h/a.svm?token=1", "v2").exists()


def test_the_command_lists_and_deletes_only_when_told(home, bigfs):
    _, stores = home
    status, out, _ = bigfs("prune")
    assert status == 0
    assert stores[0] in out
    assert "can be deleted: repeat the command with --yes" in out
    assert os.path.exists(stores[0])
    status, out, _ = bigfs("prune", "--yes", "--json")
    assert json.loads(out)["deleted"] is True
    assert not os.path.exists(stores[0])
    assert bigfs("prune")[1] == "nothing to delete\n"
