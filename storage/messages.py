"""Headers, footers and quotes of messages, as scikit-learn's `fetch_20newsgroups` removes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bigfs.storage.errors import SourceError

QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def without_header(text: str) -> str:
    """Return the text after the first empty line, or an empty text."""
    return text.partition("\n\n")[2]


def without_footer(text: str) -> str:
    """Return a text without its signature, which the last empty or hyphened line sets apart."""
    lines = text.strip().split("\n")
    for number in range(len(lines) - 1, 0, -1):
        if not lines[number].strip().strip("-"):
            return "\n".join(lines[:number])
    return text


def without_quotes(text: str) -> str:
    """Return the lines that neither are a quote nor announce one."""
    return "\n".join(line for line in text.split("\n") if not QUOTE.search(line))


PARTS = {"headers": without_header, "footers": without_footer, "quotes": without_quotes}


def read_parts(remove: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the parts to remove, in the order in which they are removed; commas divide a text."""
    if remove is None:
        return None
    words = [word.strip() for word in remove.split(",")] if isinstance(remove, str) else [*remove]
    if unknown := [word for word in words if word not in PARTS]:
        raise SourceError(f"remove takes {', '.join(PARTS)}; got {unknown[0]!r}")
    return tuple(part for part in PARTS if part in words) or None


def strip(text: str, remove: Sequence[str]) -> str:
    """Return a text without these parts."""
    for part in remove:
        text = PARTS[part](text)
    return text
