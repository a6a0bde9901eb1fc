"""The svmlight grammar as one compiled loop over bytes.

A line is ``label[,label…] [qid:n] index:value … [# comment]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from bigfs.types import AnyArray

BAD_LABEL, BAD_INDEX, REPEATED, BAD_VALUE, NOT_FINITE, ZERO_INDEX, BAD_QUERY = 1, 2, 3, 4, 5, 6, 7
NO_LABEL = 8
SPACE, TAB, RETURN, NEWLINE = ord(" "), ord("\t"), ord("\r"), ord("\n")
COLON, COMMA, HASH, DOT = ord(":"), ord(","), ord("#"), ord(".")
PLUS, MINUS, ZERO, NINE = ord("+"), ord("-"), ord("0"), ord("9")
SMALL_E, LARGE_E = ord("e"), ord("E")
SMALL_Q, SMALL_I, SMALL_D = ord("q"), ord("i"), ord("d")

MAX_INDEX = 2**31 - 2  # of a column, from 0
BEYOND = 1 << 40  # an index stops growing here
MAX_DIGITS = 19  # of a mantissa, which always fit in 64 bits
MAX_SHORT = 15  # digits that float64 always holds exactly
MAX_EXPONENT = 9999  # a written exponent stops growing here
MAX_EXACT_MANTISSA, MAX_EXACT_POWER = 1 << 53, 22  # up to these, float64 holds both exactly
POWERS = np.array([float(f"1e{k}") for k in range(309)])  # correctly rounded, as 10.0**k is not
MAX_POWER = 308
MOST_WHOLE = 2**24  # whole numbers up to it are exact in float32
TINY = 1e-300  # stands for numbers too small to scale, which are 0 in float32 but not 0
ERROR = 2.0**-50  # bound of the relative error of a value, which is rounded three times


@njit(cache=True, nogil=True)
def count(raw: AnyArray) -> tuple[int, int]:
    """Return upper bounds of the number of lines, and of the number of colons and commas."""
    lines = 1
    marks = 1
    for byte in raw:
        if byte == NEWLINE:
            lines += 1
        elif byte in (COLON, COMMA):
            marks += 1
    return lines, marks


@njit(cache=True, nogil=True, inline="always")
def is_digit(byte: int) -> bool:
    return ZERO <= byte <= NINE


@njit(cache=True, nogil=True, inline="always")
def is_blank(byte: int) -> bool:
    return byte in (SPACE, TAB, RETURN)


@njit(cache=True, nogil=True)
def skip_blanks(raw: AnyArray, i: int) -> int:
    """Return the place of the next byte that is no blank."""
    while i < len(raw) and is_blank(raw[i]):
        i += 1
    return i


@njit(cache=True, nogil=True)
def find_newline(raw: AnyArray, i: int) -> int:
    """Return the place of the next line end, or the end of the bytes."""
    while i < len(raw) and raw[i] != NEWLINE:
        i += 1
    return i


@njit(cache=True, nogil=True)
def ends_token(raw: AnyArray, i: int) -> bool:
    """Return whether a token ends before byte `i`."""
    return i >= len(raw) or raw[i] == NEWLINE or raw[i] == HASH or is_blank(raw[i])


@njit(cache=True, nogil=True)
def is_query(raw: AnyArray, i: int) -> bool:
    """Return whether the token at byte `i` begins with ``qid:``."""
    return (
        raw[i] == SMALL_Q
        and i + 4 <= len(raw)
        and raw[i + 1] == SMALL_I
        and raw[i + 2] == SMALL_D
        and raw[i + 3] == COLON
    )


@njit(cache=True, nogil=True)
def number(raw: AnyArray, i: int) -> tuple[int, float, bool, bool]:
    """Parse the number at byte `i`: its end (`i` itself if there is no number) and its value.

    Also return whether float32 of the value, and the value itself, are certainly right.
    """
    start = i
    n = len(raw)
    negative = raw[i] == MINUS
    if negative or raw[i] == PLUS:
        i += 1
    mantissa = np.uint64(0)
    digits = 0
    exponent = 0
    seen = False
    while i < n and is_digit(raw[i]):
        seen = True
        if digits < MAX_DIGITS:
            mantissa = mantissa * np.uint64(10) + np.uint64(raw[i] - ZERO)
            digits += mantissa != 0
        else:
            exponent += 1
        i += 1
    if i < n and raw[i] == DOT:
        i += 1
        while i < n and is_digit(raw[i]):
            seen = True
            if digits < MAX_DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(raw[i] - ZERO)
                digits += mantissa != 0
                exponent -= 1
            i += 1
    if not seen:
        return start, 0.0, True, True
    if i < n and (raw[i] == SMALL_E or raw[i] == LARGE_E):
        i += 1
        below_one = False
        if i < n and (raw[i] == MINUS or raw[i] == PLUS):
            below_one = raw[i] == MINUS
            i += 1
        if i >= n or not is_digit(raw[i]):
            return start, 0.0, True, True
        power = 0
        while i < n and is_digit(raw[i]):
            power = min(power * 10 + int(raw[i] - ZERO), MAX_EXPONENT)
            i += 1
        exponent += -power if below_one else power
    value = float(mantissa)
    exact = (
        mantissa < np.uint64(MAX_EXACT_MANTISSA) and -MAX_EXACT_POWER <= exponent <= MAX_EXACT_POWER
    )
    if exponent > MAX_POWER or exponent < -MAX_POWER:
        # far outside of float32, while float64 may hold it after all
        exact = mantissa == 0
        if mantissa == 0:
            value = 0.0
        else:
            value = np.inf if exponent > 0 else TINY
    elif exponent >= 0:
        value *= POWERS[exponent]
    else:
        value /= POWERS[-exponent]
    value = -value if negative else value
    sure = exact or np.float32(value * (1 - ERROR)) == np.float32(value * (1 + ERROR))
    return i, value, sure, exact  # type: ignore[return-value]  # NumPy's booleans


@njit(cache=True, nogil=True)
def short_decimal(raw: AnyArray, begin: int) -> tuple[int, float]:
    """Parse a token such as 0.125 or 12, with no sign and no exponent and up to 15 digits.

    Returns where it ends and its value, which is right to the last bit. Any other token ends where
    it begins. This takes most values, in half of the time of `number`.
    """
    i, n = begin, len(raw)
    mantissa, places = 0, 0
    while i < n and is_digit(raw[i]):
        mantissa = mantissa * 10 + int(raw[i] - ZERO)
        i += 1
    digits = i - begin
    if i < n and raw[i] == DOT:
        i += 1
        point = i
        while i < n and is_digit(raw[i]):
            mantissa = mantissa * 10 + int(raw[i] - ZERO)
            i += 1
        places = i - point
        digits += places
    if 0 < digits <= MAX_SHORT and ends_token(raw, i):
        return i, mantissa / POWERS[places]
    return begin, 0.0


@njit(cache=True, nogil=True)
def parse(raw: AnyArray, base: int, has_labels: bool, lines: int, marks: int) -> Any:
    """Parse whole lines, whose indices begin at `base`, with the bounds that `count` returned.

    Return 0 or what is wrong with the token at byte `where`, and that place; the labels of all
    lines, their number per line (int32), and (place in them, place of the first byte) of each that
    float64 may hold inexactly; the query of each line, −1 without one; then the entries in CSR,
    from column 0, whether they are sorted, and the same pairs for each value whose float32 is
    unsure, or has fewer digits than its whole number.
    """
    n = len(raw)
    labels = np.empty(lines + marks)
    label_counts = np.zeros(lines, dtype=np.int32)
    queries = np.full(lines, -1, dtype=np.int64)
    is_sorted = True
    indptr = np.zeros(lines + 1, dtype=np.int64)
    indices = np.empty(marks, dtype=np.int32)
    values = np.empty(marks, dtype=np.float32)
    unsure = [(0, 0) for _ in range(0)]
    unsure_labels = [(0, 0) for _ in range(0)]
    i = 0
    rows = 0
    label = 0
    entry = 0
    code = 0
    token = 0
    while i < n and code == 0:
        i = skip_blanks(raw, i)
        if i >= n:
            break
        if raw[i] == NEWLINE or raw[i] == HASH:
            i = find_newline(raw, i) + 1
            continue
        first = True
        last = -1
        while code == 0:  # one token per round, to the end of the line
            i = skip_blanks(raw, i)
            if i < n and raw[i] == HASH:
                i = find_newline(raw, i)
            if i >= n or raw[i] == NEWLINE:
                i += 1
                break
            token = i
            if is_query(raw, i):
                i += 4
                query = 0
                while i < n and is_digit(raw[i]) and query < BEYOND:
                    query = query * 10 + int(raw[i] - ZERO)
                    i += 1
                if i == token + 4 or not ends_token(raw, i):
                    code = BAD_QUERY
                queries[rows] = query
                first = False
            elif first:
                first = False
                end, value, _, _ = number(raw, i)
                if end < n and raw[end] == COLON and end > i:  # a line without a label
                    if has_labels and (i == 0 or raw[i - 1] == NEWLINE):
                        code = NO_LABEL
                    continue
                while True:
                    end, value, _, exact = number(raw, i)
                    if end == i or not (ends_token(raw, end) or raw[end] == COMMA):
                        code = BAD_LABEL
                        break
                    if not exact:
                        unsure_labels.append((label, i))
                    labels[label] = value
                    label += 1
                    label_counts[rows] += 1
                    i = end
                    if ends_token(raw, i):
                        break
                    i += 1  # the comma
                    if i >= n:
                        code = BAD_LABEL
                        break
            else:
                index = 0
                while i < n and is_digit(raw[i]):
                    index = min(index * 10 + int(raw[i] - ZERO), BEYOND)
                    i += 1
                if i == token or i >= n or raw[i] != COLON or index - base > MAX_INDEX:
                    code = BAD_INDEX
                elif index < base:
                    code = ZERO_INDEX
                elif index == last:
                    code = REPEATED
                else:
                    is_sorted = is_sorted and index > last
                    last = index
                    begin = i + 1
                    sure = True
                    i, value = short_decimal(raw, begin)
                    if i == begin and begin < n:
                        i, value, sure, _ = number(raw, begin)
                    single = np.float32(value)
                    if i == begin or not ends_token(raw, i):
                        code = BAD_VALUE
                    elif sure and (not np.isfinite(single) or (single == 0 and value != 0)):
                        code = NOT_FINITE
                    else:
                        is_rounded = abs(single) > MOST_WHOLE and value != single
                        if not sure or (is_rounded and value == np.rint(value)):
                            unsure.append((entry, begin))
                        indices[entry] = index - base
                        values[entry] = single
                        entry += 1
        rows += 1
        indptr[rows] = entry
    of_labels = labels[:label], label_counts[:rows], unsure_labels
    entries = indptr[: rows + 1], indices[:entry], values[:entry], is_sorted, unsure
    return code, token if code else 0, *of_labels, queries[:rows], *entries
