"""Merge sorted vocabularies, and look terms up in them. A file holds one term per line.

A file is read a few whole lines at a time, so no vocabulary is held in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from bigfs.types import AnyArray, IntArray
from storage.staging.scratch import open_array
from storage.staging.text import vocabulary_kernels as kernels

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
            need, end, size, last, last_df = kernels.merge(
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
            at, term, first = kernels.match(
                lines, at, term, np.frombuffer(some, dtype=np.uint8), first, found
            )
    return found


def whole_lines(file: IO[bytes], size: int) -> bytes:
    """Read about `size` bytes, to the end of a line. Empty at the end of the file."""
    lines = file.read(size)
    return lines + file.readline() if lines else lines
