"""The compiled kernels of vocabularies: merge sorted ones, and look terms up in one.

A vocabulary is a list of terms in UTF-8, each followed by a newline, in the order of its bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray

NEWLINE = 10


@njit(cache=True, nogil=True)
def merge(
    lines: AnyArray,
    at: AnyArray,
    stop: AnyArray,
    df: AnyArray,
    df_at: AnyArray,
    least: float,
    most: float,
    out: AnyArray,
    out_df: AnyArray,
    last: int,
    last_df: int,
) -> tuple[int, int, int, int, int]:
    """Merge sorted vocabularies until the lines of one are used up.

    Vocabulary k continues with ``lines[at[k]:stop[k]]``, and its document frequencies with
    ``df[df_at[k]:]``. It has ended if that range of lines is empty. A term is written to `out` and
    its document frequency to `out_df` if the frequency is from `least` to `most`. The greatest term
    so far may come again. ``out[:last]`` holds it, and `last_df` its frequency.

    Returns (number of the vocabulary to read, or −1 at the end, bytes written, terms written,
    `last` and `last_df` of the term after them).
    """
    heap = np.empty(len(at), dtype=np.int64)
    keys = np.empty(len(at), dtype=np.uint64)
    top = np.int64(0)  # `sift` would be compiled again for each argument that is a constant
    size, end, terms = top, 0, 0
    for k in range(len(at)):
        if at[k] < stop[k]:
            keys[k] = line_key(lines, at[k])
            heap[size] = k
            size += 1
    for place in range(size // 2 - 1, -1, -1):
        sift(heap, size, place, keys, lines, at)
    while size:
        k = heap[0]
        begin = at[k]
        length = 0
        equal = last > 0
        while True:
            byte = lines[begin + length]
            equal = equal and out[end + length] == byte  # a newline ends both
            length += 1
            if byte == NEWLINE:
                break
        if equal:
            last_df += df[df_at[k]]
        else:
            if last and least <= last_df <= most:
                out_df[terms] = last_df
                terms += 1
                end += last
            for i in range(length):  # compiles much faster than a slice
                out[end + i] = lines[begin + i]
            last, last_df = length, df[df_at[k]]
        at[k] += length
        df_at[k] += 1
        if at[k] == stop[k]:
            return k, end, terms, last, last_df
        keys[k] = line_key(lines, at[k])
        sift(heap, size, top, keys, lines, at)
    if last and least <= last_df <= most:
        out_df[terms] = last_df
        terms += 1
        end += last
    return -1, end, terms, 0, 0


@njit(cache=True, nogil=True)
def line_key(lines: AnyArray, begin: int) -> Any:
    """Return the first eight bytes of a line as a number, padded by zeros."""
    key = np.uint64(0)
    ended = False
    for k in range(8):
        ended = ended or lines[begin + k] == NEWLINE
        key <<= np.uint64(8)
        if not ended:
            key |= np.uint64(lines[begin + k])
    return key


@njit(cache=True, nogil=True)
def sift(
    heap: AnyArray, size: Any, place: Any, keys: AnyArray, lines: AnyArray, at: AnyArray
) -> None:
    """Move the vocabulary at `place` of the heap below those with smaller next terms."""
    k = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and precedes(heap[child + 1], heap[child], keys, lines, at):
            child += 1
        if not precedes(heap[child], k, keys, lines, at):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = k


@njit(cache=True, nogil=True)
def precedes(a: int, b: int, keys: AnyArray, lines: AnyArray, at: AnyArray) -> bool:
    """Return whether the next term of vocabulary a is smaller than that of b."""
    if keys[a] != keys[b] or keys[a] & np.uint64(0xFF) == 0:  # 0: the keys hold the whole terms
        return bool(keys[a] < keys[b])
    i, j = at[a] + 8, at[b] + 8
    while lines[i] == lines[j] and lines[i] != NEWLINE:
        i += 1
        j += 1
    return bool(lines[i] < lines[j])


@njit(cache=True, nogil=True)
def match(
    own: AnyArray, at: int, term: int, lines: AnyArray, first: int, column: AnyArray
) -> tuple[int, int, int]:
    """Look up the terms of a block in some `lines` of the vocabulary, and write their columns.

    The block continues with term number `term` at byte `at` of `own`. The lines begin with column
    `first`. Returns the byte, the term and the column to continue with.
    """
    j = 0
    while j < len(lines) and at < len(own):
        i, k = at, j
        while own[i] == lines[k] and own[i] != NEWLINE:
            i += 1
            k += 1
        difference = np.int64(own[i]) - np.int64(lines[k])
        if difference == 0:
            column[term] = first
        if difference <= 0:
            while own[i] != NEWLINE:
                i += 1
            at = i + 1
            term += 1
        if difference >= 0:
            while lines[k] != NEWLINE:
                k += 1
            j = k + 1
            first += 1
    return at, term, first
