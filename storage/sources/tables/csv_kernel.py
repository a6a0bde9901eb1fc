"""The ends of the records of CSV, as one compiled loop over bytes.

A quote opens a quoted field only where the field begins, as in pyarrow and Python's csv. Elsewhere
it is a letter, as in ``5" pipe``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigfs.types import AnyArray

QUOTE, NEWLINE, RETURN = ord('"'), ord("\n"), ord("\r")
BEGIN, PLAIN, QUOTED, MAYBE_CLOSED = range(4)  # where in a field a byte is


@njit(cache=True, nogil=True)
def cut_records(
    raw: AnyArray, at: int, aim: int, size: int, state: int, delimiter: int
) -> tuple[AnyArray, int, int]:
    """Return the first end of a record from each aim on, the next aim and the state.

    `at` is the place of the first byte in the file, and the next aim is `size` bytes after a cut.
    """
    cuts = np.empty(len(raw) // size + 1, dtype=np.int64)
    count = 0
    for i, byte in enumerate(raw):
        if state == QUOTED:
            if byte == QUOTE:
                state = MAYBE_CLOSED
        elif byte == QUOTE and state in (BEGIN, MAYBE_CLOSED):
            state = QUOTED
        elif byte in (delimiter, NEWLINE, RETURN):
            state = BEGIN
            if byte == NEWLINE and at + i + 1 >= aim:
                cuts[count] = at + i + 1
                count += 1
                aim = at + i + 1 + size
        else:
            state = PLAIN
    return cuts[:count], aim, state
