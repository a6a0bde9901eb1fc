"""Graphs beside their store: kNN written by the workers, block by block; the same settings find the same graph.

news20.graphs/<key>.zarr/
    index/  distance/    n × k: int32 (−1: none), float64 (inf: none)
    checksums.json       of every chunk
    bigfs.json           k, metric, how the graph was found and why so, measured recall; written last
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from bigfs.graph import Neighbours, stream_knn
from bigfs.graph.rows import GRAIN
from storage import layout
from storage.corpus import Corpus
from storage.errors import Damaged, StoreError
from storage.sources.base import fingerprint_of
from storage.staging import building

VERSION = 1


@dataclass(frozen=True)
class Graph:
    """A stored kNN graph: of `shape` (n, k), with the `info` of `bigfs.graph.Neighbours`."""

    uri: str
    shape: tuple[int, int]
    info: dict[str, Any]
    content: str

    def neighbours(self, start: int = 0, stop: int | None = None) -> Neighbours:
        """Rows [start, stop), or all, in memory; a chunk that is missing or damaged is named."""
        index, distance = (layout.read(self.uri, self.content, path, start, stop) for path in ("index", "distance"))
        return Neighbours(index, distance, self.info["metric"], self.info)


def graph(
    corpus: Corpus,
    k: int = 10,
    *,
    metric: str = "cosine",
    method: str = "auto",
    recall: float = 0.95,
    candidates: int = 50,
    wait: float = -1,
) -> Graph:
    """The kNN graph of a corpus, from beside its store if it is there, else computed and kept there.

    Parameters
    ----------
    k, metric, method, recall, candidates : as in `bigfs.graph.knn`.
    wait : seconds to wait while another process computes the same graph; −1: as long as it takes.

    Raises
    ------
    ValueError : as `bigfs.graph.knn`.
    StoreError : another process holds the graph, or the disk is full.
    Damaged : the graph is not what was written.
    """
    asked = {"k": k, "metric": metric, "method": method}
    if method != "exact":
        asked |= {"recall": recall, "candidates": candidates}
    uri = place(corpus, asked)
    if not layout.exists(uri):
        with building(uri, wait) as (target, _):
            if not layout.exists(uri):
                _write(target, corpus, asked)
    return open_graph(uri)


def place(corpus: Corpus, asked: dict[str, Any]) -> str:
    """Where the graph of these rows with these settings is kept."""
    rows = [segment.name for segment in corpus.segments]
    key = fingerprint_of("graph", VERSION, corpus.manifest.content, rows, sorted(asked.items()))
    return f"{corpus.uri.removesuffix('.zarr')}.graphs/{key[:16]}.zarr"


def open_graph(uri: str) -> Graph:
    """A graph by its URI.

    Raises
    ------
    StoreError : nothing there, or of a newer version.
    Damaged : not what was written.
    """
    try:
        document = json.loads(layout.get(uri, layout.MANIFEST))
        body = document["graph"]
        known = document["checksum"] == layout.digest(_canonical(body))
    except FileNotFoundError:
        raise StoreError(f"there is no graph at {uri}: make one first") from None
    except (ValueError, KeyError, TypeError):
        known, body = False, {}
    if not known:
        raise Damaged(f"{uri}: {layout.MANIFEST} is damaged: remove the graph and make it again")
    if body["version"] > VERSION:
        raise StoreError(f"{uri} has graph version {body['version']} and this bigfs reads up to {VERSION}: upgrade bigfs")
    return Graph(uri, tuple(body["shape"]), body["info"], body["content"])


@dataclass(frozen=True)
class Into:
    """Where a worker puts finished rows; whole chunks, so every chunk has one writer."""

    uri: str

    def __call__(self, start: int, stop: int, index: NDArray[Any], distance: NDArray[Any]) -> dict[str, str]:
        return layout.fill(self.uri, "index", start, index) | layout.fill(self.uri, "distance", start, distance)


def _write(target: str, corpus: Corpus, asked: dict[str, Any]) -> None:
    shape = (corpus.X.shape[0], asked["k"])
    if "://" in target:
        layout.remove(target)
    recorded = layout.Recorded(layout.store_at(target))
    zarr.create_group(recorded, path="", zarr_format=3)
    for path, dtype, none in (("index", np.int32, -1), ("distance", np.float64, np.inf)):
        zarr.create_array(
            recorded,
            name=path,
            shape=shape,
            dtype=dtype,
            chunks=(min(GRAIN, shape[0]), max(shape[1], 1)),
            fill_value=none,
            compressors=(BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()),
            filters=None,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )
    written, info = stream_knn(corpus.X, sink=Into(target), **asked)
    checksums = recorded.checksums
    for part in written:
        checksums |= part
    listed = json.dumps(dict(sorted(checksums.items())), indent=0).encode()
    layout.put(target, layout.CHECKSUMS, listed)
    body = {"version": VERSION, "shape": shape, "info": info, "store": corpus.uri, "content": layout.digest(listed)}
    layout.put(target, layout.MANIFEST, json.dumps({"checksum": layout.digest(_canonical(body)), "graph": body}).encode())


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True).encode()
