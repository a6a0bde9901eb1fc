"""One lock per name: who holds it, who waits, and what is left on the disk."""

import errno
import fcntl
import os
import threading
import time

import pytest

from bigfs.storage import atomic, locks
from bigfs.storage.errors import BusyError, StoreError
from bigfs.storage.locks import lock


def test_a_lock_file_is_empty_or_refused(tmp_path):
    locks.require_lock_file(tmp_path / "new")
    (tmp_path / "empty").touch()
    locks.require_lock_file(tmp_path / "empty")
    (tmp_path / "mine").write_text("my notes")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("mine", "folder", "link"):
        with pytest.raises(StoreError, match=f"{name} is in the way"):
            locks.require_lock_file(tmp_path / name)


def test_a_name_has_one_holder_and_nothing_is_left(tmp_path):
    path = tmp_path / "new" / "a"
    with lock(path):
        assert os.listdir(path.parent) == [".a.lock"]
        with pytest.raises(BusyError, match=r"another process works on .*/a"), lock(path, wait=0):
            raise AssertionError("not reached")
    assert os.listdir(path.parent) == []
    with lock(path, wait=0):
        pass


def test_many_that_wait_are_inside_one_at_a_time(tmp_path, change):
    """Each holder removes the file for which the others wait."""
    change(locks.POLL, 0.0005)
    inside, most, entries = [0], [0], [0]

    def work():
        for _ in range(20):
            with lock(tmp_path / "a"):
                inside[0] += 1
                most[0], entries[0] = max(most[0], inside[0]), entries[0] + 1
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entries) == ([1], [100])


def test_a_lock_that_is_removed_while_one_looks_is_in_nobodys_way(tmp_path, monkeypatch):
    """The holder removes its file: who asks several times of it mistakes that for a folder."""
    file, looks = tmp_path / ".a.lock", []

    def removed_after_the_first(look):
        def first(path, *arguments, **options):
            answer = look(path, *arguments, **options)
            if os.fspath(path) == os.fspath(file):
                looks.append(path)
                file.unlink(missing_ok=True)
            return answer

        return first

    monkeypatch.setattr(os, "lstat", removed_after_the_first(os.lstat))
    file.touch()
    locks.require_lock_file(file)
    assert len(looks) == 1


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_one_line(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    for _ in range(2):  # nothing is left that is in the way of the next command
        with pytest.raises(StoreError, match="has no file locks") as refused, lock(tmp_path / "a"):
            raise AssertionError("not reached")
        assert not isinstance(refused.value, BusyError)


def test_those_that_make_and_those_that_sweep_do_not_hinder_one_another(tmp_path):
    over, failures = threading.Event(), []

    def remove_stale():
        while not over.is_set():
            try:
                atomic.remove_stale(tmp_path / "a")
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=remove_stale) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            with atomic.workplace(tmp_path / "a") as work:
                assert atomic.has_marker(work)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert [name for name in os.listdir(tmp_path) if name.endswith(atomic.WORK)] == []
