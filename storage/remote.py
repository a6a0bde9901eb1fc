"""Sources behind the URLs of fsspec: fetched once to the folder of downloads.

A copy belongs to one version of the file. If the remote one changes, it is fetched again. Keys and
options come from the environment, as fsspec and its packages read them (``AWS_ACCESS_KEY_ID``,
``FSSPEC_S3_ENDPOINT_URL`` …), and never from the URL, which logs and runs show.
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
        version = fs.ukey(path) if not is_folder else [fs.ukey(p) for p in fs.find(path)]
    except (OSError, ValueError, NotImplementedError) as error:
        raise SourceError(_unreadable(url, error)) from error
    key = hashlib.blake2b(repr((url, version)).encode(), digest_size=8).hexdigest()
    folder = catalogue.data_folder() / "urls" / key
    folder.mkdir(parents=True, exist_ok=True)
    ownership.require_lock_file(folder / ".lock")
    target, part = folder / name, folder / f".{name}.part"
    with disk.naming_full_disk(folder), FileLock(folder / ".lock"):
        if not target.exists():
            _discard(part)
            try:
                fs.get(path, str(part), recursive=is_folder)
            except (OSError, ValueError) as error:
                if disk.is_full(error):
                    raise
                raise SourceError(_unreadable(url, error)) from error
            os.replace(part, target)
    return target


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
