"""Errors of sources, stores and runs. Every message is one plain line, without secrets.

`redacted` hides what a URL must not show, and `is_permanent` says which faults of a server stay.
"""

from __future__ import annotations

import contextlib
import csv
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

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

URL = re.compile(r"([a-zA-Z][\w+.-]*://)(?:[^\s/?#'\"]*@)?([^\s?#'\"]*)(\?[^\s#'\")\]]*)?")
PASSING = {408, 425, 429}  # of the answers 4xx: later the same question may be answered
BUSY = ("Timeout", "Throttl", "SlowDown", "TooManyRequests")  # in codes of object stores
NO_ACCESS = {  # of botocore.exceptions, raised before anything is asked
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "NoRegionError",
    "ParamValidationError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}


def redacted(text: str) -> str:
    """Return a text without the queries, user names and passwords of the URLs in it."""
    return URL.sub(lambda url: f"{url[1]}{url[2]}{'?…' if url[3] else ''}", text)


def is_permanent(error: BaseException) -> bool:
    """Return whether a client of a server failed in a way that asking again does not mend."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of botocore
        if any(word in str(response.get("Error", {}).get("Code")) for word in BUSY):
            return False
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(response, "status_code", getattr(error, "status", None))
    if isinstance(status, int):
        return 400 <= status < 500 and status not in PASSING
    kind = type(error)
    return kind.__module__ == "botocore.exceptions" and kind.__name__ in NO_ACCESS


class StoreError(ValueError):
    """Error of a store that cannot be made, opened or read as asked.

    See Also
    --------
    SourceError : The fault lies in the source of the store.
    Damaged : The store is not what was written.

    Examples
    --------
    >>> from bigfs import storage
    >>> try:
    ...     storage.open("nowhere.zarr")
    ... except storage.StoreError:
    ...     print("no store there")
    no store there
    """


class SourceError(StoreError):
    """Error of a source that is missing, broken, or not in the format it was taken for.

    See Also
    --------
    StoreError : The base class.

    Examples
    --------
    >>> from bigfs import storage
    >>> try:
    ...     storage.stage("nowhere.svm", "nowhere.zarr")
    ... except storage.SourceError:
    ...     print("no source there")
    no source there
    """


class Damaged(StoreError):
    """Error of a stored document, array or chunk that is missing, truncated or altered.

    The message names the document, array or chunk.

    See Also
    --------
    check : Compare a whole store with what was written.
    StoreError : The base class.

    Examples
    --------
    >>> from bigfs import storage
    >>> issubclass(storage.Damaged, storage.StoreError)
    True
    """


class RunError(ValueError):
    """Error of a run directory: none is there, it can't be written, or a newer version wrote it."""


@contextlib.contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Name the file if reading it inside the block fails."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{file} is missing: repeat the run") from error
    except DAMAGED as error:
        raise RunError(
            f"{file} is damaged ({error or type(error).__name__}): repeat the run"
        ) from error
