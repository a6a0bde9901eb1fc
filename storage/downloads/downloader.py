"""Downloads: one folder, checksums, and the copies of files behind URLs.

A download that broke off is resumed if the server can send ranges. Every file is verified. Without
a published checksum, the first download's is recorded in registry.txt and verified from then
on. Behind any other URL, each version that the server names has its own copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from platformdirs import user_cache_dir

from bigfs.settings import Setting
from bigfs.storage import atomic
from bigfs.storage.errors import SourceError, is_full, may_pass, redact
from bigfs.storage.lazy import requests
from bigfs.storage.locks import lock

REGISTRY = "registry.txt"
RECORD = re.compile(r"(?P<name>.+) (?P<checksum>[0-9a-f]{64})")
CONTENT_RANGE = re.compile(r"bytes \d+-\d+/(\d+)")
RETRIES = Setting(2)  # of a broken connection
PAUSE = 1  # seconds before each of them
TIMEOUT = 30  # seconds without a byte
PLAIN = {"Accept-Encoding": "identity"}
VERSION = ("ETag", "Last-Modified", "Content-Length")  # headers that change when a file does
FOLDER = "BIGFS_DATA"  # environment variable with the name of another folder


class File(NamedTuple):
    """One file to download. `checksum` is a SHA-256, or "md5:…"."""

    url: str
    name: str
    checksum: str | None = None
    split: str | None = None


def data_folder() -> Path:
    """Return the folder of downloads: $BIGFS_DATA, else the user's cache folder for bigfs."""
    return Path(os.environ.get(FOLDER) or user_cache_dir("bigfs"))


def download(url: str) -> Path:
    """Return the copy of this version of the file behind an http(s) URL, and make it if need be.

    Where the server cannot be reached, the latest copy is used, with a warning.
    """
    name, folder = file_name(url), data_folder() / "urls"
    try:
        version = version_of(url)
    except requests.RequestException as error:
        copies = sorted(folder.glob(f"{_hash(url)}*/{name}"), key=lambda copy: copy.stat().st_mtime)
        if not may_pass(error) or not copies:
            raise SourceError(unreadable(url, error)) from error
        warnings.warn(
            f"{unreadable(url, error)}: the copy that was fetched before is used",
            UserWarning,
            stacklevel=2,
        )
        return copies[-1]
    return get(File(url, name), copy_folder(url, version))


def copy_folder(url: str, version: object) -> Path:
    """Return the folder of the copy of one version of a file or folder."""
    return data_folder() / "urls" / f"{_hash(url)}-{_hash(repr(version))}"


def file_name(url: str) -> str:
    """Return the name of the copy of a file, which is not the name of our own files next to it."""
    name = re.sub(r"\s", "-", urlsplit(url).path.rstrip("/").rpartition("/")[2]) or "download"
    return f"download-{name.lstrip('.')}" if name == REGISTRY or name.startswith(".") else name


def version_of(url: str) -> str:
    """Return what an http(s) server says of the version of a file: its ETag, date and length."""
    with contextlib.ExitStack() as answers:
        for ask in (requests.head, requests.get):  # some servers sign or allow the second only
            answer = answers.enter_context(
                ask(url, headers=PLAIN, stream=True, timeout=TIMEOUT, allow_redirects=True)
            )
            if answer.ok:
                break
        answer.raise_for_status()
        return repr([answer.headers.get(name) for name in VERSION])


def ranges_of(url: str) -> tuple[int, Callable[[int, int], bytes], Callable[[], None]]:
    """Return the length of a file behind an http(s) URL, and functions: fetch a range, and close.

    A SourceError says that the server sends no ranges, or no mark of the version.
    """
    session = requests.Session()
    for protocol in ("http://", "https://"):
        session.mount(protocol, requests.adapters.HTTPAdapter(max_retries=RETRIES.value))

    def ask(start: int, stop: int) -> requests.Response:
        headers = PLAIN | {"Range": f"bytes={start}-{stop - 1}"}
        answer = session.get(url, headers=headers, stream=True, timeout=TIMEOUT)
        if not answer.ok:
            answer.close()
            answer.raise_for_status()
        return answer

    try:
        with ask(0, 1) as answer:
            is_partial = answer.status_code == requests.codes.partial_content
            length = CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            is_marked = bool({"ETag", "Last-Modified"} & set(answer.headers))
    except requests.RequestException as error:
        session.close()
        raise SourceError(unreadable(url, error)) from error
    if not is_partial or not length or not is_marked:
        session.close()
        raise SourceError(f"{redact(url)}: the server sends no ranges of a known version")

    def fetch(start: int, stop: int) -> bytes:
        with ask(start, stop) as answer:
            if answer.status_code != requests.codes.partial_content:
                raise OSError("the server sends ranges no more")
            return answer.content

    return int(length[1]), fetch, session.close


def unreadable(url: str, error: Exception) -> str:
    """Return the beginning of a message: what cannot be read and why, without secrets."""
    what = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
    status = getattr(getattr(error, "response", None), "status_code", None)
    why = type(error).__name__
    if status:
        why = f"the server answers {status}"
    elif not isinstance(error, requests.RequestException):  # those quote the path with the query
        why += f": {str(error).splitlines()[0] if str(error) else repr(error)}"
    return redact(f"{url} {what} ({why})")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of downloads, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic.naming_full_disk(folder), lock(folder):
        yield


def get(file: File, folder: Path) -> Path:
    """Return a file in a folder, downloaded if it is not there, and verified."""
    with lock_folder(folder):
        recorded = _read_registry(folder / REGISTRY)
        checksum = file.checksum or recorded.get(file.name)
        path = folder / file.name
        if path.exists() and checksum and not _matches(path, checksum):
            raise SourceError(
                f"{path} is not the file that {redact(file.url)} had (checksum {checksum}): "
                f"remove it and repeat the command"
            )
        if not path.exists():
            _download(file, checksum, folder)
        if checksum is None:
            recorded[file.name] = _checksum(path)
            with atomic.write(folder / REGISTRY) as part:
                part.write_text(
                    "".join(f"{name} {checksum}\n" for name, checksum in sorted(recorded.items()))
                )
    return path


def _read_registry(registry: Path) -> dict[str, str]:
    """Read the recorded checksums by the names of the files."""
    if not registry.exists():
        return {}
    lines = [RECORD.fullmatch(line) for line in registry.read_text(errors="replace").splitlines()]
    if None in lines:
        raise SourceError(
            f"{registry} is not the list of checksums that bigfs keeps: move or remove it"
        )
    return {line["name"]: line["checksum"] for line in lines if line}


def _matches(path: Path, checksum: str) -> bool:
    algorithm, _, value = checksum.rpartition(":")
    return _checksum(path, algorithm or "sha256") == value


def _checksum(path: Path, algorithm: str = "sha256") -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _download(file: File, checksum: str | None, folder: Path) -> None:
    """Download a file, and give it its name if it is the one that the checksum is of."""
    part = folder / f"{file.name}.part"
    for tries_left in range(RETRIES.value, -1, -1):
        try:
            _fetch(file.url, part)
            break
        except (requests.RequestException, OSError) as error:
            if is_full(error):
                raise
            if tries_left:
                time.sleep(PAUSE)
                continue
            host = urlsplit(file.url).hostname
            raise SourceError(
                f"{file.name} cannot be downloaded from {host} ({type(error).__name__}): repeat "
                f"the command to resume, or download {redact(file.url)} yourself and put it at "
                f"{folder / file.name}"
            ) from error
    if checksum and not _matches(part, checksum):
        part.unlink()
        if file.checksum is None:
            raise SourceError(
                f"{redact(file.url)} has changed since it was first downloaded: remove {folder} "
                f"to accept the new file"
            )
        raise SourceError(
            f"{redact(file.url)} did not send the published file (checksum {checksum} expected): "
            f"repeat the command, or report it"
        )
    atomic.sync(part)
    os.replace(part, folder / file.name)


def _fetch(url: str, part: Path) -> None:
    """Complete a part of a file, from where a broken download stopped.

    The rest of the same version only is asked for (If-Range with the server's ETag or date). It
    starts anew if the server gives neither, or can't send ranges.
    """
    version = part.with_name(f"{part.name}.version")
    headers = {}
    if part.exists() and version.exists():
        headers = {"Range": f"bytes={part.stat().st_size}-", "If-Range": version.read_text()}
    with requests.get(url, headers=headers | PLAIN, stream=True, timeout=TIMEOUT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            part.unlink()
        answer.raise_for_status()
        mark = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        is_rest = answer.status_code == requests.codes.partial_content
        # an old part is emptied before it gets the mark of a new version
        with open(part, "ab" if is_rest else "wb") as out:
            if mark and not mark.startswith("W/"):
                version.write_text(mark)
            else:
                version.unlink(missing_ok=True)
            for chunk in answer.iter_content(1 << 20):
                out.write(chunk)
    version.unlink(missing_ok=True)
