"""Graphs beside their store: kNN written by the workers, block by block; the same settings find the
same graph.

news20.graphs/<key>.zarr/
    index/  distance/    n × k: int32 (−1: none), float64 (inf: none)
    checksums.json       of every chunk
    bigfs.json           k, metric, how the graph was found and why so, measured recall; written
        last
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from bigfs.graph import Neighbours, stream_knn
from bigfs.graph.row_blocks import GRAIN
from bigfs.types import AnyArray
from storage.corpus import Corpus
from storage.errors import Damaged, StoreError
from storage.fingerprint import fingerprint_of
from storage.format import manifest, verified
from storage.format.writer import Writer, fill, seal
from storage.staging.exchange import building


@dataclass(frozen=True)
class Graph:
    """A stored kNN graph: of `shape` (n, k), with the `info` of `bigfs.graph.Neighbours`."""

    uri: str
    shape: tuple[int, int]
    info: dict[str, Any]
    content: str
    made: bool = field(default=False, compare=False)  # by this call; False: found

    def neighbours(self, start: int = 0, stop: int | None = None) -> Neighbours:
        """Rows [start, stop), or all, in memory; a chunk that is missing or damaged is named."""
        index, distance = (
            verified.read(self.uri, self.content, path, start, stop)
            for path in ("index", "distance")
        )
        return Neighbours(index, distance, self.info["metric"], self.info)


def graph(
    corpus: Corpus,
    k: int = 10,
    *,
    metric: str = "cosine",
    method: str = "auto",
    recall: float = 0.95,
    candidates: int | None = None,
    wait: float = -1,
) -> Graph:
    """The kNN graph of a corpus, from beside its store if it is there, else computed and kept
    there.

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
    uri, made = place(corpus, asked), False
    if not manifest.exists(uri):
        with building(uri, wait) as (target, _):
            if not manifest.exists(uri):
                _write(target, corpus, asked)
                made = True
    return replace(open_graph(uri), made=made)


def place(corpus: Corpus, asked: dict[str, Any]) -> str:
    """Where the graph of these rows with these settings is kept."""
    rows = [segment.name for segment in corpus.segments]
    key = fingerprint_of(
        "graph", manifest.VERSION, corpus.manifest.content, rows, sorted(asked.items())
    )
    return f"{corpus.uri.removesuffix('.zarr')}.graphs/{key[:16]}.zarr"


def open_graph(uri: str) -> Graph:
    """A graph by its URI.

    Raises
    ------
    StoreError : nothing there, something else, or of a newer version.
    Damaged : not what was written.
    """
    body = manifest.sealed(uri)
    if "graph" not in body:
        raise StoreError(f"{uri} holds no graph: make one of it first")
    info, shape = body["graph"], body.get("shape")
    if not (
        isinstance(info, dict)
        and "metric" in info
        and isinstance(shape, list)
        and len(shape) == 2
        and "content" in body
    ):
        raise Damaged(
            f"{uri}: its manifest is none that bigfs wrote: remove the graph and repeat the command"
        )
    return Graph(uri, (int(shape[0]), int(shape[1])), info, body["content"])


@dataclass(frozen=True)
class Into:
    """Where a worker puts finished rows; whole chunks, so every chunk has one writer."""

    uri: str

    def __call__(
        self, start: int, stop: int, index: AnyArray, distance: AnyArray
    ) -> dict[str, str]:
        return fill(self.uri, "index", start, index) | fill(self.uri, "distance", start, distance)


def _write(target: str, corpus: Corpus, asked: dict[str, Any]) -> None:
    shape = (corpus.X.shape[0], asked["k"])
    writer = Writer(target)
    writer.group("", "anndata")
    writer.group("uns", "dict")
    for path, dtype, none in (("index", np.int32, -1), ("distance", np.float64, np.inf)):
        zarr.create_array(
            writer.recorded,
            name=path,
            shape=shape,
            dtype=dtype,
            chunks=(min(GRAIN, shape[0]), shape[1]),
            fill_value=none,
            compressors=(BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()),
            filters=None,
            zarr_format=3,
            config={"write_empty_chunks": True},
        )
    written, info = stream_knn(corpus.X, sink=Into(target), **asked)
    for part in written:
        writer.checksums.update(part)
    seal(writer, {"version": manifest.VERSION, "shape": shape, "graph": info, "store": corpus.uri})
