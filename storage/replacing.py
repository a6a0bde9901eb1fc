"""Files of a run: written whole or not at all. An error of reading names the damaged file."""

from __future__ import annotations

import contextlib
import csv
import errno
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

PART = ".bigfs-part"  # suffix of a file that is being written
FULL = {errno.ENOSPC, errno.EDQUOT}
LASTING = {
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
}
DAMAGED = (  # what reading a damaged file may raise
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    RecursionError,
    NotImplementedError,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
)


class RunError(ValueError):
    """Error of a run directory: none is there, it can't be written, or a newer version wrote it."""


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Write a file whole or not at all.

    Parameters
    ----------
    file : Path
        The file to write or to replace.

    Yields
    ------
    Path
        The file to write to, beside the other one, with a hidden name that only bigfs uses.

    Raises
    ------
    RunError
        The disk is full, or the folder can't be written.
    """
    part = file.with_name(f".{file.name}{PART}")
    with writing(file):
        try:
            part.unlink(missing_ok=True)
            yield part
            part.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of writing that will stay into one line. Others pass as they are.

    Parameters
    ----------
    path : Path
        The file or folder that is written inside the block.

    Raises
    ------
    RunError
        The disk is full, or the path can't be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise RunError(
                f"the disk of {path} is full: free some space and repeat the command"
            ) from error
        if error.errno in LASTING:
            raise RunError(
                f"{path} cannot be written ({error.strerror}): give another path"
            ) from error
        raise


@contextlib.contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """Name the file if reading it inside the block fails.

    Parameters
    ----------
    file : Path
        The file.

    Raises
    ------
    RunError
        The file is missing or damaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{file} is missing: repeat the run") from error
    except DAMAGED as error:
        raise RunError(
            f"{file} is damaged ({error or type(error).__name__}): repeat the run"
        ) from error
