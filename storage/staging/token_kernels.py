"""The compiled kernels of text: count the tokens of documents, and merge sorted vocabularies.

A vocabulary is a list of terms in UTF-8, each followed by a newline. Terms hold only word
characters, which are all greater than the newline. So the bytes sort as Python sorts the terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray

NEWLINE = 10
FREE = -1  # a slot without a term
PRIME = np.uint64(0x9E3779B97F4A7C15)
SEED = np.uint64(0xCBF29CE484222325)
HALF = np.uint64(32)
LOW = 0xFFFFFFFF
FIRST_TERMS = 1 << 11  # room for terms at first


@njit(cache=True, nogil=True)
def count(raw: AnyArray, bounds: AnyArray, folded: AnyArray) -> Any:
    """Count the tokens of each document. Return (terms, starts, indptr, indices, counts).

    `raw` holds valid UTF-8, with document i in ``raw[bounds[i]:bounds[i + 1]]``. `folded` maps each
    code point to its lower case, or to 0 if that is no word character. A token is a longest run of
    at least two word characters. Term j is ``terms[starts[j]:starts[j + 1]]``. Terms, and the
    entries of a row, are in the order of their first appearance.
    """
    documents = len(bounds) - 1
    room = FIRST_TERMS
    slots = np.full(2 * room, FREE, dtype=np.int64)
    hashes = np.empty(room, dtype=np.uint64)
    starts = np.zeros(room + 1, dtype=np.int64)
    entry_of = np.empty(room, dtype=np.int64)
    terms = np.empty(len(raw) // 2 * 3 + 8, dtype=np.uint8)  # two bytes may become three
    most = (len(raw) + documents) // 3 + 1  # two characters and what ends them
    indices = np.empty(most, dtype=np.int32)
    counts = np.empty(most, dtype=np.int32)
    indptr = np.zeros(documents + 1, dtype=np.int64)
    place = (0, 0, 0, 0, 0)
    while True:
        table = slots, hashes, starts, entry_of, terms
        place = fill(raw, bounds, folded, table, (indptr, indices, counts), place)
        document, _, _, entries, size = place
        if document == documents:
            break
        room *= 2
        slots = placed(hashes, size, 2 * room)
        hashes = longer(hashes, room)
        starts = longer(starts, room + 1)
        entry_of = longer(entry_of, room)
    return terms[: starts[size]], starts[: size + 1], indptr, indices[:entries], counts[:entries]


@njit(cache=True, nogil=True)
def fill(
    raw: AnyArray, bounds: AnyArray, folded: AnyArray, table: Any, matrix: Any, place: Any
) -> Any:
    """Count tokens from `place` on until the table is full. Return the place where it stopped.

    `table` is (slots, hashes, starts, entry_of, terms). A slot holds the upper bits of a term's
    hash and its number, and `entry_of` the last entry of each term. `place` is (document, byte,
    first entry of the document, number of entries, number of terms).
    """
    slots, hashes, starts, entry_of, terms = table
    indptr, indices, counts = matrix
    document, i, row, entries, size = place
    room = len(hashes)
    mask = np.uint64(len(slots) - 1)
    while document < len(bounds) - 1:
        stop = bounds[document + 1]
        while i < stop:
            if size == room:
                return document, i, row, entries, size
            begin = starts[size]
            end, length, code = begin, 0, SEED
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
                length += 1
                code = (code ^ np.uint64(c)) * PRIME
            if length < 2:
                continue
            code ^= code >> HALF
            tag = upper(code)
            slot = code & mask
            term = FREE
            while slots[slot] != FREE:
                other = slots[slot] & LOW
                if slots[slot] >> 32 == tag and starts[other + 1] - starts[other] == end - begin:
                    k = 0
                    while k < end - begin and terms[starts[other] + k] == terms[begin + k]:
                        k += 1
                    if k == end - begin:
                        term = other
                        break
                slot = (slot + np.uint64(1)) & mask
            if term == FREE:
                term = size
                slots[slot] = tag << 32 | term
                hashes[term] = code
                entry_of[term] = FREE
                size += 1
                starts[size] = end
            if entry_of[term] >= row:
                counts[entry_of[term]] += 1
            else:
                entry_of[term] = entries
                indices[entries] = term
                counts[entries] = 1
                entries += 1
        document += 1
        indptr[document] = entries
        row = entries
    return document, i, row, entries, size


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
def upper(code: Any) -> Any:
    """Return the upper 31 bits of a hash. With a term's number below them they are never FREE."""
    return np.int64(code >> np.uint64(33))


@njit(cache=True, nogil=True)
def longer(values: AnyArray, length: int) -> AnyArray:
    """Return a copy of a larger length. The new elements are not set."""
    out = np.empty(length, dtype=values.dtype)
    out[: len(values)] = values
    return out


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


@njit(cache=True, nogil=True)
def lines_of(terms: AnyArray, starts: AnyArray, order: AnyArray) -> AnyArray:
    """Return the terms in the given order, each followed by a newline."""
    out = np.empty(len(terms) + len(order), dtype=np.uint8)
    end = 0
    for j in order:
        for k in range(starts[j], starts[j + 1]):
            out[end] = terms[k]
            end += 1
        out[end] = NEWLINE
        end += 1
    return out


@njit(cache=True, nogil=True)
def sort_columns(
    indptr: AnyArray, indices: AnyArray, counts: AnyArray, rank: AnyArray
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Number the columns by `rank` and sort them in each row. Return (indices, counts, df).

    Two transpositions do both.
    """
    df = np.zeros(len(rank), dtype=np.int32)
    for j in indices:
        df[rank[j]] += 1
    cursor = np.zeros(len(rank), dtype=np.int64)
    for j in range(1, len(rank)):
        cursor[j] = cursor[j - 1] + df[j - 1]
    rows, values = np.empty(len(indices), dtype=np.int32), np.empty(len(indices), dtype=np.int32)
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            j = rank[indices[entry]]
            rows[cursor[j]], values[cursor[j]] = row, counts[entry]
            cursor[j] += 1
    place = indptr[:-1].copy()
    entry = 0
    for j in range(len(df)):
        for _ in range(df[j]):
            row = rows[entry]
            indices[place[row]], counts[place[row]] = j, values[entry]
            place[row] += 1
            entry += 1
    return indices, counts, df


@njit(cache=True, nogil=True)
def unit_rows(indptr: AnyArray, values: AnyArray) -> None:
    """Divide the values of each row by its norm, with the same bits as scikit-learn's `normalize`.

    A row of zeros stays.
    """
    for row in range(len(indptr) - 1):
        square = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            square += values[entry] * values[entry]
        if square > 0:
            norm = np.sqrt(square)
            for entry in range(indptr[row], indptr[row + 1]):
                values[entry] /= norm


# --- vocabularies ---------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def merge(
    lines: AnyArray,
    at: AnyArray,
    stop: AnyArray,
    df: AnyArray,
    df_at: AnyArray,
    least: float,
    out: AnyArray,
    out_df: AnyArray,
    last: int,
    last_df: int,
) -> tuple[int, int, int, int, int]:
    """Merge sorted vocabularies until the lines of one are used up.

    Vocabulary k continues with ``lines[at[k]:stop[k]]``, and its document frequencies with
    ``df[df_at[k]:]``. It has ended if that range of lines is empty. A term is written to `out` and
    its document frequency to `out_df` if the frequency is at least `least`. The greatest term so
    far may come again. ``out[:last]`` holds it, and `last_df` its frequency.

    Returns (number of the vocabulary to read, or −1 at the end, bytes written, terms written,
    `last` and `last_df` of the term after them).
    """
    heap = np.empty(len(at), dtype=np.int64)
    keys = np.zeros(len(at), dtype=np.uint64)
    size, end, terms = 0, 0, 0
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
            if last and last_df >= least:
                out_df[terms] = last_df
                terms += 1
                end += last
            out[end : end + length] = lines[begin : begin + length]
            last, last_df = length, df[df_at[k]]
        at[k] += length
        df_at[k] += 1
        if at[k] == stop[k]:
            return k, end, terms, last, last_df
        keys[k] = line_key(lines, at[k])
        sift(heap, size, 0, keys, lines, at)
    if last and last_df >= least:
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
    heap: AnyArray, size: int, place: int, keys: AnyArray, lines: AnyArray, at: AnyArray
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
