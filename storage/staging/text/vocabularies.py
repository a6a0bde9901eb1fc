"""Merge sorted vocabularies, and look terms up in them.

A vocabulary is a file of terms in UTF-8, each followed by a newline, in the order of its bytes. It
is read a few whole lines at a time, so none is held in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray, IntArray
from storage.staging.scratch import open_array

NEWLINE = 10
CHUNK = 1 << 15  # bytes read of each vocabulary at a time to merge
LONG_CHUNK = 1 << 20  # bytes read of a vocabulary at a time to look terms up
KEY = 8  # bytes that a key reads, maybe beyond the last newline


def merge_files(
    parts: Sequence[tuple[str, bool]], terms: Path, least: float, most: float = np.inf
) -> IntArray:
    """Write the sorted terms of some vocabularies that occur in `least` to `most` documents."""
    found = terms.with_suffix(".found")
    with contextlib.ExitStack() as stack, open(terms, "wb") as out, open(found, "wb") as df:
        files = [stack.enter_context(open(f"{path}.terms", "rb")) for path, _ in parts]
        streams = Streams(files, [(open_array(path, "df"), counts) for path, counts in parts])
        need, last, last_df = 0, 0, 0
        while need >= 0:
            need, end, size, last, last_df = merge(
                *(streams.lines, streams.at, streams.stop, streams.df, streams.df_at),
                *(float(least), float(most), streams.out, streams.out_df, last, last_df),  # type: ignore[arg-type]  # mypy takes one type for all of a tuple
            )
            out.write(streams.out[:end].data)
            df.write(streams.out_df[:size].data)
            streams.out[:last] = streams.out[end : end + last].copy()  # it may come again
            if need >= 0:
                streams.read(need)
    if not found.stat().st_size:
        return np.empty(0, dtype=np.int64)
    return np.memmap(found, dtype=np.int64, mode="r")


class Streams:
    """The next lines of some vocabularies, with their document frequencies."""

    def __init__(self, files: Sequence[IO[bytes]], df: Sequence[tuple[AnyArray, bool]]) -> None:
        self.files, self.all_df = files, df
        self.terms_read = [0] * len(files)
        self.lines = self.out = np.zeros(0, dtype=np.uint8)
        self.df = self.out_df = np.zeros(0, dtype=np.int64)
        self.starts, self.df_starts, self.room = np.zeros((3, len(files)), dtype=np.int64)
        self.at, self.stop, self.df_at = np.zeros((3, len(files)), dtype=np.int64)
        self._give_room(np.arange(len(files)), CHUNK + (CHUNK >> 3))
        for k in range(len(files)):
            self.read(k)

    def _give_room(self, which: AnyArray, size: int) -> None:
        """Give some vocabularies `size` bytes each, after all others."""
        terms = size // 3 + 1  # two characters and a newline
        place = np.arange(len(which))
        self.starts[which] = len(self.lines) + size * place
        self.df_starts[which] = len(self.df) + terms * place
        self.room[which] = size
        self.lines = np.concatenate([self.lines, np.zeros(size * len(which), dtype=np.uint8)])
        self.df = np.concatenate([self.df, np.zeros(terms * len(which), dtype=np.int64)])
        before = self.out
        self.out = np.zeros(2 * len(self.lines), dtype=np.uint8)  # all lines, and the last term
        self.out[: len(before)] = before
        self.out_df = np.zeros(len(self.df) + 1, dtype=np.int64)

    def read(self, k: int) -> None:
        """Read the next lines of vocabulary k."""
        lines = whole_lines(self.files[k], CHUNK)
        if len(lines) + KEY > self.room[k]:
            self._give_room(np.array([k]), len(lines) + KEY)
        begin, df_begin = self.starts[k], self.df_starts[k]
        self.lines[begin : begin + len(lines)] = np.frombuffer(lines, dtype=np.uint8)
        df, counts = self.all_df[k]
        first, size = self.terms_read[k], lines.count(b"\n")
        self.df[df_begin : df_begin + size] = df[first : first + size] * counts
        self.at[k], self.stop[k], self.df_at[k] = begin, begin + len(lines), df_begin
        self.terms_read[k] += size


def find_columns(lines: AnyArray, size: int, vocabulary: str) -> IntArray:
    """Look up sorted terms in a vocabulary."""
    found = np.full(size, -1, dtype=np.int64)
    at, term, first = 0, 0, 0
    with open(vocabulary, "rb") as file:
        while at < len(lines) and (some := whole_lines(file, LONG_CHUNK)):
            at, term, first = match(
                lines, at, term, np.frombuffer(some, dtype=np.uint8), first, found
            )
    return found


def whole_lines(file: IO[bytes], size: int) -> bytes:
    """Read about `size` bytes, to the end of a line. Empty at the end of the file."""
    lines = file.read(size)
    return lines + file.readline() if lines else lines


# --- kernels --------------------------------------------------------------------------------------


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

    Vocabulary k continues with ``lines[at[k]:stop[k]]`` and ``df[df_at[k]:]``. It has ended if that
    is empty. A term is written to `out` and its document frequency to `out_df` if that is from
    `least` to `most`. The greatest term so far may come again: it is ``out[:last]``, with `last_df`
    documents. Returns (the vocabulary to read, or −1 at the end, bytes written, terms written,
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

    The block goes on with term number `term` at byte `at` of `own`, and the lines begin with column
    `first`. Returns the three to continue with.
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
