"""Sources behind the URLs of fsspec: fetched once to the folder of downloads.

A copy belongs to one version of the file. If the remote one changes, it is fetched again. A file is
read by ranges of bytes, so a broken fetch goes on where it stopped. A copy is made because staging
reads a source several times, from several processes.

Keys and options come from the environment, as fsspec and its packages read them
(``AWS_ACCESS_KEY_ID``, ``FSSPEC_S3_ENDPOINT_URL`` …), and never from the URL, which logs and runs
show.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
from filelock import FileLock
from fsspec.registry import known_implementations

from storage import catalogue, disk, ownership
from storage.errors import SourceError

RANGE = 8 << 20  # bytes of a file that are asked for at a time
URL = re.compile(r"[a-z][a-z0-9+.-]*://")
# they read files of this machine, which have paths, or other URLs inside theirs
LOCAL = {"file", "local", "dir", "zip", "tar", "libarchive", "reference", "filecache"}
LOCAL |= {"simplecache", "blockcache", "cached", "data", "git", "generic"}


def require_no_secret(url: str) -> None:
    """Refuse a URL with a user's name or a password.

    Raises
    ------
    SourceError
        It has one. The message does not repeat it.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SourceError(
            f"the URL of {parts.netloc.rpartition('@')[2]}{parts.path} holds credentials, which "
            f"logs and runs would show: leave them out, and give them by the environment"
        )


def is_remote(source: str) -> bool:
    """Return whether a source is a URL of fsspec, and no file of this machine."""
    return (
        URL.match(source) is not None
        and "::" not in source
        and source.partition("://")[0] not in LOCAL
    )


def fetch(url: str) -> Path:
    """Return the copy of a file or folder behind a URL, and make it if it is not there.

    Parameters
    ----------
    url : str
        A URL such as ``s3://bucket/key``. Its package must be installed.

    Returns
    -------
    Path
        The copy, in `storage.catalogue.data_folder`.

    Raises
    ------
    SourceError
        The protocol is unknown, its package is missing, or nothing can be read there.
    """
    protocol, name = url.partition("://")[0], url.rstrip("/").rpartition("/")[2] or "download"
    fs, path = _filesystem(protocol, url)
    try:
        is_folder = fs.isdir(path)
        version = _version(fs, path, is_folder)
    except (OSError, ValueError, NotImplementedError) as error:
        raise SourceError(_unreadable(url, error)) from error
    key = hashlib.blake2b(repr((url, version)).encode(), digest_size=8).hexdigest()
    folder = catalogue.data_folder() / "urls" / key
    folder.mkdir(parents=True, exist_ok=True)
    ownership.require_lock_file(folder / ".lock")
    target, part = folder / name, folder / f".{name}.part"
    with disk.naming_full_disk(folder), FileLock(folder / ".lock"):
        if not target.exists():
            try:
                if is_folder:
                    _discard(part)
                    fs.get(path, str(part), recursive=True)
                else:
                    _fetch_ranges(fs, path, part)
                fs.invalidate_cache()
                is_same = _version(fs, path, is_folder) == version
            except (OSError, ValueError) as error:
                if disk.is_full(error):
                    raise
                raise SourceError(_unreadable(url, error)) from error
            if not is_same:
                _discard(part)
                raise SourceError(f"{url} changed while it was read: repeat the command")
            os.replace(part, target)
    return target


def _version(fs: Any, path: str, is_folder: bool) -> Any:
    """Return what changes when a file changes, or any file of a folder."""
    return [fs.ukey(name) for name in fs.find(path)] if is_folder else fs.ukey(path)


def _fetch_ranges(fs: Any, path: str, part: Path) -> None:
    """Append the rest of a file to what an interrupted fetch left of the same version."""
    size = fs.size(path)
    if size is None:  # nobody knows where it ends
        _discard(part)
        fs.get(path, str(part))
        return
    with open(part, "ab") as out:
        if out.tell() > size:
            out.truncate(0)
        while out.tell() < size:
            start = out.tell()
            block = fs.cat_file(path, start=start, end=min(start + RANGE, size))
            if not block:
                raise OSError(f"it ended after {start} of {size} bytes")
            out.write(block)


def _filesystem(protocol: str, url: str) -> tuple[Any, str]:
    try:
        fs, path = fsspec.url_to_fs(url)
    except ImportError as error:
        advice = known_implementations.get(protocol, {}).get("err", f"install {error.name}")
        raise SourceError(f"{protocol}:// needs a package that is not there: {advice}") from error
    except ValueError as error:
        raise SourceError(f"{url}: fsspec knows no protocol {protocol!r}") from error
    return fs, path


def _unreadable(url: str, error: Exception) -> str:
    what = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
    text = str(error).splitlines()[0] if str(error) else repr(error)
    return f"{url} {what} ({type(error).__name__}: {text})"


def _discard(part: Path) -> None:
    """Delete what an interrupted fetch left."""
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)
