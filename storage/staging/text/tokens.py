"""Find the tokens of documents, as scikit-learn's CountVectorizer does by our pattern.

A token is a longest run of at least two word characters of the document in lower case, by tables of
Python's own `str.lower` and `re`, with the marks of `bigfs.storage.words`. A document is folded,
with a zero byte for each character that is no word character. Its tokens are found by a loop
without branches, looked up in a hash table and told apart by their bytes. The hash takes random
numbers, so that no text is written to collide.
"""

from __future__ import annotations

import re
import secrets
import sys
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.lib.stride_tricks import sliding_window_view

from bigfs.storage.words import marks
from bigfs.types import AnyArray

CHARACTERS = sys.maxunicode + 1
PRIME = np.uint64(0x9E3779B97F4A7C15)
ZERO, ONE, EIGHT, HALF = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(32)
LOW = np.uint64(0xFFFFFFFF)
LONG = np.uint64(1 << 63)  # marks a token that its mark does not hold whole
SHORT = 7  # bytes of a token that a mark holds
FIRST_TERMS = 1 << 11  # terms that a table has room for at first
N_KEYS = 1 << 8  # random numbers that a hash takes
LAST_KEY = N_KEYS - 1


class Tables(NamedTuple):
    """The characters of Unicode as Python treats them."""

    # (0x110000,): lower case of each code point in UTF-8, 0 if it is no word character
    folded: AnyArray
    # Characters whose lower case is two characters or depends on their neighbors. Python
    # lower-cases a document with one of these first; doing so twice changes nothing.
    special: str


def read_tokens(
    raw: AnyArray, bounds: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, int]:
    """Return the tokens of the documents ``raw[bounds[i]:bounds[i + 1]]``, in valid UTF-8.

    The first document holds the stop words, which are left out of the others and have the first
    `n_stops` numbers. Token j is ``terms[starts[j]:starts[j + 1]]``. `tokens` are the numbers of
    all tokens, and `ends` says where each document ends in them.
    """
    low = np.empty(int(np.diff(bounds).max()) // 2 * 3 + 8, dtype=np.uint8)  # 2 bytes may become 3
    most = len(low) // 3 + 2  # two bytes and what ends them
    begins, stops, tails = (np.empty(most, dtype) for dtype in (np.int64, np.int64, np.uint64))
    terms = np.empty(len(raw) // 2 * 3 + 8, dtype=np.uint8)
    tokens = np.empty((len(raw) + len(bounds)) // 3 + 1, dtype=np.int32)
    ends = np.zeros(len(bounds) - 2, dtype=np.int64)
    keys, state = hash_keys(), np.zeros(4, dtype=np.int64)
    room = FIRST_TERMS
    slots = np.zeros((2 * room, 2), dtype=np.uint64)
    starts = np.zeros(room + 1, dtype=np.int64)
    work = raw, bounds, tables().folded, keys, low, begins, stops, tails
    while needed := read_documents(*work, slots, starts, terms, tokens, ends, state):
        while room < needed:
            room *= 2
        slots = place(slots, np.zeros((2 * room, 2), dtype=np.uint64), keys)
        starts = np.concatenate([starts, np.zeros(room + 1 - len(starts), dtype=np.int64)])
    n_stops, size, n_tokens = state[1:].tolist()
    return terms[: starts[size]], starts[: size + 1], tokens[:n_tokens], ends, n_stops


def sorted_tokens(terms: AnyArray, starts: AnyArray) -> AnyArray:
    """Return the order that sorts tokens: by their first eight bytes, and if alike by all bytes."""
    first = sliding_window_view(np.append(terms, np.zeros(8, np.uint8)), 8)[starts[:-1]]
    padding = (64 - 8 * np.minimum(np.diff(starts), 8)).astype(np.uint64)
    keys = first.view(">u8").ravel().astype(np.uint64) >> padding << padding
    order = np.argsort(keys)
    keys = keys[order]
    alike = np.zeros(len(keys) + 1, dtype=np.bool_)
    alike[1:-1] = keys[1:] == keys[:-1]
    tied = np.flatnonzero(alike[1:] | alike[:-1])
    raw, ends = terms.tobytes(), starts.tolist()
    order[tied] = sorted(order[tied].tolist(), key=lambda j: raw[ends[j] : ends[j + 1]])
    return order


@cache
def hash_keys() -> AnyArray:
    """Return the random numbers of the hash. A process draws them once."""
    return np.frombuffer(secrets.token_bytes(8 * N_KEYS), dtype=np.uint64).copy()


@cache
def tables() -> Tables:
    """Return the tables. A process builds them once."""
    lowered = np.arange(CHARACTERS, dtype=np.int32)
    text = lowered.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    special = []
    for c in text:
        if (lower := c.lower()) != c:
            if len(lower) != 1 or f"A{c}".lower() != f"a{lower}":
                special.append(c)
            else:
                lowered[ord(c)] = ord(lower)
    word = np.zeros(CHARACTERS, dtype=np.bool_)
    for run in re.finditer(r"\w+", text):
        word[run.start() : run.end()] = True
    word[marks()] = True
    folded = np.where(word[lowered], lowered, 0).astype(np.uint32)
    long = np.flatnonzero(folded >= 0x80)
    folded[long] = in_utf8(folded[long])
    return Tables(folded, "".join(special))


def in_utf8(c: AnyArray) -> AnyArray:
    """Return code points from 0x80 on in UTF-8, each as a number whose lowest byte comes first."""
    first, second, third, fourth = c >> 18, c >> 12 & 0x3F, c >> 6 & 0x3F, c & 0x3F
    return np.select(
        [c < 0x800, c < 0x10000],
        [0x80C0 | third | fourth << 8, 0x8080E0 | second | third << 8 | fourth << 16],
        0x808080F0 | first | second << 8 | third << 16 | fourth << 24,
    )


# --- kernels --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def read_documents(
    raw: AnyArray,
    bounds: AnyArray,
    folded: AnyArray,
    keys: AnyArray,
    low: AnyArray,
    begins: AnyArray,
    stops: AnyArray,
    tails: AnyArray,
    slots: AnyArray,
    starts: AnyArray,
    terms: AnyArray,
    tokens: AnyArray,
    ends: AnyArray,
    state: AnyArray,
) -> Any:
    """Number the tokens of documents, up to one that may have more terms than the table has room.

    `state` is (the document to read next, number of stop words, of distinct tokens, of tokens).
    Returns the space that the table needs to continue, or 0 at the end.
    """
    for document in range(state[0], len(bounds) - 1):
        length = fold(raw, bounds[document], bounds[document + 1], folded, low)
        found = find_tokens(low, length, begins, stops, tails)
        if state[2] + found >= len(starts):
            return state[2] + found
        texts, place = (low, begins, stops, tails, found), (state[1], state[2], state[3])
        state[2], state[3] = number_tokens(texts, keys, (slots, starts, terms), tokens, place)
        if document == 0:
            state[1], state[3] = state[2], 0
        else:
            ends[document - 1] = state[3]
        state[0] = document + 1
    return 0


@njit(cache=True, nogil=True)
def fold(raw: AnyArray, i: int, stop: int, folded: AnyArray, low: AnyArray) -> Any:
    """Write ``raw[i:stop]`` in lower case to `low`, zeros between words. Return its length."""
    end = 0
    while i < stop:
        c = np.int64(raw[i])
        if c < 0x80:
            low[end] = folded[c]
            i += 1
            end += 1
        else:
            i, c = character(raw, i)
            letter = folded[c]
            while True:
                low[end] = letter & np.uint32(0xFF)
                end += 1
                letter >>= np.uint32(8)
                if letter == 0:
                    break
    low[end] = 0
    return end + 1


@njit(cache=True, nogil=True)
def find_tokens(
    low: AnyArray, length: int, begins: AnyArray, ends: AnyArray, tails: AnyArray
) -> int:
    """Find where the words of two bytes or more begin and end, and the 8 bytes up to each end."""
    found, begin, tail = 0, 0, ZERO
    for i in range(length):
        c = low[i]
        begins[found], ends[found], tails[found] = begin, i, tail
        found += (c == 0) & (i - begin >= 2)
        begin = i + 1 if c == 0 else begin
        tail = tail << EIGHT | np.uint64(c)
    return found


@njit(cache=True, nogil=True)
def number_tokens(
    texts: Any, keys: AnyArray, table: Any, tokens: AnyArray, place: Any
) -> tuple[int, int]:
    """Number the words that `find_tokens` found. The table must have room for all.

    `table` is (slots, starts, terms). A slot holds a token's mark, or 0, and its number. The mark
    of a token of up to SHORT bytes is the token itself. That of another is its hash, and tokens
    with the same mark are told apart by their bytes. `place` is (number of stop words, of distinct
    tokens, of tokens). Returns the last two.
    """
    low, begins, ends, tails, found = texts
    slots, starts, terms = table
    n_stops, size, n_tokens = place
    mask = np.uint64(len(slots) - 1)
    for word in range(found):
        begin, end = begins[word], ends[word]
        length = end - begin
        if low[begin] >= 0x80 and character(low, begin)[0] == end:
            continue  # one character
        if length <= SHORT:
            mark = tails[word] & (ONE << np.uint64(8 * length)) - ONE
            slot = home_of(mark, keys) & mask
            while slots[slot, 0] != mark and slots[slot, 0] != ZERO:
                slot = (slot + ONE) & mask
        else:
            mark = LONG | hash_bytes(low, begin, end, keys)
            slot = mark & mask
            while slots[slot, 0] != ZERO:
                if slots[slot, 0] == mark:
                    first = starts[np.int64(slots[slot, 1])]
                    k = 0
                    if starts[np.int64(slots[slot, 1]) + 1] - first == length:
                        while k < length and terms[first + k] == low[begin + k]:
                            k += 1
                    if k == length:
                        break
                slot = (slot + ONE) & mask
        if slots[slot, 0] == ZERO:
            slots[slot, 0], slots[slot, 1] = mark, np.uint64(size)
            first = starts[size]
            for k in range(length):
                terms[first + k] = low[begin + k]
            size += 1
            starts[size] = first + length
        token = np.int64(slots[slot, 1])
        if token >= n_stops:
            tokens[n_tokens] = token
            n_tokens += 1
    return size, n_tokens


@njit(cache=True, nogil=True)
def home_of(mark: Any, keys: AnyArray) -> Any:
    """Return the hash of the token with a mark, whose lower bits are the slot to begin at."""
    if mark & LONG:
        return mark
    return mix((mark >> HALF) * keys[0] + (mark & LOW) * keys[1])


@njit(cache=True, nogil=True)
def hash_bytes(low: AnyArray, begin: int, end: int, keys: AnyArray) -> Any:
    """Return the hash of a token of any length."""
    code = ZERO
    for k in range(end - begin):
        code += np.uint64(low[begin + k]) * keys[k & LAST_KEY]
        if k & LAST_KEY == LAST_KEY:
            code = mix(code)  # the keys come again
    return mix(code)


@njit(cache=True, nogil=True)
def mix(code: Any) -> Any:
    """Return a hash whose lower bits depend on all bits. Different hashes stay different."""
    code = (code ^ code >> HALF) * PRIME
    return code ^ code >> HALF


@njit(cache=True, nogil=True)
def place(slots: AnyArray, out: AnyArray, keys: AnyArray) -> AnyArray:
    """Put the tokens of a table into an empty larger one, and return that."""
    mask = np.uint64(len(out) - 1)
    for i in range(len(slots)):
        if slots[i, 0] != ZERO:
            slot = home_of(slots[i, 0], keys) & mask
            while out[slot, 0] != ZERO:
                slot = (slot + ONE) & mask
            out[slot, 0], out[slot, 1] = slots[i, 0], slots[i, 1]
    return out


@njit(cache=True, nogil=True)
def character(raw: AnyArray, i: int) -> Any:
    """Return where the multi-byte character at `i` ends, and its code point."""
    byte = np.int64(raw[i])
    second = np.int64(raw[i + 1]) & 0x3F
    if byte < 0xE0:
        return i + 2, (byte & 0x1F) << 6 | second
    third = np.int64(raw[i + 2]) & 0x3F
    if byte < 0xF0:
        return i + 3, (byte & 0x0F) << 12 | second << 6 | third
    fourth = np.int64(raw[i + 3]) & 0x3F
    return i + 4, (byte & 0x07) << 18 | second << 12 | third << 6 | fourth
