"""Locks: one per name, by `flock`. The system releases the lock of a process that was killed.

The lock file lies next to the name, and its holder removes it. A process that waited for a file
that was removed meanwhile takes the next one. A file that appears by one rename needs no lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from bigfs.settings import Setting
from bigfs.storage.errors import BusyError, StoreError

log = logging.getLogger("bigfs.storage")
POLL = Setting(0.05)  # seconds between two looks at a lock that another process holds
MISSING = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}  # of disks without flock

Place = str | os.PathLike[str]


@contextlib.contextmanager
def lock(
    path: Place, *, wait: float = -1, name: Place = "", shared: bool = False
) -> Iterator[None]:
    """Hold the lock of a path against other processes and threads, or share it.

    `wait` limits the seconds to wait; -1 waits as long as it takes, and says so. `name` stands for
    the path in messages. Ask for the state that depends on the lock inside the block.
    """
    path, file = Path(path), _file_of(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    require_lock_file(file)
    descriptor = _acquire(file, wait, name or path, shared)
    with os.fdopen(descriptor, "rb"):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the folder was removed, or is read-only by now
                # nobody else shares it, or made it anew while this one asked
                if not shared or (try_lock(descriptor, file) and _is_at(descriptor, file)):
                    file.unlink()


def _file_of(path: Place) -> Path:
    return Path(path).with_name(f".{Path(path).name}.lock")


def is_held(path: Place) -> bool:
    """Return whether somebody holds the lock of a path, whose file is not made for that."""
    file = _file_of(path)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not try_lock(descriptor, file)
    finally:
        os.close(descriptor)


def _acquire(file: Path, wait: float, name: Place, shared: bool) -> int:
    """Return the open file, once it is locked and has its name still."""
    began, is_told = time.monotonic(), False
    # the file of another user can be shared, and some disks need more to lock it alone
    flags = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_RDONLY if shared else os.O_RDWR)
    while True:
        descriptor = os.open(file, flags, 0o666)
        try:
            if try_lock(descriptor, file, shared=shared):
                if _is_at(descriptor, file):
                    return descriptor
                os.close(descriptor)
                continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if 0 <= wait <= time.monotonic() - began:
            raise BusyError(f"another process works on {name}: wait for it, or give another name")
        if wait < 0 and not is_told:
            log.warning("another process works on %s: waiting for it to end", name)
            is_told = True
        time.sleep(POLL.value)


def try_lock(descriptor: int, name: Place, *, shared: bool = False) -> bool:
    """Lock an open file if nobody holds it. The lock ends when the file is closed."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in MISSING:
            raise StoreError(
                f"the disk of {name} has no file locks (flock), which keep two commands apart: "
                f"mount it with them, or give a path on another disk"
            ) from error
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def _is_at(descriptor: int, file: Path) -> bool:
    """Return whether an open file has its name still."""
    try:
        there = os.stat(file, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def require_lock_file(path: Place) -> None:
    """Refuse to lock a file with content, because the lock's file is removed."""
    try:
        there = os.lstat(path)  # one look: another process may remove its lock meanwhile
    except FileNotFoundError:
        return
    if not stat.S_ISREG(there.st_mode) or there.st_size:
        raise name_taken(path)


def name_taken(path: Place) -> StoreError:
    """Return the error for a file or folder of others at a name that the program needs."""
    return StoreError(
        f"{path} is in the way and bigfs did not make it: move it, remove it, or give another name"
    )
