"""Public corpora by name: their shapes, their URLs, and their download.

Pooch downloads files to one folder (`data_folder`) and verifies them. A download that broke off is
resumed if the server can send ranges. If no checksum was published, that of the first download is
recorded in the folder's registry.txt and verified from then on. A file behind any other URL is kept
per version, by what the server says of it, and a new version is fetched.
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
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pooch
import requests
from filelock import FileLock

from storage import atomic
from storage.errors import SourceError, is_permanent, redacted

REGISTRY = "registry.txt"
RECORD = re.compile(r"(?P<name>.+) (?P<checksum>[0-9a-f]{64})")
RETRIES = 2  # of a broken connection
TIMEOUT = 30  # seconds without a byte
PLAIN = {"Accept-Encoding": "identity"}
VERSION = ("ETag", "Last-Modified", "Content-Length")  # headers that change when a file does
FOLDER = "BIGFS_DATA"  # environment variable with the name of another folder
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
SCIKIT_FEATURE = "https://jundongl.github.io/scikit-feature/files/datasets"
FIGSHARE = "https://ndownloader.figshare.com/files"  # as in scikit-learn's fetchers


class File(NamedTuple):
    """One file to download. `checksum` is in pooch's form (sha256, or "md5:…")."""

    url: str
    name: str
    checksum: str | None = None
    split: str | None = None


class Entry(NamedTuple):
    """A corpus. `shape` is (n, d) over all files. `topics` names the file of labels, if it is separate."""

    title: str
    shape: tuple[int, int]
    classes: int
    files: tuple[File, ...]
    sample_shape: tuple[int, int] | None = None
    topics: str | None = None


def _libsvm(path: str, split: str | None = None, checksum: str | None = None) -> File:
    return File(f"{LIBSVM}/{path}", path.rpartition("/")[2], checksum, split)


def _figshare(number: int, name: str, checksum: str, split: str | None = None) -> File:
    return File(f"{FIGSHARE}/{number}", name, checksum, split)


def _mat(
    title: str,
    name: str,
    n: int,
    d: int,
    classes: int,
    image: tuple[int, int] | None = None,
    checksum: str | None = None,
) -> Entry:
    return Entry(
        title,
        (n, d),
        classes,
        (File(f"{SCIKIT_FEATURE}/{name}.mat", f"{name}.mat", checksum),),
        image,
    )


RCV1 = (
    _figshare(
        5976057,
        "lyrl2004_vectors_train.dat.gz",
        "5468f656d0ba7a83afc7ad44841cf9a53048a5c083eedc005dcdb5cc768924ae",
        "train",
    ),
    _figshare(
        5976069,
        "lyrl2004_vectors_test_pt0.dat.gz",
        "ed40f7e418d10484091b059703eeb95ae3199fe042891dcec4be6696b9968374",
        "test",
    ),
    _figshare(
        5976066,
        "lyrl2004_vectors_test_pt1.dat.gz",
        "87700668ae45d45d5ca1ef6ae9bd81ab0f5ec88cc95dcef9ae7838f727a13aa6",
        "test",
    ),
    _figshare(
        5976063,
        "lyrl2004_vectors_test_pt2.dat.gz",
        "48143ac703cbe33299f7ae9f4995db49a258690f60e5debbff8995c34841c7f5",
        "test",
    ),
    _figshare(
        5976060,
        "lyrl2004_vectors_test_pt3.dat.gz",
        "dfcb0d658311481523c6e6ca0c3f5a3e1d3d12cde5d7a8ce629a9006ec7dbb39",
        "test",
    ),
    _figshare(
        5976048,
        "rcv1v2.topics.qrels.gz",
        "2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1",
    ),
)

ENTRIES: dict[str, Entry] = {
    "20newsgroups": Entry(
        "20 Newsgroups by date, as text", (18_846, 0), 20,
        (_figshare(5975967, "20news-bydate.tar.gz", "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"),),
    ),
    "news20": Entry(
        "20 Newsgroups, word counts", (19_928, 62_061), 20,
        (_libsvm("multiclass/news20.bz2", "train"), _libsvm("multiclass/news20.t.bz2", "test")),
    ),
    "news20.binary": Entry("20 Newsgroups in two classes", (19_996, 1_355_191), 2, (_libsvm("binary/news20.binary.bz2"),)),
    "rcv1.binary": Entry(
        "Reuters Corpus Volume 1 in two classes", (697_641, 47_236), 2,
        (_libsvm("binary/rcv1_train.binary.bz2", "train"), _libsvm("binary/rcv1_test.binary.bz2", "test")),
    ),
    "rcv1": Entry(
        "Reuters Corpus Volume 1, LYRL2004, 103 topics, several a document", (804_414, 47_236), 103,
        RCV1,
        topics="rcv1v2.topics.qrels.gz",
    ),
    "real-sim": Entry("real and simulated topics of Usenet, two classes", (72_309, 20_958), 2, (_libsvm("binary/real-sim.bz2"),)),
    "webspam": Entry(
        "Webb Spam Corpus, trigrams, two classes", (350_000, 16_609_143), 2, (_libsvm("binary/webspam_wc_normalized_trigram.svm.xz"),)
    ),
    "url": Entry("malicious URLs, two classes", (2_396_130, 3_231_961), 2, (_libsvm("binary/url_combined.bz2"),)),
    "gisette": Entry(
        "handwritten 4 and 9 with distractors, scaled", (7_000, 5_000), 2,
        (_libsvm("binary/gisette_scale.bz2", "train"), _libsvm("binary/gisette_scale.t.bz2", "test")),
    ),
    "usps": Entry(
        "handwritten digits, 16 × 16", (9_298, 256), 10,
        (
            _libsvm("multiclass/usps.bz2", "train", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
            _libsvm("multiclass/usps.t.bz2", "test", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
    ),
    "mnist": Entry(
        "handwritten digits, 28 × 28 without the last pixels, which are always 0", (70_000, 780), 10,
        (_libsvm("multiclass/mnist.bz2", "train"), _libsvm("multiclass/mnist.t.bz2", "test")),
    ),
    "pcmac": _mat("20 Newsgroups, PC against Mac, word counts", "PCMAC", 1_943, 3_289, 2),
    "basehock": _mat("20 Newsgroups, baseball against hockey, word counts", "BASEHOCK", 1_993, 4_862, 2),
    "relathe": _mat("20 Newsgroups, religion against atheism, word counts", "RELATHE", 1_427, 4_322, 2),
    "coil20": _mat("objects on a turntable, 32 × 32", "COIL20", 1_440, 1_024, 20, (32, 32)),
    "orl": _mat("faces, 32 × 32", "ORL", 400, 1_024, 40, (32, 32)),
    "yale": _mat("faces, 32 × 32", "Yale", 165, 1_024, 15, (32, 32)),
    "colon": _mat(
        "gene expression of colon tissue, discrete, two classes", "colon", 62, 2_000, 2,
        checksum="ffcdeba03eb67cec403fa1dc9f827c22a6e2c57786bf3e01dfe1b4b3e25e0a2f",
    ),
    "tox-171": _mat("gene expression, toxicology", "TOX_171", 171, 5_748, 4),
}  # fmt: skip


def data_folder() -> Path:
    """Return the folder of downloaded files: $BIGFS_DATA, else the user's cache folder for bigfs."""
    return Path(os.environ.get(FOLDER) or pooch.os_cache("bigfs"))


def fetch(name: str) -> list[Path]:
    """Return the files of a corpus in the order of its entry, and download those that are missing.

    Raises
    ------
    SourceError
        The name is unknown, a file cannot be downloaded (the message says where to put it), or a
        file is not the one that was published or recorded.
    """
    if name not in ENTRIES:
        raise SourceError(f"unknown corpus {name!r}; the corpora are {', '.join(ENTRIES)}")
    return [_get(file, data_folder() / name) for file in ENTRIES[name].files]


def download(url: str) -> Path:
    """Return the copy of this version of the file behind an http(s) URL, and make it if need be.

    Where the server cannot be reached, the latest copy is used, with a warning.

    Raises
    ------
    SourceError
        The server refuses, or it cannot be reached and there is no copy.
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
    return _get(File(url, name), copy_folder(url, version))


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


def _get(file: File, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    atomic.require_lock_file(folder / ".lock")
    with atomic.naming_full_disk(folder), FileLock(folder / ".lock"):
        recorded = _read_registry(folder / REGISTRY)
        checksum = file.checksum or recorded.get(file.name)
        path = folder / file.name
        if path.exists() and checksum and not _matches(path, checksum):
            raise SourceError(
                f"{path} is not the file that {redacted(file.url)} had (checksum {checksum}): remove it and repeat the command"
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
            f"{file.name} cannot be downloaded from {host} ({type(error).__name__}): repeat the command to resume, "
            f"or download {redacted(file.url)} yourself and put it at {folder / file.name}"
        ) from error
    except ValueError as error:  # pooch raises it if the checksum differs
        raise SourceError(
            f"{redacted(file.url)} did not send the published file (checksum {checksum} expected): repeat the command, or report it"
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

    It asks for the rest of the same version only (If-Range with the server's ETag or date). It starts
    anew if the server gives neither, or can't send ranges.
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
