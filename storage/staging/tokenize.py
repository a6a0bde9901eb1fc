"""Count the tokens of documents exactly as scikit-learn's CountVectorizer does by default.

    lower case     that of `str.lower`, from a table of all code points
    token          a match of ``(?u)\\b\\w\\w+\\b``: a longest run of at least two word characters
    term           found by a hash, told apart by its bytes, sorted by code points

The tables are built with Python's own `str.lower` and `re`. They cannot hold the few characters
whose lower case is two characters or depends on their neighbors ("İ", "Σ"). Python lower-cases a
document with one of these first. Lower-casing twice changes nothing, so the tokens are the same.
"""

from __future__ import annotations

import re
import sys
from array import array
from functools import cache
from typing import NamedTuple

import numpy as np

from bigfs.types import AnyArray
from storage.staging import token_kernels as kernels

CHARACTERS = sys.maxunicode + 1
PAGE = 1 << 8  # code points that are lower-cased together


class Tables(NamedTuple):
    """The characters of Unicode as Python treats them."""

    folded: AnyArray  # (0x110000,): lower case of each code point, 0 if it is no word character
    special: str  # characters whose lower case is not one character, or depends on others


class Counts(NamedTuple):
    """Token counts of n documents with u distinct terms, as an n × u csr matrix."""

    lines: AnyArray  # the sorted terms in UTF-8, each followed by a newline
    indptr: AnyArray  # (n + 1,)
    indices: AnyArray  # (nnz,), sorted in each row
    counts: AnyArray  # (nnz,)
    df: AnyArray  # (u,): number of documents with each term

    def terms(self) -> list[bytes]:
        """Return the terms as a list."""
        return self.lines.tobytes().split(b"\n")[:-1]


class Documents:
    """A buffer of documents in UTF-8."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self.bounds = array("q", [0])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def add(self, text: str) -> None:
        """Append a document."""
        if not text.isascii() and any(c in text for c in tables().special):
            text = text.lower()
        self.raw += text.encode("utf-8", "surrogatepass")
        self.bounds.append(len(self.raw))

    def counted(self) -> Counts:
        """Count the tokens of the documents."""
        terms, starts, indptr, indices, counts = kernels.count(
            np.frombuffer(self.raw, dtype=np.uint8), np.array(self.bounds), tables().folded
        )
        order = sorted_terms(terms, starts)
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        lines = kernels.lines_of(terms, starts, order)
        return Counts(lines, indptr, *kernels.sort_columns(indptr, indices, counts, rank))


def sorted_terms(terms: AnyArray, starts: AnyArray) -> AnyArray:
    """Return the order that sorts the terms.

    They are sorted by their first eight bytes, and terms that share these by all bytes.
    """
    keys = kernels.sort_keys(terms, starts)
    order = np.argsort(keys)
    keys = keys[order]
    alike = np.zeros(len(keys) + 1, dtype=np.bool_)
    alike[1:-1] = keys[1:] == keys[:-1]
    tied = np.flatnonzero(alike[1:] | alike[:-1])
    raw = terms.tobytes()
    ends = starts.tolist()
    order[tied] = sorted(order[tied].tolist(), key=lambda j: raw[ends[j] : ends[j + 1]])
    return order


@cache
def tables() -> Tables:
    """Return the tables. A process builds them once."""
    lowered = np.arange(CHARACTERS, dtype=np.int32)
    special = []
    text = _text(lowered)
    for start in range(0, CHARACTERS, PAGE):
        page = text[start : start + PAGE]
        alone, after = " ".join(page).lower(), f"A{' A'.join(page)}".lower()
        if len(alone) == 2 * PAGE - 1 and after[1::3] == alone[::2]:
            lowered[start : start + PAGE] = _codes(alone[::2])
            continue
        for c in page:
            if len(c.lower()) != 1 or f"A{c}".lower() != f"a{c.lower()}":
                special.append(c)
            else:
                lowered[ord(c)] = ord(c.lower())
    word = np.zeros(CHARACTERS, dtype=np.bool_)
    for run in re.finditer(r"\w+", text):
        word[run.start() : run.end()] = True
    return Tables(np.where(word[lowered], lowered, 0).astype(np.int32), "".join(special))


def _text(codes: AnyArray) -> str:
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _codes(text: str) -> AnyArray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
