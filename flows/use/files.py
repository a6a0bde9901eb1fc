"""Files that commands write: the ending of a name, and files that only their owner can read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def with_suffix(file: str | Path, known: Sequence[str], default: str = "") -> Path:
    """Return the file to write, whose ending says what to write."""
    file = Path(file)
    if not file.suffix:
        return Path(f"{file}{default}")
    if file.suffix.lower() not in known:
        raise ValueError(
            f"{file} must end in {' or '.join(known)}, which says what is written; got "
            f"{file.suffix}"
        )
    return file
