"""The state of a store that readers hold, while `append` replaces it.

    news.zarr                  the store, which has grown
    .news.zarr.<content>.kept  links to the files of the state before, for those that began with it
    .news.zarr.<content>.lock  held by each of them

Whoever is last deletes them, or where it was killed the next `append`, or `bigfs prune`. Nor is a
state that is held pruned.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from bigfs.storage import atomic
from bigfs.storage.errors import BusyError
from bigfs.storage.locks import is_held, lock

KEPT = ".kept"
DIGITS = 16  # of the hash of the content, in a name


def _state(uri: str, content: str) -> Path:
    target = Path(os.path.realpath(uri))
    return target.with_name(f"{target.name}.{content[:DIGITS]}")


def _kept_path(uri: str, content: str) -> Path:
    state = _state(uri, content)
    return state.with_name(f".{state.name}{KEPT}")


def place_of(uri: str, content: str) -> str:
    """Return where a store lies with this content: at its name, or kept for its readers."""
    if "://" in uri or not atomic.has_marker(kept := _kept_path(uri, content)):
        return uri
    return str(kept)


@contextlib.contextmanager
def hold(uri: str, content: str) -> Iterator[None]:
    """Read a store with this content for the block, also if it grows meanwhile."""
    if "://" in uri or not os.access(_state(uri, content).parent, os.W_OK):
        yield
        return
    try:
        with lock(_state(uri, content), shared=True, name=uri):
            yield
    finally:
        _forget(_kept_path(uri, content))


def unread(uri: str, content: str) -> AbstractContextManager[None]:
    """Let nobody begin to read a state of a store, or raise a BusyError if somebody does."""
    return lock(_state(uri, content), wait=0, name=uri)


@contextlib.contextmanager
def keep(uri: str, content: str) -> Iterator[None]:
    """Keep this state of a store if somebody holds it, while another one takes its name."""
    target = Path(os.path.realpath(uri))
    pattern = re.compile(rf"\.{re.escape(target.name)}\.([0-9a-f]{{{DIGITS}}}){re.escape(KEPT)}")
    for name in filter(pattern.fullmatch, os.listdir(target.parent)):
        _forget(target.with_name(name))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(unread(uri, content))
        except BusyError:
            kept = _kept_path(uri, content)
            with atomic.workplace(kept) as work:
                new = work / "new"
                shutil.copytree(target, new, symlinks=True, copy_function=atomic.link_or_copy)
                atomic.mark_ours(new)
                atomic.publish(new, kept)
        yield


def is_left(kept: Path) -> bool:
    """Return whether a folder is a state that nobody holds, or one whose deletion was killed."""
    return (atomic.has_marker(kept) or atomic.is_free(kept)) and not is_held(_state_of(kept))


def delete(kept: Path) -> None:
    """Delete a state that is kept, or raise a BusyError if somebody holds it."""
    with lock(_state_of(kept), wait=0):
        atomic.delete_marked(kept)
        if kept.exists() and atomic.is_free(kept):
            kept.rmdir()


def _state_of(kept: Path) -> Path:
    return kept.with_name(kept.name[1:].removesuffix(KEPT))


def _forget(kept: Path) -> None:
    if kept.is_dir():
        with contextlib.suppress(BusyError, OSError):  # `prune` finds what is left
            delete(kept)
