"""Sources behind URLs: fetched once to the folder of downloads, by requests or by fsspec.

A copy belongs to one version of a file. It is made because staging reads a source several times,
from several processes. Keys and options come from the environment, as fsspec and its packages read
them (``AWS_ACCESS_KEY_ID`` …), and never from the URL, which logs and runs show.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage import atomic
from storage.errors import SourceError, redacted

RANGE = 8 << 20  # bytes of a file that are asked for at a time
WEB = ("http://", "https://")
# protocols of servers. Others read files of this machine, which have paths, or URLs inside theirs
SERVERS = {"http", "https", "ftp", "sftp", "ssh", "smb", "webhdfs", "hdfs", "memory"}
SERVERS |= {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "oci", "oss", "r2", "tos"}
SERVERS |= {"hf", "dbfs", "gdrive", "dropbox", "box", "lakefs", "github", "wandb", "webdav"}


def require_no_secret(url: str) -> None:
    """Refuse a URL with a user's name or a password, without repeating it."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SourceError(
            f"the URL of {parts.netloc.rpartition('@')[2]}{parts.path} holds credentials, which "
            f"logs and runs would show: leave them out, and give them by the environment"
        )


def is_remote(source: str) -> bool:
    """Return whether a source is a URL of a server, and no file of this machine."""
    return "::" not in source and source.partition("://")[0] in SERVERS and "://" in source


def split_options(source: str) -> tuple[str, str]:
    """Return a URL, and the options that follow it after a #, which is no part of what is asked."""
    url, _, options = source.rpartition("#")
    return (url, options) if "=" in options and url else (source, "")


def fetch(url: str) -> Path:
    """Return the copy of a file or folder behind a URL, and make it if it is not there."""
    from storage.downloads import downloader  # which imports requests

    require_no_secret(url)
    if url.startswith(WEB):
        return downloader.download(url)
    name = downloader.file_name(url)
    fs, path, is_folder, version = _version_of(url)
    folder = downloader.copy_folder(url, version)
    target, part = folder / name, folder / f".{name}.part"
    with downloader.locked(folder):
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
                if atomic.is_full(error):
                    raise
                raise SourceError(downloader.unreadable(url, error)) from error
            if not is_same:
                _discard(part)
                raise SourceError(f"{redacted(url)} changed while it was read: repeat the command")
            atomic.publish(part, target)
    return target


def _version_of(url: str) -> tuple[Any, str, bool, Any]:
    """Return the file system of a URL, the path in it, whether it is a folder, and its version."""
    import fsspec
    from fsspec.registry import known_implementations

    from storage.downloads import downloader

    protocol = url.partition("://")[0]
    try:
        fs, path = fsspec.url_to_fs(url)
        is_folder = fs.isdir(path)
        return fs, path, is_folder, _version(fs, path, is_folder)
    except ImportError as error:
        advice = known_implementations.get(protocol, {}).get("err", f"install {error.name}")
        raise SourceError(f"{protocol}:// needs a package that is not there: {advice}") from error
    except (OSError, ValueError, NotImplementedError) as error:
        raise SourceError(downloader.unreadable(url, error)) from error


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


def _discard(part: Path) -> None:
    """Delete what an interrupted fetch left."""
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)
