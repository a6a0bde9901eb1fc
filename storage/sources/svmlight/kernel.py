"""The svmlight grammar as one compiled loop over bytes: label[,label…] [qid:n] index:value … [#
comment].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray

BAD_LABEL, BAD_INDEX, ORDER, BAD_VALUE, NOT_FINITE, ZERO_INDEX = 1, 2, 3, 4, 5, 6
SPACE, TAB, RETURN, NEWLINE, COLON, COMMA, HASH, DOT = 32, 9, 13, 10, 58, 44, 35, 46
POWERS = np.array([float(f"1e{k}") for k in range(309)])  # each rounded once; 10.0**k is not
TINY = 1e-300  # stands for numbers too small to scale: they are 0 in float32, and are not 0
SURE = 2.0**-50  # our value is three roundings off at most


@njit(cache=True, nogil=True)
def count(raw: AnyArray) -> tuple[int, int]:
    """Upper bounds: lines, and colons or commas."""
    lines, marks = 1, 1
    for byte in raw:
        if byte == NEWLINE:
            lines += 1
        elif byte in (COLON, COMMA):
            marks += 1
    return lines, marks


@njit(cache=True, nogil=True)
def number(raw: AnyArray, i: int) -> tuple[int, float, bool, bool]:
    """Where the number at `i` ends (`i` itself: there is none), its value, and whether its float32
    and its float64 are certain.
    """
    start, n = i, len(raw)
    negative = raw[i] == 45
    if negative or raw[i] == 43:
        i += 1
    mantissa, digits, exponent, seen = np.uint64(0), 0, 0, False
    while i < n and (48 <= raw[i] <= 57):
        seen = True
        if digits < 19:
            mantissa = mantissa * np.uint64(10) + np.uint64(raw[i] - 48)
            digits += mantissa != 0
        else:
            exponent += 1
        i += 1
    if i < n and raw[i] == DOT:
        i += 1
        while i < n and (48 <= raw[i] <= 57):
            seen = True
            if digits < 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(raw[i] - 48)
                digits += mantissa != 0
                exponent -= 1
            i += 1
    if not seen:
        return start, 0.0, True, True
    if i < n and (raw[i] == 101 or raw[i] == 69):
        j, power, below, given = i + 1, 0, False, False
        if j < n and (raw[j] == 45 or raw[j] == 43):
            below = raw[j] == 45
            j += 1
        while j < n and (48 <= raw[j] <= 57):
            power = min(power * 10 + int(raw[j] - 48), 9999)
            given = True
            j += 1
        if not given:
            return start, 0.0, True, True
        exponent += -power if below else power
        i = j
    value = float(mantissa)
    exact = mantissa < np.uint64(1 << 53) and -22 <= exponent <= 22
    if exponent > 308 or exponent < -308:  # float32 is far from both; float64 may hold it after all
        value, exact = (
            (np.inf if exponent > 0 and mantissa != 0 else TINY if mantissa != 0 else 0.0),
            mantissa == 0,
        )
    elif exponent >= 0:
        value *= POWERS[exponent]
    else:
        value /= POWERS[-exponent]
    value = -value if negative else value
    sure = exact or np.float32(value * (1 - SURE)) == np.float32(value * (1 + SURE))
    return i, value, sure, exact  # type: ignore[return-value]  # NumPy's booleans


@njit(cache=True, nogil=True)
def ends(raw: AnyArray, i: int) -> bool:
    """Whether a token ends here."""
    return (
        i >= len(raw)
        or raw[i] == SPACE
        or raw[i] == NEWLINE
        or raw[i] == TAB
        or raw[i] == RETURN
        or raw[i] == HASH
    )


@njit(cache=True, nogil=True)
def parse(raw: AnyArray, base: int, lines: int, marks: int) -> Any:
    """(code, where, labels, label counts, unsure labels, indptr, indices, values, unsure): code 0,
    or what is bad at byte `where`.

    The unsure ones are (place in the array, byte where the number begins), to be read again with
    care.
    """
    labels, label_counts = np.empty(lines + marks), np.zeros(lines, dtype=np.int32)
    indptr = np.zeros(lines + 1, dtype=np.int64)
    indices, values = np.empty(marks, dtype=np.int32), np.empty(marks, dtype=np.float32)
    unsure, unsure_labels = [(0, 0) for _ in range(0)], [(0, 0) for _ in range(0)]
    i, n, rows, label, entry, code = 0, len(raw), 0, 0, 0, 0
    while i < n and code == 0:
        while i < n and (raw[i] == SPACE or raw[i] == TAB or raw[i] == RETURN):
            i += 1
        if i >= n:
            break
        if raw[i] == NEWLINE or raw[i] == HASH:
            while i < n and raw[i] != NEWLINE:
                i += 1
            i += 1
            continue
        first, last, token = True, -1, i
        while code == 0:  # one token a round, to the end of the line
            while i < n and (raw[i] == SPACE or raw[i] == TAB or raw[i] == RETURN):
                i += 1
            if i < n and raw[i] == HASH:
                while i < n and raw[i] != NEWLINE:
                    i += 1
            if i >= n or raw[i] == NEWLINE:
                i += 1
                break
            token = i
            if (
                raw[i] == 113
                and i + 4 <= n
                and raw[i + 1] == 105
                and raw[i + 2] == 100
                and raw[i + 3] == COLON
            ):
                while not ends(raw, i):
                    i += 1
                first = False
                continue
            if not first:
                index, i = 0, i
                while i < n and 48 <= raw[i] <= 57:
                    index = min(index * 10 + int(raw[i] - 48), 1 << 40)
                    i += 1
                if i == token or i >= n or raw[i] != COLON or index - base > 2147483646:
                    code = BAD_INDEX
                elif index < base:
                    code = ZERO_INDEX
                elif index <= last:
                    code = ORDER
                else:
                    last, begin = index, i + 1
                    i, value, sure, _ = (
                        number(raw, begin) if begin < n else (begin, 0.0, True, True)
                    )
                    single = np.float32(value)
                    if i == begin or not ends(raw, i):
                        code = BAD_VALUE
                    elif sure and (not np.isfinite(single) or (single == 0 and value != 0)):
                        code = NOT_FINITE
                    else:
                        if not sure:
                            unsure.append((entry, begin))
                        indices[entry], values[entry] = index - base, single
                        entry += 1
            else:
                first = False
                j, value, _, _ = number(raw, i)
                if j < n and raw[j] == COLON and j > i:
                    continue  # no label on this line: its first token is an entry already
                while True:
                    j, value, _, exact = number(raw, i)
                    if j == i or not (ends(raw, j) or raw[j] == COMMA):
                        code = BAD_LABEL
                        break
                    if not exact:
                        unsure_labels.append((label, i))
                    labels[label] = value
                    label += 1
                    label_counts[rows] += 1
                    i = j
                    if ends(raw, i):
                        break
                    i += 1  # the comma
                    if i >= n:
                        code = BAD_LABEL
                        break
        rows += 1
        indptr[rows] = entry
    entries = indptr[: rows + 1], indices[:entry], values[:entry], unsure
    return code, token if code else 0, labels[:label], label_counts[:rows], unsure_labels, *entries
