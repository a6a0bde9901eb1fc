"""What tells one version of a source from another: a hash of its content, so that neither a name
nor a date can deceive.

Files of up to `WHOLE` bytes and `FILES` files together are hashed whole. Hashing takes some seconds
for a gigabyte in the system's cache, a small part of staging it. Beyond that, blocks at fixed
places stand for the content: the first, the last and `BLOCKS` between, of up to `FILES` files
spread over the list. The absolute path, sizes and modification times then count too.

A process hashes files once: it looks again where their size, their dates (also the one that the
system alone sets) or their inode changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

WHOLE = 1 << 30  # bytes
FILES = 20_000
BLOCK, BLOCKS = 1 << 20, 64
VERSION = 2  # of the rule; version 1 took the base name, the size and the modification time

_first_rule: ContextVar[bool] = ContextVar("first_rule", default=False)
_known: dict[str, str] = {}  # state of the files → their identity


def fingerprint_of(*settings: object) -> str:
    """A short hash of settings whose repr says all there is to say."""
    return hashlib.blake2b(repr(settings).encode(), digest_size=12).hexdigest()


@contextlib.contextmanager
def first_rule() -> Iterator[None]:
    """Identify files by rule 1 in the block: what stores of earlier versions were named after."""
    token = _first_rule.set(True)
    try:
        yield
    finally:
        _first_rule.reset(token)


def identity_of(paths: Iterable[str | Path], root: str | None = None) -> Any:
    """Return what tells one version of some files from another.

    Parameters
    ----------
    paths : iterable of str or path
        The files, in an order that does not change.
    root : str, default=None
        The folder that their names are relative to. None takes the base names.

    Returns
    -------
    str or list
        A hash; by rule 1 the list of (name, size, modification time).

    Notes ----- Equal files are equal wherever they lie if they are hashed whole. Measured on a busy
    machine of 2 cores, files in the system's cache: 3.9 s for a file of 1 GB (270 MB/s), 0.4 s for
    one of 4 GB by its blocks, 0.07 s for the 20 Newsgroups archive (9 MB) and 2.2 s for its folder
    of 18,846 files (36 MB), of which listing the folder takes half.
    """
    files = [
        (Path(p).relative_to(root).as_posix() if root else Path(p).name, str(p), os.stat(p))
        for p in paths
    ]
    if _first_rule.get():
        return [(name, s.st_size, s.st_mtime_ns) for name, _, s in files]
    state = _digest(
        [
            (os.path.abspath(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
            for _, p, s in files
        ]
    )
    if state not in _known:
        _known[state] = _identity(files)
    return _known[state]


def _identity(files: list[tuple[str, str, os.stat_result]]) -> str:
    total = sum(s.st_size for _, _, s in files)
    named = [(name, s.st_size) for name, _, s in files]
    if total <= WHOLE and len(files) <= FILES:
        return _digest([VERSION, named, [_content(p, s.st_size, total) for _, p, s in files]])
    dated = [(os.path.abspath(p), s.st_mtime_ns) for _, p, s in files]
    step = -(-len(files) // FILES)
    return _digest(
        [VERSION, named, dated, [_content(p, s.st_size, total) for _, p, s in files[::step]]]
    )


def _content(path: str, size: int, total: int) -> str:
    """The hash of a file, or of its blocks where it is one of many or a large one."""
    content = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        if total <= WHOLE or size <= BLOCK:
            while block := file.read(BLOCK):
                content.update(block)
        else:
            for start in sorted({(size - BLOCK) * i // (BLOCKS + 1) for i in range(BLOCKS + 2)}):
                file.seek(start)
                content.update(file.read(BLOCK))
    return content.hexdigest()


def _digest(value: Any) -> str:
    return hashlib.blake2b(
        repr(value).encode("utf-8", "surrogateescape"), digest_size=16
    ).hexdigest()
