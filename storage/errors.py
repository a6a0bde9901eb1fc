"""What can go wrong between a source and a store; every message is one plain line."""


class StoreError(ValueError):
    """A store can't be made, opened or read as asked."""


class SourceError(StoreError):
    """A source is missing, broken, or not in the format it was taken for."""


class Damaged(StoreError):
    """A stored document, array or chunk is missing, truncated or altered; names which one."""
