"""Columns of Arrow as numbers and as texts, whatever the file holds them as."""

from __future__ import annotations

from typing import Any

NO_NUMBER = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # a number that is missing in a text
TRUTH = {"true": "1", "false": "0"}  # Booleans of a text, in any case


def decoded(values: Any) -> Any:
    """Return a column without a dictionary, which another batch would replace, and no view."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return compute.cast(values, pa.large_string()) if values.type == pa.string_view() else values


def as_numbers(values: Any) -> Any:
    """Return a column as float64, null where it is missing. Booleans are 0 and 1.

    Arrow's error says which value is no number.
    """
    import pyarrow as pa
    from pyarrow import compute

    values = decoded(values)
    if not is_text(values):
        return compute.cast(values, pa.float64())
    values = compute.utf8_trim_whitespace(values)
    is_missing = compute.is_in(values, pa.array(NO_NUMBER, values.type))
    values = compute.if_else(is_missing, None, values)
    try:
        return compute.cast(values, pa.float64())
    except pa.ArrowInvalid:
        lower = compute.utf8_lower(values)
        for word, number in TRUTH.items():
            values = compute.if_else(compute.equal(lower, word), number, values)
        return compute.cast(values, pa.float64())


def as_texts(values: Any) -> Any:
    """Return a column as texts, null where they are missing."""
    import pyarrow as pa
    from pyarrow import compute

    texts = compute.cast(decoded(values), pa.string())
    return compute.if_else(compute.equal(texts, ""), None, texts)


def is_text(values: Any) -> bool:
    """Return whether a column holds texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
