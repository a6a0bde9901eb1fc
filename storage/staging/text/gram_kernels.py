"""The compiled kernels that count the tokens of documents, or their n-grams.

A term is a token, or n tokens joined by spaces. Terms are written in UTF-8, each followed by a
newline. Word characters are all greater than the space, which is greater than the newline. So the
bytes of lines sort as Python sorts the terms, and n-grams sort as tuples of tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray
from storage.staging.text.token_kernels import FIRST_TERMS, longer, mixed

NEWLINE, SPACE = 10, 32
FREE = -1  # a slot without a gram, and a term without an entry


@njit(cache=True, nogil=True)
def count_tokens(
    tokens: AnyArray,
    ends: AnyArray,
    entry_of: AnyArray,
    indptr: AnyArray,
    indices: AnyArray,
    counts: AnyArray,
) -> int:
    """Count the tokens of each document, in the order of their first appearance.

    Fills all arrays after `ends`, of which `entry_of` is FREE for each distinct token. Returns the
    number of entries.
    """
    place, entries, row = 0, 0, 0
    for document in range(len(ends)):
        while place < ends[document]:
            token = tokens[place]
            place += 1
            if entry_of[token] >= row:
                counts[entry_of[token]] += 1
            else:
                entry_of[token] = entries
                indices[entries] = token
                counts[entries] = 1
                entries += 1
        row = entries
        indptr[document + 1] = entries
    return entries


@njit(cache=True, nogil=True)
def count_grams(
    tokens: AnyArray, ends: AnyArray, size: int, smallest: int, largest: int, keys: AnyArray
) -> Any:
    """Count the n-grams of `smallest` to `largest` consecutive tokens in each document.

    Gram g is the token g if g < `size`. Else it is the gram ``heads[g - size]``, followed by the
    token ``tails[g - size]``.

    Returns
    -------
    heads, tails : ndarray of int32
        The grams of two tokens or more.
    indptr, indices, counts : ndarray
        The counts, as rows of documents and columns of grams. The entries of a row are in no order.
    """
    most, begin = 0, 0
    for document in range(len(ends)):
        for n in range(smallest, largest + 1):
            most += max(ends[document] - begin - n + 1, 0)
        begin = ends[document]
    indices = np.empty(most, dtype=np.int32)
    counts = np.empty(most, dtype=np.int32)
    indptr = np.zeros(len(ends) + 1, dtype=np.int64)
    room = FIRST_TERMS
    slots = np.full(2 * room, FREE, dtype=np.int32)
    heads, tails = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    entry_of = np.full(size + room, FREE, dtype=np.int32)
    current = np.empty(largest, dtype=np.int64)  # gram of n + 1 tokens that ends here
    grams, entries, row, begin = 0, 0, 0, 0
    for document in range(len(ends)):
        stop = ends[document]
        least = grams + (stop - begin) * (largest - 1)
        if least > room:
            while room < least:
                room *= 2
            slots = placed_grams(heads[:grams], tails, 2 * room, keys)
            heads, tails = longer(heads, room), longer(tails, room)
            before = len(entry_of)
            entry_of = longer(entry_of, size + room)
            entry_of[before:] = FREE
        mask = np.uint64(len(slots) - 1)
        for place in range(begin, stop):
            token = np.int64(tokens[place])
            for n in range(min(largest, place - begin + 1), 0, -1):
                gram = token
                if n > 1:
                    head = current[n - 2]
                    slot = gram_code(head, token, keys) & mask
                    while slots[slot] != FREE and (
                        heads[slots[slot]] != head or tails[slots[slot]] != token
                    ):
                        slot = (slot + np.uint64(1)) & mask
                    if slots[slot] == FREE:
                        slots[slot], heads[grams], tails[grams] = grams, head, token
                        grams += 1
                    gram = size + np.int64(slots[slot])
                current[n - 1] = gram
                if n < smallest:
                    continue
                if entry_of[gram] >= row:
                    counts[entry_of[gram]] += 1
                else:
                    entry_of[gram] = entries
                    indices[entries] = gram
                    counts[entries] = 1
                    entries += 1
        begin, row = stop, entries
        indptr[document + 1] = entries
    return heads[:grams], tails[:grams], indptr, indices[:entries], counts[:entries]


@njit(cache=True, nogil=True)
def gram_code(head: Any, tail: Any, keys: AnyArray) -> Any:
    """Return the hash of a gram."""
    return mixed(np.uint64(head) * keys[0] + np.uint64(tail) * keys[1])


@njit(cache=True, nogil=True)
def placed_grams(heads: AnyArray, tails: AnyArray, n_slots: int, keys: AnyArray) -> AnyArray:
    """Return the slots of a larger table with the same grams."""
    slots = np.full(n_slots, FREE, dtype=np.int32)
    mask = np.uint64(n_slots - 1)
    for gram in range(len(heads)):
        slot = gram_code(heads[gram], tails[gram], keys) & mask
        while slots[slot] != FREE:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = gram
    return slots


@njit(cache=True, nogil=True)
def rank_tokens(
    grams: AnyArray, heads: AnyArray, tails: AnyArray, rank: AnyArray, largest: int
) -> AnyArray:
    """Return the tokens of some grams by their ranks, from 1. Shorter grams are padded by zeros.

    The result has shape (`largest`, number of grams). Its columns sort as the grams do.
    """
    size = len(rank)
    out = np.zeros((largest, len(grams)), dtype=np.int32)
    for i in range(len(grams)):
        n, gram = 1, np.int64(grams[i])
        while gram >= size:
            gram = np.int64(heads[gram - size])
            n += 1
        gram = np.int64(grams[i])
        for place in range(n - 1, 0, -1):
            out[place, i] = rank[tails[gram - size]] + 1
            gram = np.int64(heads[gram - size])
        out[0, i] = rank[gram] + 1
    return out


@njit(cache=True, nogil=True)
def lines_of(
    terms: AnyArray, starts: AnyArray, heads: AnyArray, tails: AnyArray, order: AnyArray
) -> AnyArray:
    """Return the grams in the given order, each followed by a newline."""
    size = len(starts) - 1
    length = 0
    for i in range(len(order)):
        gram = np.int64(order[i])
        while gram >= size:
            tail = tails[gram - size]
            length += starts[tail + 1] - starts[tail] + 1
            gram = np.int64(heads[gram - size])
        length += starts[gram + 1] - starts[gram] + 1
    out = np.empty(length, dtype=np.uint8)
    end = length
    for i in range(len(order) - 1, -1, -1):  # backward, as a gram knows its last token
        gram, last = np.int64(order[i]), NEWLINE
        while True:
            token = np.int64(tails[gram - size]) if gram >= size else gram
            end -= 1
            out[end] = last
            for k in range(starts[token + 1] - 1, starts[token] - 1, -1):
                end -= 1
                out[end] = terms[k]
            if gram < size:
                break
            gram, last = np.int64(heads[gram - size]), SPACE
    return out


@njit(cache=True, nogil=True)
def sort_columns(
    place: AnyArray,
    indices: AnyArray,
    counts: AnyArray,
    rank: AnyArray,
    df: AnyArray,
    cursor: AnyArray,
    rows: AnyArray,
    values: AnyArray,
) -> None:
    """Number the columns by `rank` and sort them in each row, in place. Fills `df`, of zeros.

    Two transpositions do both. `place` holds where each row begins. It and the last three arrays
    are overwritten.
    """
    for entry in range(len(indices)):
        df[rank[indices[entry]]] += 1
    begin = 0
    for j in range(len(df)):
        cursor[j] = begin
        begin += df[j]
    row = -1
    for entry in range(len(indices)):
        while row + 1 < len(place) and place[row + 1] <= entry:
            row += 1
        j = rank[indices[entry]]
        rows[cursor[j]], values[cursor[j]] = row, counts[entry]
        cursor[j] += 1
    entry = 0
    for j in range(len(df)):
        for _ in range(df[j]):
            row = rows[entry]
            indices[place[row]], counts[place[row]] = j, values[entry]
            place[row] += 1
            entry += 1


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


@njit(cache=True, nogil=True)
def weigh_rows(
    indptr: AnyArray,
    indices: AnyArray,
    counts: AnyArray,
    column: AnyArray,
    weight: AnyArray,
    idf: AnyArray,
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Weigh the counts of terms that have a column. Return (indptr, indices, values) of a csr.

    Term j goes to ``column[j]``, or nowhere if that is −1. A count k weighs ``weight[k]``.
    """
    starts = np.zeros(len(indptr), dtype=np.int64)
    columns = np.empty(len(indices), dtype=np.int32)
    values = np.empty(len(indices))
    entries = 0
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            j = column[indices[entry]]
            if j >= 0:
                columns[entries] = j
                values[entries] = weight[counts[entry]] * idf[j]
                entries += 1
        starts[row + 1] = entries
    return starts, columns[:entries], values[:entries]
