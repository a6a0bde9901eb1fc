"""Errors of sources, stores and runs. Every message is one plain line, without secrets.

`redact` hides what a URL must not show, and `may_pass` says which errors a retry may mend.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import re
import tokenize
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
    tokenize.TokenError,  # of the header of an array
)

URL = re.compile(r"([a-zA-Z][\w+.-]*://)(?:[^\s/?#'\"]*@)?([^\s?#'\"]*)(\?[^\s#'\")\]]*)?")
PASSING = {408, 425, 429}  # of the answers 4xx: later the same question may be answered
BUSY = ("Timeout", "Throttl", "SlowDown", "TooManyRequests")  # in codes of object stores
# errors of the system that a retry may mend: of the network, of network disks, of a busy machine
PASSING_ERRORS = {
    *(errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EPIPE),
    *(errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED),
    *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET),
}
PASSING_KINDS = {  # of the errors of clients of servers, and of the system without a number
    *("TimeoutError", "ConnectionError", "FSTimeoutError"),
    *("Timeout", "ChunkedEncodingError", "ProtocolError", "IncompleteRead"),
    *("ClientConnectionError", "ClientPayloadError", "ServerDisconnectedError"),
    *("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError"),
    *("ConnectionClosedError", "IncompleteReadError", "ResponseStreamingError"),
}
LATE = {"TaskRunTimeoutError", "TimeLimitError"}  # limits of time that the user set
FULL = (errno.ENOSPC, errno.EDQUOT)
LIMITS = {errno.EFBIG: "ulimit -f", errno.EMFILE: "ulimit -n"}  # of a process, as a shell sets them


def redact(text: str) -> str:
    """Return a text without the queries, user names and passwords of the URLs in it."""
    return URL.sub(lambda url: f"{url[1]}{url[2]}{'?…' if url[3] else ''}", text)


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may mend an error. What may is a list, and an error may say it itself.

    An answer of a server decides by its status. An error that was raised from another one passes if
    that one does.
    """
    if getattr(error, "may_pass", False):
        return True
    if (answer := _answer_of(error)) is not None:
        status, code = answer
        return status >= 500 or status in PASSING or any(word in code for word in BUSY)
    cause = error.__cause__
    if isinstance(error, StoreError | RunError):
        return cause is not None and may_pass(cause)
    if isinstance(error, OSError) and error.errno is not None:
        if cause is not None and _answer_of(cause) is not None:
            return may_pass(cause)  # a client of an object store raised it from the answer
        return error.errno in PASSING_ERRORS
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool(kinds & PASSING_KINDS) and not kinds & LATE


def _answer_of(error: BaseException) -> tuple[int, str] | None:
    """Return the status and the code of the answer of a server that an error is about."""
    response = getattr(error, "response", None)
    code = ""
    if isinstance(response, Mapping):  # of botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = str(response.get("Error", {}).get("Code"))
    else:
        status = getattr(response, "status_code", getattr(error, "status", None))
    return (status, code) if isinstance(status, int) else None


def is_full(error: BaseException) -> bool:
    """Return whether an error means that a disk, or the user's share of it, is full."""
    return isinstance(error, OSError) and error.errno in FULL


class StoreError(ValueError):
    """Error of a store that cannot be made, opened or read as asked.

    See Also
    --------
    SourceError : The fault lies in the source of the store.
    CorruptStoreError : The store is not what was written.

    Examples
    --------
    >>> from bigfs import storage
    >>> try:
    ...     storage.open("nowhere.zarr")
    ... except storage.StoreError:
    ...     print("no store there")
    no store there
    """

    def __init__(self, message: str = "", *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


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


class CorruptStoreError(StoreError):
    """Error of a stored document, array or chunk that is missing, truncated or altered.

    The message names the document, array or chunk.

    See Also
    --------
    check : Compare a whole store with what was written.
    StoreError : The base class.

    Examples
    --------
    >>> from bigfs import storage
    >>> issubclass(storage.CorruptStoreError, storage.StoreError)
    True
    """


class BusyError(StoreError):
    """Error of a name that another process works on."""


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
