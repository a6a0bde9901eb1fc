"""Files and folders appear whole and stay, and only what the program made is deleted."""

import errno
import os
import time
from pathlib import Path

import fsspec
import pytest

from bigfs.storage import atomic
from bigfs.storage.errors import RunError, StoreError
from bigfs.storage.locks import lock
from tests.helpers.listing import names_in


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    """A folder that does not exist yet, on the disk or in an object store."""
    return str(tmp_path / "work") if request.param == "local" else f"memory://{tmp_path.name}/work"


def put(place, name, content=b"x"):
    fs, path = fsspec.core.url_to_fs(place)
    fs.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
    fs.pipe_file(f"{path}/{name}", content)


def names(place):
    fs, path = fsspec.core.url_to_fs(place)
    return sorted(key.removeprefix(path).lstrip("/") for key in fs.find(path))


def test_claim_and_discard_leave_nothing(place):
    assert atomic.has_marker(place) is False
    atomic.write_marker(place)
    put(place, "deep/file")
    atomic.write_marker(place)  # ours already: its content stays
    assert atomic.has_marker(place)
    assert names(place) == [atomic.MARKER, "deep/file"]
    atomic.delete_marked(place)
    atomic.delete_marked(place)
    assert names(place) == []
    assert not os.path.exists(place)


def test_a_foreign_folder_is_refused_by_name(place):
    put(place, "thesis.txt")
    for action in (atomic.write_marker, atomic.delete_marked):
        with pytest.raises(StoreError, match=f"{place} is in the way and bigfs did not make it"):
            action(place)
    assert names(place) == ["thesis.txt"]


def test_another_file_of_the_markers_name_is_no_marker(place):
    put(place, atomic.MARKER, b"my own words")
    assert not atomic.has_marker(place)
    with pytest.raises(StoreError, match="is in the way"):
        atomic.delete_marked(place)
    assert names(place) == [atomic.MARKER]


def test_files_and_links_are_never_ours(tmp_path):
    atomic.write_marker(tmp_path / "ours")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    for name in ("link", "dangling", "file"):
        for action in (atomic.write_marker, atomic.delete_marked):
            with pytest.raises(StoreError, match=f"{name} is in the way"):
                action(tmp_path / name)
    assert atomic.has_marker(tmp_path / "ours")


def test_a_link_in_a_folder_of_ours_is_deleted_and_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    atomic.write_marker(tmp_path / "work")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "mine")
    atomic.delete_marked(tmp_path / "work")
    assert (tmp_path / "mine" / "file").read_text() == "x"
    assert not (tmp_path / "work").exists()


def test_a_killed_discard_leaves_a_folder_that_is_ours(tmp_path, monkeypatch):
    atomic.write_marker(tmp_path / "work")
    (tmp_path / "work" / "deep").mkdir()
    # what a busy file on a network disk does
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    atomic.delete_marked(tmp_path / "work")
    assert atomic.has_marker(tmp_path / "work")
    monkeypatch.undo()
    atomic.delete_marked(tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_folder_in_one_of_ours_is_marked_and_no_other(tmp_path):
    atomic.write_marker(tmp_path / "ours")
    for name in ("ours/a", "mine"):
        (tmp_path / name).mkdir()
    atomic.mark_ours(tmp_path / "ours" / "a")
    with pytest.raises(StoreError, match="mine is in the way"):
        atomic.mark_ours(tmp_path / "mine")
    assert [atomic.has_marker(tmp_path / name) for name in ("ours/a", "mine")] == [True, False]


def test_an_empty_folder_is_taken_over(tmp_path):
    (tmp_path / "work").mkdir()
    atomic.write_marker(tmp_path / "work")
    assert atomic.has_marker(tmp_path / "work")


def test_a_process_killed_before_it_wrote_the_marker_blocks_nobody(tmp_path):
    (tmp_path / "work").mkdir()
    atomic.delete_marked(tmp_path / "work")
    atomic.write_marker(tmp_path / "work")
    assert atomic.has_marker(tmp_path / "work")


def test_a_discard_that_meets_a_late_writer_leaves_a_folder_that_is_ours(place, monkeypatch):
    """A worker's task may write once more after its run has failed."""
    release = atomic.unmark
    atomic.write_marker(place)

    def release_and_write(path):
        release(path)
        put(place, "new")

    monkeypatch.setattr(atomic, "unmark", release_and_write)
    atomic.delete_marked(place)
    assert atomic.has_marker(place)
    monkeypatch.undo()
    atomic.delete_marked(place)
    assert names(place) == []


# --- files ----------------------------------------------------------------------------------------


def test_two_writers_of_one_file_never_mix(tmp_path):
    file = tmp_path / "cells.h5ad"
    file.write_bytes(b"original")
    with atomic.write(file) as first:
        first.write_bytes(b"all of the first")
        with atomic.write(file) as second:
            second.write_bytes(b"half")  # it is still copying
            assert first.read_bytes() == b"all of the first"
            assert file.read_bytes() == b"original"
        assert file.read_bytes() == b"half"
    assert file.read_bytes() == b"all of the first"
    assert names_in(tmp_path) == ["cells.h5ad"]


def durable(monkeypatch, log):
    """Log what is flushed, renamed and deleted, in its order."""
    flush, rename = os.fsync, os.rename

    def fsync(descriptor):
        log.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    def move(old, new):
        log.append(("rename", str(old), str(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", move)
    monkeypatch.setattr(
        atomic,
        "fault_point",
        lambda operation, path: (
            log.append((operation, str(path))) if operation == "delete" else None
        ),
    )


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_folder_after(tmp_path, monkeypatch):
    log = []
    durable(monkeypatch, log)
    with atomic.write(tmp_path / "run.json") as part:
        part.write_text("{}")
    assert log == [
        ("sync", str(part)),
        ("rename", str(part), str(tmp_path / "run.json")),
        ("sync", str(tmp_path)),
    ]


def test_a_folder_is_on_the_disk_before_the_one_that_it_replaces_is_deleted(tmp_path, monkeypatch):
    target = tmp_path / "a"
    (target / "deep").mkdir(parents=True)
    (target / "deep" / "file").write_text("old")
    log = []
    durable(monkeypatch, log)
    with atomic.workplace(target) as work:
        new = work / "new"
        (new / "deep").mkdir(parents=True)
        (new / "deep" / "file").write_text("new")
        atomic.publish(new, target, work)
        after = len(log)
    kinds = [entry[0] for entry in log[:after]]
    first = kinds.index("rename")
    flushed = {entry[1] for entry in log[:first]}
    assert flushed == {str(new), str(new / "deep"), str(new / "deep" / "file")}
    assert log[first:after] == [
        ("rename", str(target), str(work / "old")),
        ("rename", str(new), str(target)),
        ("sync", str(tmp_path)),
    ]
    assert next(entry for entry in log[after:] if entry[0] == "delete") == ("delete", str(work))
    assert (target / "deep" / "file").read_text() == "new"
    assert names_in(tmp_path) == ["a"]


class Killed(BaseException):
    """The process is gone: every later operation raises it too."""


def die_at(monkeypatch, operation, name):
    """Let the process die at the first operation on a path of this name."""
    dead = []

    def before(kind, path):
        if dead or (kind == operation and Path(path).name == name):
            dead.append(path)
            raise Killed

    monkeypatch.setattr(atomic, "fault_point", before)
    return dead


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt(), Killed()])
@pytest.mark.parametrize("stop", [("rename", "old"), ("rename", "a"), ("sync", "parent")])
def test_a_folder_is_the_old_or_the_new_one_wherever_its_exchange_stops(
    tmp_path, monkeypatch, error, stop
):
    operation, name = stop
    target = tmp_path / "a"
    target.mkdir()
    (target / "file").write_text("old")
    seen = []

    def before(kind, path):
        at = Path(path).name if Path(path) != tmp_path else "parent"
        if (kind, at) == (operation, name) or (seen and isinstance(error, Killed)):
            seen.append(path)
            if len(seen) == 1 or isinstance(error, Killed):
                raise error

    monkeypatch.setattr(atomic, "fault_point", before)
    with pytest.raises(type(error)), atomic.workplace(target) as work:  # noqa: PT012
        (work / "new").mkdir()
        (work / "new" / "file").write_text("new")
        atomic.publish(work / "new", target, work)
    assert seen
    monkeypatch.undo()
    atomic.recover(target)
    left = (target / "file").read_text()
    assert left == ("new" if isinstance(error, Killed) and operation == "sync" else "old")
    atomic.remove_stale(target)
    assert (target / "file").read_text() == left
    assert names_in(tmp_path) == ["a"]


def test_an_exchange_that_is_going_on_is_waited_for(tmp_path, monkeypatch, change):
    """A reader that comes between the two renames takes nothing away from the writer."""
    work = tmp_path / f".a.{'0' * 16}.staging"
    atomic.write_marker(work)
    (work / "old").mkdir()
    change(atomic.EXCHANGE, 0.2)
    with lock(work), pytest.raises(StoreError, match="replaced by another process"):
        atomic.recover(tmp_path / "a")
    assert (work / "old").exists()
    log = []
    durable(monkeypatch, log)
    atomic.recover(tmp_path / "a")
    assert log == [
        ("rename", str(work / "old"), str(tmp_path / "a")),
        ("sync", str(tmp_path)),
    ]
    assert names_in(tmp_path) == [work.name, "a"]


def test_a_late_writer_never_blocks_the_next(tmp_path):
    with atomic.workplace(tmp_path / "a") as work:
        (work / "new").mkdir()
    (work / "new" / "X" / "c").mkdir(parents=True)  # a task of a lost worker
    (work / "new" / "X" / "c" / "0").write_bytes(b"chunk")
    atomic.remove_stale(tmp_path / "a")
    with atomic.workplace(tmp_path / "a") as other:
        assert other != work
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", ["new/X/c/", "new/X/zarr.json", "new/X/data/c/0"])
def test_what_a_late_thread_writes_once_more_is_deleted(tmp_path, name):
    with atomic.workplace(tmp_path / "a") as work:
        pass
    (work / name).parent.mkdir(parents=True)  # after the workplace was deleted with its marker
    if not name.endswith("/"):
        (work / name).touch()
    with lock(work):  # another process is about to mark it
        atomic.remove_stale(tmp_path / "a")
        assert work.exists()
    atomic.remove_stale(tmp_path / "a")
    assert names_in(tmp_path) == []


def test_the_lock_of_a_workplace_that_was_not_made_is_deleted(tmp_path):
    (tmp_path / f"..a.{'0' * 16}.staging.lock").touch()  # a process was killed before it made it
    atomic.remove_stale(tmp_path / "a")
    assert names_in(tmp_path) == []


def test_unfinished_files_of_dead_processes_are_deleted_after_a_day(tmp_path, monkeypatch):
    (tmp_path / ".a.csv.0123456789abcdef.bigfs-part").write_text("half")
    (tmp_path / "mine.bigfs-part").write_text("mine")
    with atomic.write(tmp_path / "c.csv") as part:
        part.write_text("x")
    assert len(names_in(tmp_path)) == 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_401)
    with atomic.write(tmp_path / "c.csv") as part:
        part.write_text("x")
    assert names_in(tmp_path) == ["c.csv", "mine.bigfs-part"]


# --- files that belong together -------------------------------------------------------------------


def together(folder, text):
    with atomic.write_together(folder) as place:
        for name in ("run.json", "selected.csv", "report.html"):
            place(name).write_text(text)


def texts(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


OLD, NEW = (
    dict.fromkeys(("run.json", "selected.csv", "report.html"), text) for text in ("old", "new")
)


@pytest.mark.parametrize("way", ["error", "interrupt", "kill"])
def test_files_that_belong_together_are_all_old_or_all_new(tmp_path, monkeypatch, way):
    error = {"error": OSError(errno.EIO, "broken"), "interrupt": KeyboardInterrupt()}
    outcomes, number = [], 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        together(folder, "old")
        count = [0]

        def before(operation, path, number=number, count=count):
            count[0] += 1
            if way == "kill" and count[0] > number:
                raise Killed
            if count[0] == number + 1:
                raise error[way]

        monkeypatch.setattr(atomic, "fault_point", before)
        try:
            together(folder, "new")
        except (OSError, KeyboardInterrupt, Killed):
            pass
        else:
            break
        monkeypatch.undo()
        atomic.complete(folder)
        left = {k: v for k, v in texts(folder).items() if not k.endswith(atomic.PART)}
        assert left in (OLD, NEW)
        outcomes.append(left == NEW)
        number += 1
    assert number == 11  # 3 files and their names, the commit, 3 renames, and 3 more
    assert outcomes == sorted(outcomes)
    assert any(outcomes)


def test_a_folder_that_cannot_take_the_files_is_one_line(tmp_path, monkeypatch):
    together(tmp_path, "old")

    def full(operation, path):
        if operation == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic, "fault_point", full)
    with pytest.raises(RunError, match=r"the disk of .* is full"):
        together(tmp_path, "new")
    assert texts(tmp_path) == OLD
    with pytest.raises(RunError, match=r"the disk of .*/work is full"):  # and no name of a marker
        atomic.write_marker(tmp_path / "work")
    with pytest.raises(RunError, match=r"the disk of .*/run\.json is full"):
        atomic.write(tmp_path / "run.json").__enter__()
    assert texts(tmp_path) == OLD


def test_a_marker_that_cannot_be_written_or_deleted_with_its_folder_is_an_error(
    place, tmp_path, monkeypatch
):
    url = f"memory://{tmp_path.name}/a.zarr"

    def broken(operation, path):
        if operation == "write" and path in (f"{place}/{atomic.MARKER}", f"{url}/{atomic.MARKER}"):
            raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "fault_point", broken)
        with pytest.raises(OSError, match="broken"):
            atomic.write_marker(place)
        with pytest.raises(OSError, match="broken"), build(url, tmp_path / "one"):
            raise AssertionError("not reached")
    atomic.write_marker(tmp_path / "ours")

    def busy(folder):
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(Path, "rmdir", busy)
    with pytest.raises(OSError, match="busy"):
        atomic.delete_marked(tmp_path / "ours")


# --- a name in an object store --------------------------------------------------------------------


def never(uri):
    return False


def build(url, scratch):
    return atomic.building(url, never, scratch=scratch)


def test_of_two_machines_one_gets_a_name_in_an_object_store(tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    with build(url, tmp_path / "one"):
        put(url, "X/data/c/0")
        with (
            pytest.raises(StoreError, match=r"a\.zarr is being staged on \S+: wait for it, or, if"),
            build(url, tmp_path / "two"),  # another machine has another scratch folder
        ):
            raise AssertionError("not reached")
        assert names(url) == [atomic.MARKER, "X/data/c/0"]


def test_a_store_that_is_built_has_its_name_and_no_marker(place, tmp_path, monkeypatch):
    uri, log = f"{place}/a", []
    monkeypatch.chdir(tmp_path)  # which holds the spills of an object store
    durable(monkeypatch, log)
    with atomic.building(uri, lambda at: "zarr.json" in names(at)) as (new, spills):
        put(new, "zarr.json")
        if place.startswith("/"):
            assert spills.parent == Path(new).parent
            assert ("sync", str(tmp_path)) in log  # the name of the folder, which is new
    assert names(uri) == ["zarr.json"]


def test_a_folder_of_the_user_is_in_the_way_of_a_store(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("mine")
    with (
        pytest.raises(StoreError, match="a is in the way and bigfs did not make it"),
        build(str(tmp_path / "a"), None) as (new, _),
    ):
        Path(new).mkdir()
    assert names_in(tmp_path / "a") == ["thesis.txt"]
    assert atomic.is_available(tmp_path / "nothing")


def test_a_bucket_that_is_not_there_is_named(tmp_path, monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", missing)
    with pytest.raises(StoreError, match=r"there is no bucket .*: make it, or give another URL"):
        atomic.is_free(f"memory://{tmp_path.name}/a.zarr")


def test_what_a_killed_process_spilled_is_there_again_for_the_same_key(tmp_path, monkeypatch):
    def spilled(key):
        return atomic.building(str(tmp_path / "a"), never, scratch=tmp_path / "scratch", key=key)

    dead = die_at(monkeypatch, "rename", "none")
    with pytest.raises(Killed), spilled("0" * 16) as (_, spills):  # noqa: PT012
        (spills / "part").write_text("x")
        dead.append(True)
        raise Killed
    monkeypatch.undo()
    with spilled("0" * 16) as (_, spills):
        assert names_in(spills) == ["part"]
    with spilled("1" * 16) as (_, spills):
        assert names_in(spills) == []


def leave_claim(url, scratch, monkeypatch):
    """A machine that dies while it stages to `url`."""
    with monkeypatch.context() as patched:
        dead = []

        def before(operation, path):
            if dead:
                raise Killed

        patched.setattr(atomic, "fault_point", before)
        with pytest.raises(Killed), build(url, scratch):  # noqa: PT012
            put(url, "X/data/c/0")
            dead.append(True)
            raise Killed


def test_a_name_that_this_machine_died_with_is_taken_over_at_once(tmp_path, monkeypatch):
    url = f"memory://{tmp_path.name}/a.zarr"
    leave_claim(url, tmp_path / "one", monkeypatch)
    with pytest.raises(StoreError, match="is being staged on"), build(url, tmp_path / "two"):
        raise AssertionError("not reached")
    with build(url, tmp_path / "one"):
        assert names(url) == [atomic.MARKER]
    assert names(url) == []


def test_a_name_that_another_machine_died_with_is_taken_over_after_half_a_day(
    tmp_path, monkeypatch
):
    url = f"memory://{tmp_path.name}/a.zarr"
    leave_claim(url, tmp_path / "one", monkeypatch)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 43_201)
    with build(url, tmp_path / "two"):
        assert names(url) == [atomic.MARKER]


def test_a_marker_that_names_no_holder_is_taken_over(tmp_path):
    url = f"memory://{tmp_path.name}/a.zarr"
    put(url, atomic.MARKER, atomic.WORDS)
    put(url, "X/data/c/0")
    with build(url, tmp_path / "one"):
        assert names(url) == [atomic.MARKER]


def test_an_error_in_a_block_that_writes_passes_and_leaves_no_file(tmp_path):
    file = tmp_path / "a.txt"

    def fail(part):
        part.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), atomic.write(file) as part:
        fail(part)
    assert list(tmp_path.iterdir()) == []
    with atomic.write(file) as part:
        part.write_text("whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "whole")]


def test_an_error_in_a_block_that_spools_passes_and_leaves_no_folder(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        atomic.spool_folder("memory://a.zarr", tmp_path / "scratch"),
    ):
        raise ZeroDivisionError
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("fault", [errno.EPERM, errno.EIO])
def test_a_file_is_copied_only_where_the_disk_has_no_links(tmp_path, monkeypatch, fault):
    def link(file, target):
        raise OSError(fault, "no link")

    (tmp_path / "a").write_text("x")
    monkeypatch.setattr(os, "link", link)
    if fault == errno.EPERM:
        atomic.link_or_copy(tmp_path / "a", tmp_path / "b")
        assert (tmp_path / "b").read_text() == "x"
    else:
        with pytest.raises(OSError, match="no link"):
            atomic.link_or_copy(tmp_path / "a", tmp_path / "b")


def test_a_folder_may_be_there_when_it_is_made(tmp_path):
    folder = tmp_path / "a" / "b"
    atomic.make_folder(folder)
    atomic.make_folder(folder)
    assert folder.is_dir()


def test_only_a_full_disk_is_named_as_one(tmp_path):
    with pytest.raises(PermissionError), atomic.naming_full_disk(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    with (
        pytest.raises(StoreError, match=rf"the disk of {tmp_path} is full: free some space"),
        atomic.naming_full_disk(tmp_path, tmp_path / "nowhere"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
