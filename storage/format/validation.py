"""Checks of a store's own documents. A forged or foreign one is refused before anything uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

# codecs that decode bytes to numbers and text; others, such as pickle, may run code
CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *(
        "astype",
        "bitround",
        "bytes",
        "delta",
        "endian",
        "fixedscaleoffset",
        "packbits",
        "quantize",
        "shuffle",
        "transpose",
    ),
    *("sharding_indexed", "vlen-bytes", "vlen-utf8"),
}
# fields of Zarr's metadata that name codecs
LISTS = ("codecs", "compressor", "compressors", "filters", "index_codecs")
FIELDS = {
    *("key", "shape", "nnz", "target", "segments", "row_bounds", "column_bounds"),
    *("named", "source", "settings", "content", "version"),
}
TARGETS = (None, "class", "real", "multilabel")
SOURCE_FIELDS = {
    "uri",
    "format",
    "fingerprint",
    "sample_shape",
    "planted",
}  # of the source


def parse(document: bytes) -> dict[str, Any]:
    """Return the object of a JSON document."""
    try:
        value = json.loads(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it holds no JSON object")
    return value


def require_manifest(body: dict[str, Any]) -> None:
    """Refuse a manifest with contradicting fields, or with types that bigfs does not write."""
    n, d = _require(body, "shape", _are_counts, length=2)
    _require(body, "nnz", lambda value: _are_counts([value]))
    _require(body, "target", lambda value: value in TARGETS)
    _require(body, "row_bounds", lambda value: _are_bounds(value, n))
    _require(body, "column_bounds", lambda value: _are_bounds(value, d))
    _require(body, "named", lambda value: all(isinstance(v, bool) for v in value), length=2)
    _require(body, "segments", lambda value: _are_segments(value, n))
    _require(body, "source", lambda value: isinstance(value, dict) and set(value) >= SOURCE_FIELDS)
    _require(body, "settings", lambda value: isinstance(value, dict) and "tile_rows" in value)
    for name in ("key", "content"):
        _require(body, name, lambda value: isinstance(value, str))
    known = {
        "shape",
        "nnz",
        "target",
        "row_bounds",
        "column_bounds",
        "named",
        "segments",
        "source",
        "settings",
        "key",
        "content",
        "version",
    }
    if unknown := set(body) - known:
        raise ValueError(f"the field {min(unknown)!r} is unknown")


def _require(body: dict[str, Any], name: str, is_right: Any, length: int | None = None) -> Any:
    value = body.get(name)
    if (
        name not in body
        or (length is not None and not (isinstance(value, Sequence) and len(value) == length))
        or not is_right(value)
    ):
        raise ValueError(f"the field {name!r} is missing or wrong")
    return value


def _are_counts(values: Any) -> bool:
    return all(
        isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values
    )


def _are_bounds(value: Any, end: int) -> bool:
    if not isinstance(value, list | tuple) or len(value) < 2 or not _are_counts(value):
        return False
    return (
        value[0] == 0
        and value[-1] == end
        and all(a <= b for a, b in zip(value, value[1:], strict=False))
    )


def _are_segments(value: Any, n: int) -> bool:
    """Return whether segments follow one another over all rows."""
    if not isinstance(value, list | tuple) or not value:
        return False
    row = 0
    for i, segment in enumerate(value):
        if (
            not isinstance(segment, dict)
            or set(segment) != {"name", "split", "start", "stop", "nnz"}
            or segment["name"] != str(i)
        ):
            return False
        if segment["split"] not in (None, "train", "test") or not _are_counts(
            [segment["start"], segment["stop"], segment["nnz"]]
        ):
            return False
        if segment["start"] != row or segment["stop"] < row:
            return False
        row = segment["stop"]
    return bool(row == n)


def require_checksums(listed: dict[str, Any]) -> None:
    """Refuse a list of checksums with a key that leads out of its store."""
    for key, value in listed.items():
        if not isinstance(value, str) or key.startswith("/") or ".." in PurePosixPath(key).parts:
            raise ValueError(f"the checksum of {key!r} is wrong")


def require_codecs(key: str, document: Any) -> None:
    """Refuse Zarr metadata that name a codec which may run code."""
    if key.rpartition("/")[2] not in ("zarr.json", ".zarray", ".zmetadata"):
        return
    for codec in _codecs(parse(document.to_bytes())):
        if str(codec).removeprefix("numcodecs.") not in CODECS:
            raise ValueError(f"{key} names the codec {codec!r}, which bigfs does not use")


def _codecs(value: Any) -> Iterator[Any]:
    """Yield the names of all codecs in metadata, also in consolidated ones and in shards."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "attributes":
                continue
            if name in LISTS:
                named = inner if isinstance(inner, list) else [inner]
                yield from (
                    codec.get("id", codec.get("name")) for codec in named if isinstance(codec, dict)
                )
                yield from (codec for codec in named if isinstance(codec, str))
            yield from _codecs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _codecs(inner)
