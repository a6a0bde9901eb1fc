"""Files and folders that appear whole and stay, or do not appear.

A new file is written under a unique name next to its target and flushed to the disk. Then it is
renamed, and the folder of the name is flushed. The old one is deleted only after that. A
folder is replaced by two renames. A reader that misses the folder calls `recover`, which puts an
exchange right that was interrupted between them. `write_together` gives files their names together.

The program deletes only folders that it made. Such a folder holds a marker file, which is written
first and deleted last. It may also be a URL in an object store.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec

from bigfs.settings import Setting
from bigfs.storage.errors import LIMITS, BusyError, RunError, StoreError, is_full, may_pass
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.locks import lock, name_taken

MARKER = ".made-by-bigfs"
WORDS = b"bigfs works in this folder. It may delete the folder and all that it holds.\n"
PART, COMMIT, WORK = ".bigfs-part", ".bigfs-commit", ".staging"  # suffixes of hidden names
OLD = "old"  # in a workplace: the folder that is being replaced
KEY = "[0-9a-f]{16}"
DAY = 86400.0  # seconds after which an unfinished file belongs to no living process
CLAIM = DAY / 2  # seconds after which a claim in an object store has no living owner
EXCHANGE = Setting(60.0)  # seconds that the two renames of another process may take
# Flushing 2,000 files of 100 kB one by one took 10.5 s, by 8 threads 0.95 s, and by one call of
# syncfs 0.5 s. That call is no part of Python, and it does not reach what another machine wrote.
FLUSHERS = 8

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

Place = str | os.PathLike[str]


def fault_point(operation: str, path: Place) -> None:
    """Do nothing. Each operation calls it first, so that a test can let any of them fail."""


# --- one operation --------------------------------------------------------------------------------


def sync(path: Place) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fault_point("sync", path)
    _flush(path)


def _flush(path: Place) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # some network file systems cannot flush a folder
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not os.path.isdir(path):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Place) -> None:
    """Wait until a folder and all that it holds are on the disk."""
    paths = [
        os.path.join(home, name)
        for home, folders, files in os.walk(folder)
        for name in (*files, *folders)
    ]
    paths = [path for path in (*paths, str(folder)) if not os.path.islink(path)]
    for path in paths:
        fault_point("sync", path)
    with ThreadPoolExecutor(FLUSHERS) as flushers:
        list(flushers.map(_flush, paths))


def _rename(old: Place, new: Place) -> None:
    fault_point("rename", new)
    os.rename(old, new)


def link_or_copy(file: Place, target: Place) -> None:
    """Give a file a second name, or copy it where the disk has no hard links."""
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.copy2(file, target)


def _delete(file: Path) -> None:
    fault_point("delete", file)
    file.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, and wait until their names are on the disk."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync(path.parent)


def _key() -> str:
    return uuid.uuid4().hex[:16]


# --- files ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def write(file: Path) -> Iterator[Path]:
    """Write a file whole or not at all. Yields the path to write to."""
    part = _part(file, _key())
    with explain_write_errors(file):
        _delete_abandoned(file.parent)
        fault_point("write", file)
        try:
            yield part
            sync(part)
            _rename(part, file)
        except BaseException:
            with contextlib.suppress(OSError):
                _delete(part)
            raise
        sync(file.parent)


@contextlib.contextmanager
def write_together(folder: Path) -> Iterator[Callable[[str], Path]]:
    """Write several files of a folder, so that all of them appear, or none.

    Yields a function from the name of a file to the path to write to. A file of one name commits
    the others; `complete` gives them their names, now or at the next opening.
    """
    key, parts = _key(), dict[str, Path]()
    commit = folder / f".{key}{COMMIT}"
    try:
        yield lambda name: parts.setdefault(name, _part(folder / name, key))
        with explain_write_errors(folder):
            for part in parts.values():
                sync(part)
            sync(folder)
            fault_point("write", commit)
            commit.touch()
            sync(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            _delete(commit)  # first, or a part of the files could appear
            for part in parts.values():
                _delete(part)
        raise
    complete(folder)


def complete(folder: Path) -> None:
    """Give the files of a folder their names that were committed before a process ended."""
    for commit in paths_in(folder, f".*{COMMIT}"):
        key = commit.name.removeprefix(".").removesuffix(COMMIT)
        found = paths_in(folder, f".*.{key}{PART}")
        parts = {path.name[1:].removesuffix(f".{key}{PART}"): path for path in found}
        with explain_write_errors(folder):
            for name, part in sorted(parts.items()):
                with contextlib.suppress(FileNotFoundError):  # another process completes it too
                    _rename(part, folder / name)
            sync(folder)
            _delete(commit)


def names_in(folder: Path) -> list[str]:
    """Return what a folder holds, by one look. Nothing if it was deleted, or is no folder."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return what a folder holds by some names, in their order and by one look."""
    return [folder / name for name in sorted(fnmatch.filter(names_in(folder), pattern))]


def _part(file: Path, key: str) -> Path:
    return file.with_name(f".{file.name}.{key}{PART}")


def _delete_abandoned(folder: Path) -> None:
    """Delete unfinished files that nobody has touched for a day, whatever they were of."""
    if any(paths_in(folder, f".*{COMMIT}")):
        return
    for path in paths_in(folder, f".*{PART}"):
        with contextlib.suppress(FileNotFoundError):
            # a copy has the dates of its original, but not this one
            if time.time() - path.stat().st_ctime > DAY:
                _delete(path)


# --- folders --------------------------------------------------------------------------------------


@contextlib.contextmanager
def workplace(target: Path, key: str = "") -> Iterator[Path]:
    """Make a marked folder next to a target for the block. Folders of dead processes are deleted.

    With a `key`, the one that a dead process made with it is taken as it is. The caller must hold
    the name of the target.
    """
    remove_stale(target, key)
    work = target.parent / f".{target.name}.{key or _key()}{WORK}"
    with lock(work, wait=EXCHANGE.value):  # held until the folder is gone, so that nobody sweeps it
        fault_point("write", work)
        work.mkdir(exist_ok=bool(key))
        try:
            _put_marker(work, WORDS)
            yield work
        finally:
            _clear(work, target)


def publish(new: Path, target: Path, work: Path | None = None) -> None:
    """Give a finished file or folder its name. A folder there goes to the workplace first."""
    sync_tree(new) if new.is_dir() else sync(new)
    try:
        if work is not None and target.is_dir():
            _rename(target, work / OLD)
        _rename(new, target)
        sync(target.parent)
    except BaseException:
        if os.path.lexists(target) and not os.path.lexists(new):
            _rename(target, new)
        raise


def point(name: Path, target: Path) -> None:
    """Let a name lead to a target, a path from its folder, by one rename of a symbolic link."""
    with write(name) as part:
        os.symlink(target, part)


def recover(target: Place) -> None:
    """Give a folder its name back if an exchange was interrupted between its two renames."""
    path = Path(os.path.realpath(target))
    if os.path.lexists(path):
        return
    for work in _workplaces(path):
        if os.path.lexists(work / OLD) and has_marker(work):
            try:
                with lock(work, wait=EXCHANGE.value):
                    _restore(work, path)
            except BusyError:
                raise StoreError(
                    f"{path} is being replaced by another process, which does not go on: end that "
                    f"process and repeat the command"
                ) from None
            except OSError as error:
                if may_pass(error):
                    raise
                raise StoreError(
                    f"the process that replaced {path} was ended, and its folder cannot be written "
                    f"({error.strerror}): rename {work / OLD} to {path}"
                ) from error


def remove_stale(target: Path, spare: str = "") -> None:
    """Delete the workplaces of dead processes, after what they interrupted is put right.

    That with the key `spare` stays.
    """
    for work in _workplaces(target):
        if not spare or work.name != f".{target.name}.{spare}{WORK}":
            with contextlib.suppress(BusyError), lock(work, wait=0):
                if is_remains(work):
                    _clear(work, target)


def _workplaces(target: Path) -> list[Path]:
    """Return the workplaces next to a target, also where only the lock is left."""
    pattern = re.compile(rf"\.?(\.{re.escape(target.name)}\.{KEY}{re.escape(WORK)})(\.lock)?")
    found = filter(None, map(pattern.fullmatch, names_in(target.parent)))
    return [target.parent / name for name in sorted({match[1] for match in found})]


def _restore(work: Path, target: Path) -> None:
    if os.path.lexists(work / OLD) and not os.path.lexists(target):
        _rename(work / OLD, target)
        sync(target.parent)


def _clear(work: Path, target: Path) -> None:
    _restore(work, target)
    if os.path.lexists(work / OLD):
        sync(target.parent)  # the new one has the name for good
    if has_marker(work):
        delete_marked(work)
    elif is_remains(work):
        shutil.rmtree(work, ignore_errors=True)  # a late thread may add to it just now


def is_remains(work: Path) -> bool:
    """Return whether a workplace that nobody holds may be deleted: it is marked, or it holds no
    file but documents of the new store, which a late thread of an ended command wrote once more.
    """
    if has_marker(work) or not work.is_dir() or work.is_symlink():
        return has_marker(work)
    files = (Path(home, name) for home, _, names in os.walk(work) for name in names)
    parts = [file.relative_to(work).parts for file in files]
    late = [name for name in parts if name[0] == "new" and ("c" in name or name[-1] == "zarr.json")]
    return len(late) == len(parts)


@contextlib.contextmanager
def building(
    uri: str,
    exists: Callable[[str], bool],
    wait: float = -1,
    scratch: Place | None = None,
    key: str = "",
) -> Iterator[tuple[str, Path]]:
    """Hold the name of a store while it is built, and publish the store if the block ends well.

    Files that a killed process has spilled under the same `key` are there again.
    """
    local = "://" not in uri
    target, spilled = _places(uri, scratch)
    make_folder(target.parent)
    spilled.parent.mkdir(parents=True, exist_ok=True)
    with naming_full_disk(target.parent, spilled.parent), lock(target, wait=wait, name=uri):
        dead = {work.name.split(".")[-2] for work in _workplaces(target)}
        remove_stale(target, key)
        with contextlib.ExitStack() as works:
            work = beside = works.enter_context(workplace(spilled, key))
            if spilled != target or not local:  # a claim has the key of this process alone
                work = works.enter_context(workplace(target))
            new, spills = work / "new", beside / "spills"
            spills.mkdir(exist_ok=True)
            if new.exists():  # of a killed process
                shutil.rmtree(new)
            if not local:
                with _claimed(uri, exists, work.name.split(".")[-2], dead):
                    yield uri, spills
                return
            yield str(new), spills
            if new.exists():
                if os.path.lexists(target) and not exists(str(target)):
                    raise name_taken(target)
                publish(new, target, work)


@contextlib.contextmanager
def spool_folder(uri: str, scratch: Place | None = None) -> Iterator[Path]:
    """Make a workplace next to the spills of a store, before its name is held or even known."""
    _, spilled = _places(uri, scratch)
    is_new = not spilled.parent.exists()
    make_folder(spilled.parent)
    try:
        with naming_full_disk(spilled.parent), workplace(spilled) as work:
            yield work
    except BaseException:
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                spilled.parent.rmdir()
        raise


def _places(uri: str, scratch: Place | None) -> tuple[Path, Path]:
    """Return where a store is built, and next to which name it spills."""
    if "://" in uri:
        target = Path(scratch or ".bigfs").absolute() / fingerprint_of(uri)
        return target, target
    target = Path(os.path.realpath(uri))
    if not scratch:
        return target, target
    # stores of one name may share the folder
    return target, Path(scratch).absolute() / f"{target.name}-{fingerprint_of(uri)[:8]}"


@contextlib.contextmanager
def _claimed(uri: str, exists: Callable[[str], bool], key: str, dead: set[str]) -> Iterator[None]:
    """Hold a store's name in an object store, which cannot rename: it is built at its name.

    Only one of two machines puts the marker. `dead` holds the keys of ended processes of this
    machine.
    """
    if exists(uri):  # another process finished it while this one waited
        yield
        return
    words = WORDS + f"{key} {socket.gethostname()}\n".encode()
    if has_marker(uri):
        _require_abandoned(uri, dead)
        delete_marked(uri)
    elif _keys(uri):
        raise name_taken(uri)
    try:
        _put_marker(uri, words, mode="create")
    except OSError:
        if has_marker(uri):
            _require_abandoned(uri, set())
        raise
    try:
        yield
    finally:
        if exists(uri):
            unmark(uri)
        else:
            delete_marked(uri)


def _require_abandoned(uri: str, dead: set[str]) -> None:
    """Refuse a name in an object store that a process holds which may live."""
    fs, path = fsspec.core.url_to_fs(uri)
    marker = f"{path}/{MARKER}"
    holder = fs.cat_file(marker).removeprefix(WORDS).decode(errors="replace").split()
    if len(holder) < 2 or holder[0] in dead:  # a kill cut the holder short
        return
    if time.time() - fs.modified(marker).timestamp() < CLAIM:
        raise StoreError(
            f"{uri} is being staged on {holder[1]}: wait for it, or, if that process is gone, "
            f"remove {uri}/{MARKER} and repeat the command"
        )


# --- folders of ours ------------------------------------------------------------------------------


def write_marker(folder: Place) -> None:
    """Make a folder and mark it as ours, unless it is ours already. It may be a URL."""
    if not is_free(folder):
        if not has_marker(folder):
            raise name_taken(folder)
        return
    fs, path = fsspec.core.url_to_fs(str(folder))
    with explain_write_errors(folder):
        fault_point("write", folder)
        fs.makedirs(path, exist_ok=True)
        _put_marker(folder, WORDS)


def _put_marker(folder: Place, words: bytes, mode: str = "overwrite") -> None:
    fs, path = fsspec.core.url_to_fs(str(folder))
    fault_point("write", f"{folder}/{MARKER}")
    fs.pipe_file(f"{path}/{MARKER}", words, mode=mode)


def mark_ours(folder: Place) -> None:
    """Mark a folder that lies in one of ours."""
    if not has_marker(Path(folder).parent):
        raise name_taken(folder)
    _put_marker(folder, WORDS)


def has_marker(folder: Place) -> bool:
    """Return whether the program made a folder and may delete it. A symbolic link is never ours."""
    if os.path.islink(folder):
        return False
    fs, path = fsspec.core.url_to_fs(str(folder))
    try:
        words = fs.cat_file(f"{path}/{MARKER}")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return _are_ours(words)


def _are_ours(words: bytes) -> bool:
    """Return whether these are the words of a marker. A full disk or a kill may cut them short."""
    return WORDS.startswith(words) or words.startswith(WORDS)


def unmark(folder: Place) -> None:
    """Delete the marker alone. From now on the folder is the user's."""
    fs, path = fsspec.core.url_to_fs(str(folder))
    fault_point("delete", f"{folder}/{MARKER}")
    fs.rm_file(f"{path}/{MARKER}")


def delete_marked(folder: Place) -> None:
    """Delete a folder of ours with all that it holds, if it exists.

    A file that can't be deleted now keeps the folder marked. An empty folder stays, as a process
    may have been killed before it wrote the marker.
    """
    if is_free(folder):
        return
    if not has_marker(folder):
        raise name_taken(folder)
    fault_point("delete", folder)
    if "://" in str(folder):
        _delete_remote(str(folder))
        return
    home = Path(folder)
    for child in [c for c in home.iterdir() if c.name != MARKER]:
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child, ignore_errors=True)
        else:
            child.unlink()
    if [child.name for child in home.iterdir()] == [MARKER]:
        with contextlib.suppress(FileNotFoundError):  # another process deletes what is left
            unmark(home)
            try:
                home.rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                _put_marker(home, WORDS)  # a task that was not over yet wrote once more


def _delete_remote(url: str) -> None:
    fs, _ = fsspec.core.url_to_fs(url)
    if others := [key for key in _keys(url) if not key.endswith(f"/{MARKER}")]:
        fs.rm(others)
    unmark(url)
    if _keys(url):  # a task that was not over yet wrote once more, or another machine took the name
        with contextlib.suppress(OSError):
            _put_marker(url, WORDS, mode="create")


def is_free(folder: Place) -> bool:
    """Return whether nothing is at a name, or an empty folder."""
    return not (_keys(str(folder)) if "://" in str(folder) else _held_by(folder))


def is_available(folder: Place) -> bool:
    """Return whether a name is free or has a folder of ours, which another process may be making
    or deleting: an empty one is marked before anything else is in it, and unmarked last."""
    names = _held_by(folder)  # one look: it may go and come again between two
    if MARKER not in names:
        return not names
    try:
        return _are_ours((Path(folder) / MARKER).read_bytes())
    except FileNotFoundError:  # it was ours, and is being deleted
        return True


def _held_by(folder: Place) -> set[str]:
    """Return what a folder holds, by one look. A file holds itself."""
    if os.path.islink(folder):
        return {os.fspath(folder)}
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
    except NotADirectoryError:
        return {os.fspath(folder)} if os.path.lexists(folder) else set()


def _keys(url: str) -> list[str]:
    fs, path = fsspec.core.url_to_fs(url)
    fs.invalidate_cache()
    try:
        found = map(str, fs.find(path))
    except FileNotFoundError as error:
        bucket = path.partition("/")[0]
        raise StoreError(f"there is no bucket {bucket}: make it, or give another URL") from error
    # SeaweedFS lists an empty folder by its own name
    return [key for key in found if key.rstrip("/") != path.rstrip("/")]


# --- errors of writing ----------------------------------------------------------------------------


@contextlib.contextmanager
def explain_write_errors(path: Place) -> Iterator[None]:
    """Turn errors of writing that will stay into one line. Others pass as they are."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise RunError(
                f"the disk of {path} is full: free some space and repeat the command"
            ) from error
        if may_pass(error) or error.errno in LIMITS:
            raise
        raise RunError(f"{path} cannot be written ({error.strerror}): give another path") from error


@contextlib.contextmanager
def naming_full_disk(*folders: Path) -> Iterator[None]:
    """Turn the system's error for a full disk into a line that names the fullest of the folders."""
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        # what was begun is removed by now, so that the space that is left says nothing
        folder = min((f for f in folders if f.exists()), key=lambda f: shutil.disk_usage(f).free)
        raise StoreError(
            f"the disk of {folder} is full: free some space, or give another path"
        ) from error
