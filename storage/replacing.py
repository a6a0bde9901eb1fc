"""Files of a run: written whole or not at all, and read with the name of the one that is
damaged.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

PART = ".bigfs-part"  # the end of the name of a file that is being written
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
DAMAGED = (  # what reading a file raises that is not as it was written
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
    """A run directory that is not one, can't be written, or was written by a newer version."""


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
        Where to write: a hidden name beside the file that only this program uses.

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
def writing(place: Path) -> Iterator[None]:
    """Say in one line why a place can't be written; errors that may go away pass as they are.

    Parameters
    ----------
    place : Path
        What is written inside the block.

    Raises
    ------
    RunError
        The disk is full, or the place can't be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise RunError(
                f"the disk of {place} is full: free some space and repeat the command"
            ) from error
        if error.errno in LASTING:
            raise RunError(
                f"{place} cannot be written ({error.strerror}): give another path"
            ) from error
        raise


@contextlib.contextmanager
def undamaged(file: Path) -> Iterator[None]:
    """Name the file that can't be read inside the block.

    Parameters
    ----------
    file : Path
        The file.

    Raises
    ------
    RunError
        The file is missing, or not as it was written.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{file} is missing: repeat the run") from error
    except DAMAGED as error:
        raise RunError(
            f"{file} is damaged ({error or type(error).__name__}): repeat the run"
        ) from error
