"""Columns of Arrow as numbers and as texts, whatever the file holds them as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigfs.storage.lazy import compute, pa, types

NO_NUMBER = (
    "",
    "?",
    "NA",
    "N/A",
    "NaN",
    "nan",
    "NULL",
    "null",
)  # a number that is missing in a text
TRUTH = {"true": "1", "false": "0"}  # Booleans of a text, in any case


def decode_batch(batch: Any) -> Any:
    """Return a batch whose columns `decode` returns, as for all records."""

    def is_plain(kind: Any) -> bool:
        is_view = types.is_string_view(kind) or types.is_binary_view(kind)
        return not (types.is_dictionary(kind) or types.is_nested(kind) or is_view)

    if all(map(is_plain, set(batch.schema.types))):
        return batch
    columns, about = list(map(decode, batch.columns)), batch.schema.metadata
    return pa.RecordBatch.from_arrays(columns, batch.schema.names, metadata=about)


def count_bytes(batch: Any) -> int:
    """Return the bytes of a batch. pyarrow below 24 knows those of views by whole buffers alone."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())


def decode(values: Any) -> Any:
    """Return a column without dictionaries, which another batch would replace, and without views,
    of which a slice holds the whole.
    """
    kind = values.type
    if types.is_dictionary(kind):
        plain = decode(values.dictionary)  # some kinds of dictionaries cannot be decoded
        return pa.DictionaryArray.from_arrays(values.indices, plain).dictionary_decode()
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return values.cast(pa.large_string() if types.is_string_view(kind) else pa.large_binary())
    if types.is_list(kind) or types.is_large_list(kind):
        inside = decode(values.flatten())
        if inside.type != kind.value_type:
            lengths = compute.fill_null(compute.list_value_length(values), 0)
            offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(), dtype=np.int64)])
            return pa.LargeListArray.from_arrays(offsets, inside, mask=values.is_null())
    return values


def as_numbers(values: Any) -> Any:
    """Return a column as float64, null where it is missing. Booleans are 0 and 1."""
    if not is_text(values):  # whole numbers are rounded, as in a text
        return compute.cast(values, pa.float64(), safe=not pa.types.is_integer(values.type))
    values = compute.utf8_trim_whitespace(values)
    values = without(values, NO_NUMBER)
    try:
        return compute.cast(values, pa.float64())
    except pa.ArrowInvalid:
        lower = compute.utf8_lower(values)
        for word, number in TRUTH.items():
            values = compute.if_else(compute.equal(lower, word), number, values)
        return compute.cast(values, pa.float64())


def as_texts(values: Any) -> Any:
    """Return a column as texts, null where they are missing."""
    return without(values.cast(pa.string()), ("",))


def without(texts: Any, words: Sequence[str]) -> Any:
    """Return texts, null where they are one of some words."""
    from bigfs.storage.sources.samples import from_texts  # which imports this module

    is_one = compute.is_in(texts, from_texts(words).cast(texts.type))
    return compute.if_else(is_one, pa.nulls(len(texts), texts.type), texts)


def is_list(kind: Any) -> bool:
    """Return whether a type is of lists, of any length or of one."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_vector(kind: Any) -> bool:
    """Return whether a type is of vectors: lists of numbers or pairs, or structs as Spark has."""
    if types.is_struct(kind):
        return {"indices", "values"} <= {field.name for field in kind}
    if not is_list(kind):
        return False
    inside = kind.value_type
    is_pair = types.is_struct(inside) and inside.num_fields == 2
    return bool(is_pair or types.is_floating(inside) or types.is_integer(inside))


def field_names(schema: Any, paths: Sequence[str]) -> list[str]:
    """Return the names of fields, and those of paths with dots that lead inside of one."""
    names = list(schema.names)
    return names + [path for path in paths if path not in names and _leads(path, schema)]


def _leads(path: str, schema: Any) -> bool:
    first, *inside = path.split(".")
    if schema.get_field_index(first) < 0:
        return False
    kind = schema.field(first).type
    for part in inside:
        if not types.is_struct(kind) or kind.get_field_index(part) < 0:
            return False
        kind = kind.field(part).type
    return True


def pick(batch: Any, names: Sequence[str]) -> Any:
    """Return the named fields of a batch, of which some may lie inside of others."""
    if set(names) <= set(batch.schema.names):
        return batch.select(names)
    columns = []
    for name in names:
        is_path = name not in batch.schema.names
        first, *inside = name.split(".") if is_path else [name]
        values = batch.column(first)
        columns.append(compute.struct_field(values, inside) if inside else values)
    return pa.RecordBatch.from_arrays(columns, names, metadata=batch.schema.metadata)


def is_text(values: Any) -> bool:
    """Return whether a column holds texts."""
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))
