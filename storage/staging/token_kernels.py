"""The compiled kernels that find the tokens of documents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray

FREE = -1  # a slot without a token
PRIME = np.uint64(0x9E3779B97F4A7C15)
HALF = np.uint64(32)
LOW = 0xFFFFFFFF
FIRST_TERMS = 1 << 11  # room for terms at first
N_KEYS = 1 << 8  # random numbers that a hash takes
LAST_KEY = N_KEYS - 1


# --- tokens ---------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def read_tokens(raw: AnyArray, bounds: AnyArray, folded: AnyArray, keys: AnyArray) -> Any:
    """Number the tokens of documents.

    A token is a longest run of at least two word characters. Tokens are numbered in the order of
    their first appearance. The first document holds the stop words, which are left out of the
    others.

    Parameters
    ----------
    raw : ndarray of uint8
        Valid UTF-8, with document i in ``raw[bounds[i]:bounds[i + 1]]``.
    bounds : ndarray of int64
        Where the documents begin and end.
    folded : ndarray of shape (0x110000,)
        The lower case of each code point, or 0 if that is no word character.
    keys : ndarray of shape (N_KEYS,)
        Random numbers. The hash of a token is the sum of its characters times these numbers, so no
        text can be made to collide without knowing them.

    Returns
    -------
    terms, starts : ndarray
        Token j is ``terms[starts[j]:starts[j + 1]]``.
    codes : ndarray of uint64
        The hash of each token.
    tokens, ends : ndarray
        The number of each token of the documents but the first, and where each of these ends.
    n_stops : int
        Number of tokens that are stop words. They have the lowest numbers.
    """
    room = FIRST_TERMS
    slots = np.full(2 * room, FREE, dtype=np.int64)
    codes = np.empty(room, dtype=np.uint64)
    starts = np.zeros(room + 1, dtype=np.int64)
    terms = np.empty(len(raw) // 2 * 3 + 8, dtype=np.uint8)  # two bytes may become three
    # two characters and what ends them
    tokens = np.empty((len(raw) + len(bounds)) // 3 + 1, dtype=np.int32)
    ends = np.zeros(len(bounds) - 2, dtype=np.int64)
    size, n_stops, n_tokens = 0, 0, 0
    for document in range(len(bounds) - 1):
        begin, stop = bounds[document], bounds[document + 1]
        least = size + (stop - begin + 1) // 3
        if least > room:
            while room < least:
                room *= 2
            slots = placed(codes, size, 2 * room)
            codes = longer(codes, room)
            starts = longer(starts, room + 1)
        table = slots, codes, starts, terms
        place = n_stops, size, n_tokens
        size, n_tokens = read_document(raw, begin, stop, folded, keys, table, tokens, place)
        if document == 0:
            n_stops, n_tokens = size, 0
        else:
            ends[document - 1] = n_tokens
    return terms[: starts[size]], starts[: size + 1], codes[:size], tokens[:n_tokens], ends, n_stops


@njit(cache=True, nogil=True)
def read_document(
    raw: AnyArray,
    i: int,
    stop: int,
    folded: AnyArray,
    keys: AnyArray,
    table: Any,
    tokens: AnyArray,
    place: Any,
) -> tuple[int, int]:
    """Number the tokens of one document. The table must have room for all.

    `table` is (slots, codes, starts, terms). A slot holds the upper bits of a token's hash and its
    number. `place` is (number of stop words, of distinct tokens, of tokens). Returns the last two.
    """
    slots, codes, starts, terms = table
    n_stops, size, n_tokens = place
    mask = np.uint64(len(slots) - 1)
    while i < stop:
        begin = starts[size]
        end, length, code = begin, 0, np.uint64(0)
        while i < stop:  # one token
            c = np.int64(raw[i])
            if c < 0x80:
                i += 1
                c = np.int64(folded[c])
                if c == 0:
                    break
                terms[end] = c
                end += 1
            else:
                i, c = character(raw, i)
                c = np.int64(folded[c])
                if c == 0:
                    break
                end = encode(c, terms, end)
            code += np.uint64(c) * keys[length & LAST_KEY]
            length += 1
            if length & LAST_KEY == 0:
                code = mixed(code)  # the keys come again
        if length < 2:
            continue
        code = mixed(code)
        tag = upper(code)
        slot = code & mask
        token = FREE
        while slots[slot] != FREE:
            other = slots[slot] & LOW
            if slots[slot] >> 32 == tag and starts[other + 1] - starts[other] == end - begin:
                k = 0
                while k < end - begin and terms[starts[other] + k] == terms[begin + k]:
                    k += 1
                if k == end - begin:
                    token = other
                    break
            slot = (slot + np.uint64(1)) & mask
        if token == FREE:
            token = size
            slots[slot] = tag << 32 | token
            codes[token] = code
            size += 1
            starts[size] = end
        if token >= n_stops:
            tokens[n_tokens] = token
            n_tokens += 1
    return size, n_tokens


@njit(cache=True, nogil=True)
def mixed(code: Any) -> Any:
    """Return a hash whose lower bits depend on all bits. Different hashes stay different."""
    code = (code ^ code >> HALF) * PRIME
    return code ^ code >> HALF


@njit(cache=True, nogil=True)
def upper(code: Any) -> Any:
    """Return the upper 31 bits of a hash. With a term's number below them they are never FREE."""
    return np.int64(code >> np.uint64(33))


@njit(cache=True, nogil=True)
def placed(hashes: AnyArray, size: int, n_slots: int) -> AnyArray:
    """Return the slots of a larger table with the same terms."""
    slots = np.full(n_slots, FREE, dtype=np.int64)
    mask = np.uint64(n_slots - 1)
    for term in range(size):
        slot = hashes[term] & mask
        while slots[slot] != FREE:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = upper(hashes[term]) << 32 | term
    return slots


@njit(cache=True, nogil=True)
def longer(values: AnyArray, length: int) -> AnyArray:
    """Return a copy of a larger length. The new elements are not set."""
    out = np.empty(length, dtype=values.dtype)
    for i in range(len(values)):  # compiles much faster than a slice
        out[i] = values[i]
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


@njit(cache=True, nogil=True)
def encode(c: Any, out: AnyArray, end: int) -> int:
    """Write a code point in UTF-8 at `end`. Return its own end."""
    if c < 0x80:
        out[end] = c
        return end + 1
    if c < 0x800:
        out[end] = 0xC0 | c >> 6
        out[end + 1] = 0x80 | c & 0x3F
        return end + 2
    if c < 0x10000:
        out[end] = 0xE0 | c >> 12
        out[end + 1] = 0x80 | c >> 6 & 0x3F
        out[end + 2] = 0x80 | c & 0x3F
        return end + 3
    out[end] = 0xF0 | c >> 18
    out[end + 1] = 0x80 | c >> 12 & 0x3F
    out[end + 2] = 0x80 | c >> 6 & 0x3F
    out[end + 3] = 0x80 | c & 0x3F
    return end + 4


@njit(cache=True, nogil=True)
def sort_keys(terms: AnyArray, starts: AnyArray) -> AnyArray:
    """Return the first eight bytes of each term as a number. Shorter terms are padded by zeros."""
    keys = np.empty(len(starts) - 1, dtype=np.uint64)
    for j in range(len(keys)):
        key = np.uint64(0)
        for k in range(8):
            key <<= np.uint64(8)
            if starts[j] + k < starts[j + 1]:
                key |= np.uint64(terms[starts[j] + k])
        keys[j] = key
    return keys
