"""Downloads: one folder, checksums, and the copies of files behind URLs.

Pooch downloads files and verifies them. A download that broke off is resumed if the server can send
ranges. Without a published checksum, that of the first download is recorded in registry.txt and
verified from then on. Behind any other URL, each version that the server names has its own copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pooch
import requests
from filelock import FileLock

from storage import atomic
from storage.downloads.catalog import File
from storage.errors import SourceError, is_permanent, redacted

REGISTRY = "registry.txt"
RECORD = re.compile(r"(?P<name>.+) (?P<checksum>[0-9a-f]{64})")
RETRIES = 2  # of a broken connection
TIMEOUT = 30  # seconds without a byte
PLAIN = {"Accept-Encoding": "identity"}
VERSION = ("ETag", "Last-Modified", "Content-Length")  # headers that change when a file does
FOLDER = "BIGFS_DATA"  # environment variable with the name of another folder


def data_folder() -> Path:
    """Return the folder of downloads: $BIGFS_DATA, else the user's cache folder for bigfs."""
    return Path(os.environ.get(FOLDER) or pooch.os_cache("bigfs"))


def download(url: str) -> Path:
    """Return the copy of this version of the file behind an http(s) URL, and make it if need be.

    Where the server cannot be reached, the latest copy is used, with a warning.
    """
    name, folder = file_name(url), data_folder() / "urls"
    try:
        version = version_of(url)
    except requests.RequestException as error:
        copies = sorted(folder.glob(f"{_hash(url)}*/{name}"), key=lambda copy: copy.stat().st_mtime)
        if is_permanent(error) or not copies:
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
    """Return the name of the copy of a file, which is not the name of our own files beside it."""
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


def unreadable(url: str, error: Exception) -> str:
    """Return the beginning of a message: what cannot be read and why, without secrets."""
    what = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
    status = getattr(getattr(error, "response", None), "status_code", None)
    why = type(error).__name__
    if status:
        why = f"the server answers {status}"
    elif not isinstance(error, requests.RequestException):  # those quote the path with the query
        why += f": {str(error).splitlines()[0] if str(error) else repr(error)}"
    return redacted(f"{url} {what} ({why})")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of downloads, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic.require_lock_file(folder / ".lock")
    with atomic.naming_full_disk(folder), FileLock(folder / ".lock"):
        yield


def get(file: File, folder: Path) -> Path:
    """Return a file in a folder, downloaded if it is not there, and verified."""
    with locked(folder):
        recorded = _read_registry(folder / REGISTRY)
        checksum = file.checksum or recorded.get(file.name)
        path = folder / file.name
        if path.exists() and checksum and not _matches(path, checksum):
            raise SourceError(
                f"{path} is not the file that {redacted(file.url)} had (checksum {checksum}): "
                f"remove it and repeat the command"
            )
        if not path.exists():
            _download(file, checksum, folder)
        if checksum is None:
            recorded[file.name] = pooch.file_hash(str(path))
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
    return bool(pooch.file_hash(str(path), alg=algorithm or "sha256") == value)


def _download(file: File, checksum: str | None, folder: Path) -> None:
    manager = pooch.create(
        path=folder,
        base_url="",
        registry={file.name: checksum},
        urls={file.name: file.url},
        retry_if_failed=RETRIES,
    )
    try:
        with _quiet():
            manager.fetch(file.name, downloader=_resuming_downloader(folder / f"{file.name}.part"))
    except (requests.RequestException, OSError) as error:
        if atomic.is_full(error):
            raise
        host = urlsplit(file.url).hostname
        raise SourceError(
            f"{file.name} cannot be downloaded from {host} ({type(error).__name__}): repeat the "
            f"command to resume, or download {redacted(file.url)} yourself and put it at "
            f"{folder / file.name}"
        ) from error
    except ValueError as error:  # pooch raises it if the checksum differs
        if file.checksum is None:
            raise SourceError(
                f"{redacted(file.url)} has changed since it was first downloaded: remove {folder} "
                f"to accept the new file"
            ) from error
        raise SourceError(
            f"{redacted(file.url)} did not send the published file (checksum {checksum} expected): "
            f"repeat the command, or report it"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep pooch from announcing a download, and leave its logger as the user set it."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _resuming_downloader(part: Path) -> Callable[[str, Any, Any], None]:
    """Return a downloader for pooch that goes on where a broken download stopped.

    It asks for the rest of the same version only (If-Range with the server's ETag or date), and
    starts anew if the server gives neither, or can't send ranges.
    """
    version = part.with_name(f"{part.name}.version")

    def fetch(url: str, output_file: Any, manager: Any) -> None:
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
                version.write_text(mark) if mark and not mark.startswith("W/") else version.unlink(
                    missing_ok=True
                )
                for chunk in answer.iter_content(1 << 20):
                    out.write(chunk)
        atomic.sync(part)
        os.replace(part, output_file)
        version.unlink(missing_ok=True)

    return fetch
