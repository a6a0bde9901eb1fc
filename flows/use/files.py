"""Files that commands write: the ending of a name, and files that only their owner can read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path


def with_suffix(file: str | Path, known: Sequence[str], default: str = "") -> Path:
    """Return the file to write, whose ending says what to write."""
    file = Path(file)
    if not file.suffix:
        return Path(f"{file}{default}")
    if file.suffix.lower() not in known:
        raise ValueError(
            f"{file} must end in {' or '.join(known)}, which says what is written; got "
            f"{file.suffix}"
        )
    return file


def private_folder(folder: Path) -> Path:
    """Create a folder of mode 700, or check that nobody else can write to an existing one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(
            f"{folder} must belong to you, and nobody else may write to it: run chmod "
            f"700 {folder}, or give a new folder"
        )
    return folder


def private_file(file: Path, content: bytes) -> Path:
    """Write a file of mode 600, whole or not at all.

    A file of that name is replaced, whatever its mode.
    """
    folder = private_folder(file.parent)
    # mode 600, and never an existing file
    descriptor, part = tempfile.mkstemp(prefix=f".{file.name}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(part, file)
    except BaseException:
        os.unlink(part)
        raise
    return file
