"""Compare every document of a store with its checksum."""

from __future__ import annotations

from typing import Any

import google_crc32c

from bigfs import engine
from bigfs.storage.errors import CorruptStoreError
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format.manifest import Shards
from bigfs.storage.format.shards import chunks_of
from bigfs.storage.format.verified import StoreRef, document_name

DOCUMENTS = 64  # per task


def compare_documents(store: StoreRef) -> tuple[int, list[str]]:
    """Read all documents of a store. Returns their number, and one line per fault."""
    checksums = manifests.checksums_of(store.uri, store.content)
    keys = sorted(checksums.documents)
    parts: list[Any] = [keys[i : i + DOCUMENTS] for i in range(0, len(keys), DOCUMENTS)]
    parts += [
        (path, i)
        for path, shards in sorted(checksums.shards.items())
        for i in range(len(shards.keys(path)))
    ]
    problems = [
        line
        for lines in engine.map_tiles(_check_documents, parts, store, label="check documents")
        for line in lines
    ]
    return len(checksums.keys()), problems


def require_whole(store: StoreRef) -> None:
    """Refuse a store with a document that is damaged or missing.

    A store in a bucket whose objects have the ETags that they were written with is not read. A
    request lists a thousand of them.
    """
    if manifests.has_its_etags(store.uri):
        return
    _, problems = compare_documents(store)
    if problems:
        raise manifests.lost_document(store.uri, store.content, problems[0])


def _check_documents(keys: list[str] | tuple[str, int], store: StoreRef) -> list[str]:
    """Return the faults of some documents, or of a shard, given by its array and number."""
    checksums = manifests.checksums_of(store.uri, store.content)
    if isinstance(keys, tuple):
        return _check_shard(*keys, store, checksums.shards[keys[0]])
    problems = []
    for key in keys:
        try:
            document = manifests.read_document(store.uri, key)
        except FileNotFoundError:
            problems.append(f"{document_name(key)} is missing")
            continue
        consistent = manifests.is_hashed(key) or _closes(document)
        if not consistent or manifests.checksum(key, document) != checksums.documents[key]:
            problems.append(f"{document_name(key)} is damaged")
    return problems


def _check_shard(path: str, number: int, store: StoreRef, told: Shards) -> list[str]:
    """Return the faults of the chunks in a shard."""
    first = number * told.size
    last = min(first + told.size, told.chunks)
    try:
        expected = store.read(manifests.CHUNK_CHECKSUMS, told.first + first, told.first + last)
    except CorruptStoreError:  # a document of its own, which is reported
        return []
    try:
        crcs = [
            chunk[-4:] if _closes(chunk) else b""
            for chunk in chunks_of(store.uri, f"{path}/c/{number}", told.size)
        ]
    except FileNotFoundError:
        return [f"shard {number} of array {path} is missing"]
    except ValueError:
        return [f"shard {number} of array {path} is damaged"]
    if len(crcs) != len(expected):
        return [f"shard {number} of array {path} has {len(crcs)} chunks, not {len(expected)}"]
    return [
        f"chunk {first + i} of array {path} is damaged"
        for i, crc in enumerate(expected)
        if crcs[i] != crc.tobytes()
    ]


def _closes(document: bytes) -> bool:
    """Return whether a document ends with its CRC-32C."""
    return document[-4:] == google_crc32c.value(document[:-4]).to_bytes(4, "little")
