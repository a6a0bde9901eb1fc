"""Merge sorted vocabularies, and look terms up in them.

A vocabulary is a file of terms in UTF-8, each followed by a newline, in the order of its bytes. It
is read a few whole lines at a time, so none is held in memory.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numba import njit

from bigfs import engine
from bigfs.settings import Setting
from bigfs.storage.staging.scratch import open_array, save
from bigfs.types import AnyArray, IntArray

NEWLINE = 10
CHUNK = Setting(1 << 20)  # bytes read of a vocabulary at a time


def merge_vocabularies(
    parts: list[str], terms: Path, scratch: Path, least: float = 1, most: float = np.inf
) -> IntArray:
    """Merge vocabularies as `merge_files` does, on the workers two by two until two are left."""
    for level in itertools.count():
        if len(parts) <= 2:
            break
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        targets = [str(scratch / f"merged-{level}-{i}") for i in range(len(pairs))]
        engine.map_tiles(_merge_pair, pairs, each=[targets], label="merge terms")
        if level:  # the first ones are looked up later
            for path in parts:
                for file in scratch.glob(f"{Path(path).name}.*"):
                    file.unlink()
        parts = targets
    return merge_files(parts, terms, least, most)


def _merge_pair(parts: list[str], target: str) -> None:
    save(target, df=merge_files(parts, Path(f"{target}.terms"), 0))


def merge_files(parts: Sequence[str], terms: Path, least: float, most: float = np.inf) -> IntArray:
    """Write the sorted terms of up to two vocabularies that occur in `least` to `most` documents.

    Returns their document frequencies.
    """
    found = terms.with_suffix(".found")
    with contextlib.ExitStack() as stack, open(terms, "wb") as out, open(found, "wb") as df:
        files = [stack.enter_context(open(f"{path}.terms", "rb")) for path in parts]
        rest = [open_array(path, "df") for path in parts]
        lines = [np.frombuffer(b"", dtype=np.uint8)] * 2
        counts = [np.empty(0, dtype=np.int64)] * 2
        while True:
            for k, file in enumerate(files):
                if not len(lines[k]):
                    lines[k] = np.frombuffer(whole_lines(file, CHUNK.value), dtype=np.uint8)
                    size = np.count_nonzero(lines[k] == NEWLINE)
                    counts[k], rest[k] = np.array(rest[k][:size], dtype=np.int64), rest[k][size:]
            if not any(map(len, lines)):
                break
            (a, b), (a_df, b_df) = lines, counts
            merged, sums, ends, taken = merge(a, b, a_df, b_df, float(least), float(most))
            out.write(merged.data)
            df.write(sums.data)
            lines = [part[end:] for part, end in zip(lines, ends, strict=True)]
            counts = [part[size:] for part, size in zip(counts, taken, strict=True)]
    if not found.stat().st_size:
        return np.empty(0, dtype=np.int64)
    return np.memmap(found, dtype=np.int64, mode="r")


def find_columns(lines: AnyArray, vocabulary: str) -> IntArray:
    """Return where sorted lines are in a vocabulary, −1 for those that it lacks."""
    found = np.full(np.count_nonzero(lines == NEWLINE), -1, dtype=np.int64)
    at, term, first = 0, 0, 0
    with open(vocabulary, "rb") as file:
        while at < len(lines) and (some := whole_lines(file, CHUNK.value)):
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
    a: AnyArray, b: AnyArray, a_df: AnyArray, b_df: AnyArray, least: float, most: float
) -> Any:
    """Merge the lines of two vocabularies until one is used up.

    A vocabulary without lines has ended. Returns the terms that occur in `least` to `most`
    documents, their document frequencies, and the bytes and terms that were taken of each.
    """
    a_ended, b_ended = len(a) == 0, len(b) == 0
    out = np.empty(len(a) + len(b), dtype=np.uint8)
    out_df = np.empty(len(a_df) + len(b_df), dtype=np.int64)
    i, j, x, y, end, size = 0, 0, 0, 0, 0, 0
    while (i < len(a) or a_ended) and (j < len(b) or b_ended):
        k = 0
        if a_ended or b_ended:
            order = np.int64(1 if a_ended else -1)
        else:
            while a[i + k] == b[j + k] and a[i + k] != NEWLINE:
                k += 1
            order = np.int64(a[i + k]) - np.int64(b[j + k])
        lines, at, df = (a, i, np.int64(0)) if order <= 0 else (b, j, np.int64(0))
        length = 0
        while lines[at + length] != NEWLINE:
            out[end + length] = lines[at + length]
            length += 1
        out[end + length] = NEWLINE
        length += 1
        if order <= 0:
            df += a_df[x]
            i += length
            x += 1
        if order >= 0:
            df += b_df[y]
            j += length
            y += 1
        if least <= df <= most:
            out_df[size] = df
            size += 1
            end += length
    return out[:end], out_df[:size], (i, j), (x, y)


@njit(cache=True, nogil=True)
def match(
    own: AnyArray, at: int, term: int, lines: AnyArray, first: int, column: AnyArray
) -> tuple[int, int, int]:
    """Look up the terms of a block in some `lines` of the vocabulary, and write their columns.

    The block continues with term number `term` at byte `at` of `own`, and the lines begin with
    column `first`. Returns the three to continue with.
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
