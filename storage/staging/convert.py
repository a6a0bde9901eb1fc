"""A store written anew in the present layout of chunks and shards, with all that it holds.

Matrix, segments, labels, names, idf and scales, statistics, settings and the account of the source
stay what they are, so `append` and `predict` go on with the new store as with the old one.
"""

from __future__ import annotations

from typing import Any

from bigfs.storage.format import manifest as manifests
from bigfs.storage.format import verified
from bigfs.storage.format.manifest import COLUMN_CHUNK, ROW_CHUNK, STRING_CHUNK, Manifest
from bigfs.storage.format.verified import StoreRef
from bigfs.storage.format.writer import ArrayWriter, Writer, publish
from bigfs.storage.staging import transpose
from bigfs.storage.staging.transpose import EntryRange


def convert(store: StoreRef, manifest: Manifest, writer: Writer, chunks: int) -> Manifest:
    """Write all arrays of a store in tasks of up to `chunks` chunks, and publish the new one."""
    listed = manifests.checksums_of(store.uri, store.content).documents
    paths = {key.removesuffix("/zarr.json") for key in listed if key.endswith("/zarr.json")}
    root: Any = verified.root(store.uri, store.content)
    for path in sorted(paths - {manifests.CHECKSUMS, manifests.CHUNK_CHECKSUMS}):
        node = root[path]
        if hasattr(node, "dtype"):
            chunk = _chunk_of(path, node, root, manifest.shape[1], writer.chunk)
            _copy(store, writer, path, node, chunk, chunks if chunk == writer.chunk else 1)
        else:
            about = dict(node.attrs)
            writer.group(path, about.pop("encoding-type"), about.pop("encoding-version"), **about)
    return publish(writer, manifest)


def _chunk_of(path: str, array: Any, root: Any, d: int, of_matrix: int) -> int:
    """Return the values per chunk of an array, as staging writes it."""
    if array.dtype.kind in "OUT":
        return STRING_CHUNK
    if path.startswith("uns/statistics/"):
        by_class = "/".join([*path.split("/")[:3], "classes"])
        classes = root[f"{by_class}/sums"].shape[0] // d if by_class in root else 0
        per_column = classes if path.startswith(by_class) else 1
        return transpose.statistics_width(d, classes) * per_column
    if path.startswith(("X/", "uns/columns/")) and path.endswith(("/data", "/indices")):
        return of_matrix
    return COLUMN_CHUNK if path.startswith(("var/", "uns/columns/")) else ROW_CHUNK


def _copy(store: StoreRef, writer: Writer, path: str, array: Any, chunk: int, chunks: int) -> None:
    is_text, length = array.dtype.kind in "OUT", array.shape[0]
    dtype, kind = (str, "string-array") if is_text else (array.dtype, "array")
    writer.create(path, length, dtype, chunk, kind, sparse="/classes/" in path)
    tasks = transpose.tasks_of(length, chunk, chunks, writer.shards.get(path, 1))
    transpose.write_in_tasks(writer, _copy_ranges, tasks, writer.uri, path, store, label="convert")


def _copy_ranges(task: list[EntryRange], uri: str, path: str, store: StoreRef) -> dict[str, str]:
    with ArrayWriter(uri, path, task[0].start) as out:
        for part in task:
            out.add(store.read(path, part.start, part.stop))
    return out.checksums
