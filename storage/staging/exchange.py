"""Build a store beside its final place, under a lock, and give it its name by one rename."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from storage import disk, ownership
from storage.errors import StoreError
from storage.fingerprint import fingerprint_of
from storage.format import manifest as manifests


@contextlib.contextmanager
def building(
    uri: str, wait: float = -1, scratch: str | os.PathLike[str] | None = None
) -> Iterator[tuple[str, Path]]:
    """Hold the name of a store while it is built, and publish the store if the block ends well.

    All work happens in folders that `storage.ownership` marks as ours. They are deleted in the end,
    and so is what an interrupted run left. Nothing else is deleted.

    Parameters
    ----------
    uri : str
        The store.
    wait : float, default=-1
        Seconds to wait while another process builds the same store; -1 waits as long as it takes.
    scratch : str or path, default=None
        The folder for scratch files. None takes the store's own folder.

    Yields
    ------
    target : str
        An empty place to build the store in.
    spills : Path
        A folder for scratch files.

    Raises
    ------
    StoreError
        Another process builds the store, a disk is full, or something that the program did not make
        is in the way.
    """
    local = "://" not in uri
    home = Path(uri).parent if local else Path(scratch or ".bigfs").absolute()
    name = Path(uri).name if local else fingerprint_of(uri)
    work = home / f".{name}.staging"
    aside = (
        Path(scratch).absolute() / f".{name}-{fingerprint_of(uri)[:8]}.staging"
        if scratch and local
        else work
    )
    lock = home / f".{name}.lock"
    home.mkdir(parents=True, exist_ok=True)
    ownership.require_lock_file(lock)
    try:
        with disk.naming_full_disk(home), FileLock(lock, timeout=wait):
            try:
                _restore(work, uri)
                for folder in {work, aside}:
                    ownership.discard(folder)
                    ownership.claim(folder)
                (aside / "spills").mkdir()
                with disk.naming_full_disk(home, aside), _published(uri, work) as target:
                    yield target, aside / "spills"
            finally:
                for folder in {work, aside}:
                    if ownership.is_ours(folder):
                        ownership.discard(folder)
                # deleted while held: a process that waits for it locks a new one
                lock.unlink(missing_ok=True)
    except Timeout:
        raise StoreError(
            f"another process is staging {uri}: wait for it, or give another name"
        ) from None


def _restore(work: Path, uri: str) -> None:
    """Give a store its name back if a killed exchange left it without one."""
    if (work / "old").exists() and ownership.is_ours(work) and not os.path.exists(uri):
        os.rename(work / "old", uri)


@contextlib.contextmanager
def _published(uri: str, work: Path) -> Iterator[str]:
    """Yield the place to build the store at, then give the store its name.

    A store that grew is exchanged by two renames. In an object store, which cannot rename, the
    store is built at its name, with our marker until it is finished.
    """
    if "://" not in uri:
        target = work / "new"
        yield str(target)
        if manifests.exists(str(target)):
            if manifests.exists(uri):
                os.rename(uri, work / "old")
            elif os.path.lexists(uri):
                raise ownership.in_the_way(uri)
            os.rename(target, uri)
        return
    if manifests.exists(uri):  # another process finished it while this one waited
        yield uri
        return
    ownership.discard(uri)
    ownership.claim(uri)
    try:
        yield uri
    finally:
        if manifests.exists(uri):
            ownership.release(uri)
        else:
            ownership.discard(uri)
