"""Count the terms of documents exactly as scikit-learn's CountVectorizer does.

    lower case     that of `str.lower`, from a table of all code points
    token          a match of ``(?u)\\b\\w\\w+\\b``: a longest run of at least two word characters
    stop words     tokens that are left out
    term           a token, or n tokens that follow each other without the stop words
                   tokens are found by a hash and told apart by their bytes
                   terms are sorted by code points

The tables are built with Python's own `str.lower` and `re`. They cannot hold the few characters
whose lower case is two characters or depends on their neighbors ("İ", "Σ"). Python lower-cases a
document with one of these first. Lower-casing twice changes nothing, so the tokens are the same.

The hash takes random numbers, drawn once per process, so that no text can be written to collide.
The counts do not depend on them.
"""

from __future__ import annotations

import re
import secrets
import sys
from array import array
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

import numpy as np

from bigfs.types import AnyArray
from storage.staging.text import gram_kernels, token_kernels
from storage.staging.text.weighting import is_token

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

    def __init__(
        self, ngram_range: tuple[int, int] = (1, 1), stop_words: Collection[str] = ()
    ) -> None:
        self.ngram_range = ngram_range
        # the kernel reads the stop words as a document before the others
        self.raw = bytearray("\n".join(filter(is_token, stop_words)), "utf-8")
        self.bounds = array("q", [0, len(self.raw)])

    def __len__(self) -> int:
        return len(self.bounds) - 2

    def add(self, text: str) -> None:
        """Append a document."""
        if not text.isascii() and any(c in text for c in tables().special):
            text = text.lower()
        self.raw += text.encode("utf-8", "surrogatepass")
        self.bounds.append(len(self.raw))

    def counted(self) -> Counts:
        """Count the terms of the documents."""
        terms, starts, tokens, ends, n_stops = read_tokens(
            np.frombuffer(self.raw, dtype=np.uint8), np.array(self.bounds)
        )
        order = sorted_tokens(terms, starts)
        size = len(order)
        heads = tails = np.empty(0, dtype=np.int32)
        if self.ngram_range == (1, 1):
            order = order[order >= n_stops]
            indptr, indices, counts = count_tokens(tokens, ends, size)
        else:
            heads, tails, indptr, indices, counts = gram_kernels.count_grams(
                tokens, ends, size, *self.ngram_range, hash_keys()
            )
            grams = np.flatnonzero(np.bincount(indices, minlength=size + len(heads)))
            ranks = gram_kernels.rank_tokens(
                grams, heads, tails, inverse(order, size), self.ngram_range[1]
            )
            order = grams[np.lexsort(ranks[::-1])]
        lines = gram_kernels.lines_of(terms, starts, heads, tails, order)
        rank = inverse(order, size + len(heads))
        return Counts(lines, indptr, *sort_columns(indptr, indices, counts, rank, len(order)))


def read_tokens(
    raw: AnyArray, bounds: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, int]:
    """Number the tokens of documents."""
    low = np.empty(int(np.diff(bounds).max()) // 2 * 3 + 8, dtype=np.uint8)  # 2 bytes may become 3
    most = len(low) // 3 + 2  # two bytes and what ends them
    begins, stops, tails = (np.empty(most, dtype) for dtype in (np.int64, np.int64, np.uint64))
    terms = np.empty(len(raw) // 2 * 3 + 8, dtype=np.uint8)
    tokens = np.empty((len(raw) + len(bounds)) // 3 + 1, dtype=np.int32)
    ends = np.zeros(len(bounds) - 2, dtype=np.int64)
    keys, state = hash_keys(), np.zeros(4, dtype=np.int64)
    room = token_kernels.FIRST_TERMS
    slots, starts = empty_slots(room), np.zeros(room + 1, dtype=np.int64)
    work = raw, bounds, tables().folded, keys, low, begins, stops, tails
    while needed := token_kernels.read_documents(*work, slots, starts, terms, tokens, ends, state):
        while room < needed:
            room *= 2
        slots = token_kernels.placed(slots, empty_slots(room), keys)
        starts = np.concatenate([starts, np.zeros(room + 1 - len(starts), dtype=np.int64)])
    n_stops, size, n_tokens = state[1:].tolist()
    return terms[: starts[size]], starts[: size + 1], tokens[:n_tokens], ends, n_stops


def empty_slots(room: int) -> AnyArray:
    """Return an empty hash table for `room` tokens."""
    return np.zeros((2 * room, 2), dtype=np.uint64)


def inverse(order: AnyArray, size: int) -> AnyArray:
    """Return the place in `order` of each number below `size` that is in it."""
    rank = np.empty(size, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def count_tokens(tokens: AnyArray, ends: AnyArray, size: int) -> tuple[AnyArray, ...]:
    """Count the tokens of each document. Return (indptr, indices, counts)."""
    entry_of = np.full(size, gram_kernels.FREE, dtype=np.int32)
    indices, counts = np.empty((2, len(tokens)), dtype=np.int32)
    indptr = np.zeros(len(ends) + 1, dtype=np.int64)
    entries = gram_kernels.count_tokens(tokens, ends, entry_of, indptr, indices, counts)
    return indptr, indices[:entries], counts[:entries]


def sort_columns(
    indptr: AnyArray, indices: AnyArray, counts: AnyArray, rank: AnyArray, size: int
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Number the columns by `rank` and sort them in each row. Return (indices, counts, df)."""
    df, cursor = np.zeros(size, dtype=np.int32), np.empty(size, dtype=np.int64)
    rows, values = np.empty((2, len(indices)), dtype=np.int32)
    gram_kernels.sort_columns(indptr[:-1].copy(), indices, counts, rank, df, cursor, rows, values)
    return indices, counts, df


def sorted_tokens(terms: AnyArray, starts: AnyArray) -> AnyArray:
    """Return the order that sorts the tokens."""
    keys = token_kernels.sort_keys(terms, starts)
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
def hash_keys() -> AnyArray:
    """Return the random numbers of the hash. A process draws them once."""
    size = 8 * token_kernels.N_KEYS
    return np.frombuffer(secrets.token_bytes(size), dtype=np.uint64).copy()


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
