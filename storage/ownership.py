"""Folders that the program made. It deletes those and nothing else.

Such a folder holds a marker file. The marker is written first and deleted last, so that the remains
of a killed process are recognized. A folder may also be a URL in an object store.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import fsspec

from storage.errors import StoreError

MARKER = ".made-by-bigfs"
WORDS = b"bigfs works in this folder. It may delete the folder and all that it holds.\n"


def claim(folder: str | os.PathLike[str]) -> None:
    """Make a folder and mark it as ours, unless it is ours already.

    Parameters
    ----------
    folder : str or path
        A path or an fsspec URL. An empty folder there is taken over.

    Raises
    ------
    StoreError
        The folder holds something that the program did not make, or the name is a file's.
    """
    if is_ours(folder):
        return
    if _exists(folder) and not _is_empty(folder):
        raise in_the_way(folder)
    fs, path = fsspec.core.url_to_fs(str(folder))
    fs.makedirs(path, exist_ok=True)
    _mark(folder)


def _mark(folder: str | os.PathLike[str]) -> None:
    fs, path = fsspec.core.url_to_fs(str(folder))
    fs.pipe_file(f"{path}/{MARKER}", WORDS)


def is_ours(folder: str | os.PathLike[str]) -> bool:
    """Return whether the program made a folder and may delete it.

    Parameters
    ----------
    folder : str or path
        A path or an fsspec URL.

    Returns
    -------
    bool
        False for a symbolic link, whatever it leads to.
    """
    if os.path.islink(folder):
        return False
    fs, path = fsspec.core.url_to_fs(str(folder))
    try:
        # a full disk or a kill may cut the words short
        return WORDS.startswith(fs.cat_file(f"{path}/{MARKER}"))
    except (FileNotFoundError, NotADirectoryError):
        return False


def discard(folder: str | os.PathLike[str]) -> None:
    """Delete a folder of ours with all that it holds, if it exists.

    A file that can't be deleted now keeps the folder marked, and the next call deletes it. An empty
    folder stays: a process that was killed before it wrote the marker may have left it.

    Parameters
    ----------
    folder : str or path
        A path or an fsspec URL.

    Raises
    ------
    StoreError
        The program did not make the folder.
    """
    if not _exists(folder) or _is_empty(folder):
        return
    if not is_ours(folder):
        raise in_the_way(folder)
    if "://" in str(folder):
        _discard_remote(str(folder))
        return
    home = Path(folder)
    for child in [c for c in home.iterdir() if c.name != MARKER]:
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child, ignore_errors=True)
        else:
            child.unlink()
    if [child.name for child in home.iterdir()] == [MARKER]:
        release(home)
        try:
            home.rmdir()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            _mark(home)  # a task that was not over yet wrote once more


def release(folder: str | os.PathLike[str]) -> None:
    """Delete the marker alone. From now on the folder is the user's.

    Parameters
    ----------
    folder : str or path
        A path or an fsspec URL of a folder that is ours.
    """
    fs, path = fsspec.core.url_to_fs(str(folder))
    fs.rm_file(f"{path}/{MARKER}")


def in_the_way(path: str | os.PathLike[str]) -> StoreError:
    """Return the error for a file or folder of others at a name that the program needs.

    Parameters
    ----------
    path : str or path
        The file or folder.

    Returns
    -------
    StoreError
        To be raised.
    """
    return StoreError(
        f"{path} is in the way and bigfs did not make it: move it, remove it, or give another name"
    )


def require_lock_file(path: str | os.PathLike[str]) -> None:
    """Refuse to lock a file with content, because locking empties it.

    Parameters
    ----------
    path : str or path
        The name that the lock file will have.

    Raises
    ------
    StoreError
        Something other than a lock file has that name.
    """
    if os.path.lexists(path) and (
        os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path)
    ):
        raise in_the_way(path)


def _exists(folder: str | os.PathLike[str]) -> bool:
    if "://" not in str(folder):
        return os.path.lexists(folder)
    return bool(_keys(str(folder)))


def _is_empty(folder: str | os.PathLike[str]) -> bool:
    return (
        "://" not in str(folder)
        and os.path.isdir(folder)
        and not os.path.islink(folder)
        and not os.listdir(folder)
    )


def _keys(url: str) -> list[str]:
    fs, path = fsspec.core.url_to_fs(url)
    fs.invalidate_cache()
    return [str(key) for key in fs.find(path)]


def _discard_remote(url: str) -> None:
    fs, _ = fsspec.core.url_to_fs(url)
    if others := [key for key in _keys(url) if not key.endswith(f"/{MARKER}")]:
        fs.rm(others)
    release(url)
    if _keys(url):
        _mark(url)  # a task that was not over yet wrote once more
