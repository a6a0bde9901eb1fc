"""Sources behind URLs, by requests or by fsspec: ranges of files, or copies of them.

Files of columns are read by ranges of bytes, from several processes (`open_ranges`). Others are
fetched once to the folder of downloads, because staging reads a source several times. A copy
belongs to one version of a file. Keys and options come from the environment, as fsspec and its
packages read them (``AWS_ACCESS_KEY_ID`` …), and never from the URL, which logs and runs show.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import known_implementations

from bigfs.settings import Setting
from bigfs.storage import atomic
from bigfs.storage.downloads import downloader
from bigfs.storage.errors import SourceError, is_full, redact

RANGE = Setting(8 << 20)  # bytes of a file that are asked for at a time
OF_WINDOWS = ("desktop.ini", "thumbs.db")  # which it writes into folders
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
    """Return a URL, and the options that follow it after a #, which is not sent."""
    url, _, options = source.rpartition("#")
    return (url, options) if "=" in options and url else (source, "")


def fetch(url: str) -> Path:
    """Return the copy of a file or folder behind a URL, and make it if it is not there."""
    require_no_secret(url)
    if url.startswith(WEB):
        return downloader.download(url)
    name = downloader.file_name(url)
    fs, path = _file_system(url)
    with _readable(url):
        is_folder = fs.isdir(path)
        version = _version(fs, path, is_folder)
    folder = downloader.copy_folder(url, version)
    target, part = folder / name, folder / f".{name}.part"
    with downloader.lock_folder(folder):
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
                if is_full(error):
                    raise
                raise SourceError(downloader.unreadable(url, error)) from error
            if not is_same:
                _discard(part)
                raise SourceError(f"{redact(url)} changed while it was read: repeat the command")
            atomic.publish(part, target)
    return target


# --- ranges ---------------------------------------------------------------------------------------


class RangeFile(io.RawIOBase):
    """A file behind a URL, of which the bytes that are read are fetched, and no others."""

    def __init__(
        self,
        url: str,
        size: int,
        fetch: Callable[[int, int], bytes],
        disconnect: Callable[[], None] = lambda: None,
    ) -> None:
        self._url, self._size, self._fetch, self._at = url, size, fetch, 0
        self._disconnect = disconnect

    def close(self) -> None:
        if not self.closed:
            self._disconnect()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        if stop <= self._at:
            return b""
        try:
            block = self._fetch(self._at, stop)
        except (OSError, ValueError) as error:
            raise SourceError(downloader.unreadable(self._url, error)) from error
        if len(block) != stop - self._at:
            raise SourceError(
                f"{redact(self._url)} gave {len(block)} bytes of {stop - self._at} asked for: "
                f"repeat the command",
                may_pass=True,
            )
        self._at = stop
        return block


class Listed(NamedTuple):
    """The entry of a file in the list of a server."""

    size: int | None
    version: str


def open_ranges(url: str, listed: Listed | None = None) -> RangeFile:
    """Open a file behind a URL to read ranges of it. A server without them is a SourceError."""
    if url.startswith(WEB):
        return RangeFile(url, *downloader.ranges_of(url))
    fs, path = _file_system(url)
    with _readable(url):
        size = fs.size(path) if listed is None else listed.size
    if size is None:
        raise SourceError(f"{redact(url)} has an unknown size")
    return RangeFile(url, size, lambda start, stop: bytes(fs.cat_file(path, start=start, end=stop)))


def list_files(url: str, suffixes: Sequence[str]) -> dict[str, Listed | None]:
    """Return the URL, or the sorted URLs of a pattern or with a suffix in a folder."""
    if url.startswith(WEB):
        return {url: None}
    fs, path = _file_system(url)
    with _readable(url):
        fs.invalidate_cache()
        if "*" in path or "[" in path:
            found = fs.glob(path, detail=True)
        elif (info := fs.info(path))["type"] != "directory":
            return {url: _listed(info)}
        else:
            found = fs.find(path, detail=True)
    home = re.split(r"[*\[]", path)[0].rpartition("/")[0] if "*" in path or "[" in path else path
    files: dict[str, Listed | None] = {
        fs.unstrip_protocol(name): _listed(info)
        for name, info in sorted(found.items())
        if info["type"] == "file" and not is_unseen(name.removeprefix(home))
    }
    if home == path:
        files = {name: about for name, about in files.items() if name.endswith(tuple(suffixes))}
    return {name: about for name, about in files.items() if about and about.size} or files


def _listed(info: dict[str, Any]) -> Listed:
    version = hashlib.blake2b(repr(sorted(info.items())).encode(), digest_size=16).hexdigest()
    return Listed(info.get("size"), version)


def is_unseen(name: str) -> bool:
    """Return whether a part of a relative name begins with _ or a dot, or is a file of Windows."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return any(part[:1] in (".", "_") or part.lower() in OF_WINDOWS for part in parts)


def identity_of(url: str, suffixes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the names of the files behind a URL and what its server says of their versions."""
    if url.startswith(WEB):
        with _readable(url):
            return [(downloader.file_name(url), downloader.version_of(url))]
    files = list_files(url, suffixes)
    home = url if len(files) > 1 or url not in files else url.rpartition("/")[0]
    return [(name.removeprefix(home), about.version) for name, about in files.items() if about]


def is_folder(url: str) -> bool:
    """Return whether a URL is a folder whose files can be listed."""
    require_no_secret(url)
    if url.startswith(WEB):
        return False
    fs, path = _file_system(url)
    with _readable(url):
        return bool(fs.isdir(path))


def folder_identity(url: str) -> list[tuple[str, str]]:
    """Return the names of all files in a folder, and what their server says of their versions."""
    fs, path = _file_system(url)
    with _readable(url):
        fs.invalidate_cache()
        return [(name.removeprefix(path), fs.ukey(name)) for name in sorted(fs.find(path))]


@contextlib.contextmanager
def _readable(url: str) -> Iterator[None]:
    """Turn what a server answers into a SourceError of one line without secrets."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:
        raise SourceError(downloader.unreadable(url, error)) from error


# --- copies ---------------------------------------------------------------------------------------


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    protocol = url.partition("://")[0]
    try:
        with _readable(url):
            fs, path = fsspec.url_to_fs(url)
            return fs, path
    except ImportError as error:
        advice = known_implementations.get(protocol, {}).get("err", f"install {error.name}")
        raise SourceError(f"{protocol}:// needs a package that is not there: {advice}") from error


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
            block = fs.cat_file(path, start=start, end=min(start + RANGE.value, size))
            if not block:
                raise OSError(f"it ended after {start} of {size} bytes")
            out.write(block)


def _discard(part: Path) -> None:
    """Delete what an interrupted fetch left."""
    if part.is_dir():
        shutil.rmtree(part)
    else:
        part.unlink(missing_ok=True)
