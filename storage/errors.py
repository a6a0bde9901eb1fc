"""Errors of sources and stores. Every message is one plain line."""


class StoreError(ValueError):
    """Error of a store that cannot be made, opened or read as asked.

    See Also
    --------
    SourceError : The fault lies in the source of the store.
    Damaged : The store is not what was written.

    Examples
    --------
    >>> import storage
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
    >>> import storage
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
    >>> import storage
    >>> issubclass(storage.Damaged, storage.StoreError)
    True
    """
