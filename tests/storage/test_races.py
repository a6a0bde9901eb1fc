"""Two commands on one path, of which one looks while the other one makes or deletes it."""

import errno
import os
import threading
from pathlib import Path

import pytest

from bigfs import storage
from bigfs.storage import atomic, locks, prune, versions
from bigfs.storage.errors import BusyError, StoreError
from bigfs.storage.format import manifest
from bigfs.storage.locks import lock
from bigfs.storage.opening import hold_store
from bigfs.storage.runs.runs import (
    Run,
    failures_of,
    record_failure,
    require_out,
    results_of,
    unfinished_of,
)
from tests.helpers.stores import write_svmlight

PARAMETERS = {"store": "s.zarr", "method": "anova", "features": 1, "parameters": {}}


def side_by_side(work, look):
    """Look as long as another thread works. Return what failed."""
    over, failures = threading.Event(), []

    def loop():
        try:
            while not over.is_set():
                look()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return failures


def test_a_name_can_be_asked_for_while_a_run_of_it_begins_and_ends(tmp_path):
    out = tmp_path / "r"

    def work():
        for _ in range(100):
            Run.begin(out, PARAMETERS).abandon()

    def look():
        require_out(out)
        assert results_of(out) == []
        unfinished_of(out)

    assert side_by_side(work, look) == []
    assert os.listdir(tmp_path) == []


def test_a_failure_can_be_written_down_while_a_run_begins_and_ends(tmp_path):
    def work():
        for _ in range(20):
            Run.begin(tmp_path / "r", PARAMETERS).abandon()

    assert side_by_side(work, lambda: record_failure(tmp_path / "r", "why")) == []


def test_a_folder_that_is_being_made_is_in_nobodys_way(tmp_path):
    (tmp_path / ".r").mkdir()  # its marker is written next
    require_out(tmp_path / "r")
    (tmp_path / ".r" / "notes").touch()
    with pytest.raises(StoreError, match=r"\.r is in the way"):
        require_out(tmp_path / "r")


def test_folders_can_be_listed_while_they_are_deleted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def work():
        for _ in range(50):
            with atomic.workplace(tmp_path / ".bigfs" / "a.zarr") as place:
                (place / "rows").touch()

    assert side_by_side(work, lambda: storage.delete_unused(storage.find_unused())) == []
    assert list((tmp_path / ".bigfs").glob(f"*{atomic.WORK}")) == []


def test_what_a_killed_command_tried_is_not_in_the_way_of_the_next(tmp_path):
    run = Run.begin(tmp_path / "r", PARAMETERS)
    for name in (".link", f".{os.getpid()}.link"):
        (tmp_path / ".r" / name).symlink_to("nowhere")
    assert Run.begin(tmp_path / "r", PARAMETERS).path == run.path


def test_the_latest_result_is_the_last_one_by_any_clock(tmp_path, monkeypatch):
    """An hour of autumn comes twice."""
    first = Run.begin(tmp_path / "r", PARAMETERS, "first")
    first.finish()
    later = first.path.rename(first.path.with_name("2999-01-01T00-00-00"))
    atomic.point(tmp_path / "r", Path(".r") / later.name)
    second = Run.begin(tmp_path / "r", PARAMETERS, "second")
    second.finish()
    assert results_of(tmp_path / "r") == [later, second.path]


def test_a_failure_that_cannot_be_written_down_hides_no_reason(tmp_path, monkeypatch):
    Run.begin(tmp_path / "r", PARAMETERS)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.open", full)
        record_failure(tmp_path / "r", "why")
    assert failures_of(tmp_path / "r") == []
    record_failure(tmp_path / "r", "why")
    assert [failure["reason"] for failure in failures_of(tmp_path / "r")] == ["why"]


def test_who_lets_go_of_a_shared_lock_removes_no_file_of_another(tmp_path, monkeypatch):
    """The file was removed and made anew while it asked whether it is alone."""
    path, others = tmp_path / "a", []

    def taken_meanwhile(descriptor, name, *, real=locks.try_lock, **kind):
        if not kind and not others:
            name.unlink()
            others.append(os.open(name, os.O_RDWR | os.O_CREAT))
            assert real(others[0], name)
        return real(descriptor, name, **kind)

    with lock(path, shared=True):
        monkeypatch.setattr(locks, "try_lock", taken_meanwhile)
    with pytest.raises(BusyError), lock(path, wait=0):
        raise AssertionError("not reached")
    os.close(others[0])


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return storage.stage(write_svmlight(tmp_path / "rows.svm", rows=20))


def grow(store, rows):
    storage.append(write_svmlight(Path(f"{rows}.svm"), rows=rows, seed=rows), store)


def test_a_store_that_grows_before_it_is_held_is_read_as_it_is_then(store, monkeypatch):
    from bigfs.storage import opening

    hold, states = versions.hold, []

    def late(uri, content):
        states.append(content)
        if len(states) == 1:
            grow(store, 30)
        return hold(uri, content)

    monkeypatch.setattr(opening.versions, "hold", late)
    with opening.hold_store(store) as corpus:
        assert corpus.X.shape[0] == 50
        grow(store, 10)
        assert len(corpus.sample_names[:]) == 50
        assert corpus.y.shape == (50,)
    assert len(set(states)) == 2


def test_a_store_that_is_replaced_while_it_is_opened_is_opened_again(store, monkeypatch):
    read, looks = manifest.read_document, []

    def replaced(uri, name):
        document = read(uri, name)
        looks.append((uri, name))
        if looks == [(store, manifest.MANIFEST)]:
            grow(store, 30)
        return document

    monkeypatch.setattr(manifest, "read_document", replaced)
    assert storage.open(store).X.shape[0] == 50


def test_a_manifest_is_read_by_one_look(store, monkeypatch):
    """Between two of them the store may have no name, as another one takes it."""
    read = manifest.read_document

    def without_a_name(uri, name):
        document = read(uri, name)
        os.rename(store, "aside")
        return document

    monkeypatch.setattr(manifest, "read_document", without_a_name)
    assert manifest.manifest_of(store).shape[0] == 20


def test_nobody_begins_with_a_state_whose_store_is_being_replaced(store):
    content = storage.open(store).manifest.content
    unread = versions.unread(store, content)
    with versions.keep(store, content), pytest.raises(BusyError), unread:
        raise AssertionError("not reached")
    with versions.unread(store, content):
        pass


def test_a_store_in_a_folder_of_another_user_needs_no_lock(store, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "no file can be made here")

    monkeypatch.setattr(locks, "_acquire", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert storage.stage("rows.svm", store) == storage.open(store).uri
    with hold_store(store) as corpus:
        assert corpus.X.shape[0] == 20


def test_nothing_that_a_run_reads_is_pruned(store, tmp_path):
    """Not even where no run names it yet."""
    graph = storage.graph(storage.open(store), 2).uri
    counts = tmp_path / store.replace(".zarr", ".counts")
    counts.mkdir()
    content = storage.open(store).manifest.content
    with versions.hold(store, content):
        found = storage.find_unused(older_than=0)
        assert {store, str(counts)} <= {str(item.path) for item in found}
        assert storage.delete_unused(found) == 0
        assert storage.check(store).problems == []
        assert storage.open_graph(graph).shape == (20, 2)
        assert counts.is_dir()
        grow(store, 30)
        found = storage.find_unused()
        assert [str(item.path) for item in found] == [graph]
        assert storage.delete_unused(found) == 0
        assert storage.open_graph(graph).neighbors().index.shape == (20, 2)
    assert storage.delete_unused(found) > 0


def test_a_state_that_nobody_reads_any_more_is_deleted(store, tmp_path, monkeypatch):
    """By the run that read it, also if it fails, or by `prune` if it was killed."""

    def kept():
        return list(tmp_path.rglob(".*.kept"))

    def fail():
        with versions.hold(store, storage.open(store).manifest.content):
            grow(store, 30)
            assert len(kept()) == 1
            raise OSError(errno.EIO, "the work ends")

    with pytest.raises(OSError, match="the work ends"):
        fail()
    assert not kept()
    for name, rows in (("delete_marked", 10), ("rmdir", 15)):  # where the process is killed
        content = storage.open(store).spec["content"]
        with monkeypatch.context() as killed, versions.hold(store, content):
            grow(store, rows)
            assert storage.find_unused() == []
            assert versions.place_of(store, content) == str(kept()[0])
            killed.setattr(Path if name == "rmdir" else atomic, name, lambda path: None)
        assert (versions.place_of(store, content) == store) == (name == "rmdir")
        found = storage.find_unused()
        assert [item.path for item in found] == kept() != []
        storage.delete_unused(found)
        assert not kept()


def test_an_unfinished_run_that_was_finished_meanwhile_is_not_pruned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run.begin("runs/r", PARAMETERS)
    (found,) = prune.find_unused(older_than=0)
    run.finish()
    assert storage.delete_unused([found]) == 0
    assert Run.open("runs/r").path == run.path
