"""kNN graphs next to their store, written by the workers in blocks of rows.

The same settings find the same graph. It lies in

    news20.graphs/<key>.zarr/
        zarr.json            the manifest, written last: k, metric, method, why, measured recall
        index/  distance/    n × k: int32 (−1: none), float64 (inf: none)
        bridges/             b × 2: int32, the edges that join components; absent without any
        bridge_distance/     b: float64
        uns/checksums/       the checksum of every document
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.cards import brief
from bigfs.graph import Bridges, Neighbors, find_bridges, stream_knn
from bigfs.graph.approximate.cost import predict
from bigfs.graph.row_blocks import row_alignment
from bigfs.storage import atomic
from bigfs.storage.corpus import Corpus
from bigfs.storage.errors import CorruptStoreError, StoreError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.format import manifest
from bigfs.storage.format.verified import StoreRef
from bigfs.storage.format.writer import Target, Writer, open_unpublished, seal, write_chunks
from bigfs.storage.opening import CorpusView, require_staged
from bigfs.types import AnyArray


@dataclass(frozen=True)
class Graph:
    """Refer to a kNN graph that is stored next to its corpus.

    `graph` and `open_graph` return it. The neighbors are read by `neighbors`.

    Parameters
    ----------
    uri : str
        Path or URL of the stored graph.
    shape : tuple of int
        Numbers of samples and of neighbors per sample, (n, k).
    info : dict
        How the graph was computed: the metric, the method, why it was chosen, and the measured
        recall if it is approximate.
    content : str
        Hash of the content.
    made : bool, default=False
        Whether the call that returned this graph computed it.

    See Also
    --------
    graph : Compute a graph, or find the stored one.
    open_graph : Open a stored graph.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> graph = storage.graph(storage.open(uri), k=3)
    >>> graph.shape, graph.made
    ((100, 3), True)
    >>> graph.neighbors(0, 10).index.shape
    (10, 3)
    """

    __repr__ = brief

    uri: str
    shape: tuple[int, int]
    info: dict[str, Any]
    content: str
    made: bool = field(default=False, compare=False)  # by this call; False: found

    def neighbors(self, start: int = 0, stop: int | None = None) -> Neighbors:
        """Read the neighbors of a range of samples into memory.

        Parameters
        ----------
        start : int, default=0
            First sample.
        stop : int or None, default=None
            End of the range. None reads up to the last sample.

        Returns
        -------
        Neighbors
            The neighbors of the samples [start, stop), and the bridges if these are all samples.

        Raises
        ------
        CorruptStoreError
            A chunk is missing or is not what was written. The message names it.
        """
        store = StoreRef(self.uri, self.content)
        index, distance = (store.read(path, start, stop) for path in ("index", "distance"))
        bridges = None
        if len(index) == self.shape[0]:
            samples, length = np.empty((0, 2), np.int32), np.empty(0)
            if self.info["n_joined"]:
                samples, length = store.read("bridges"), store.read("bridge_distance")
            bridges = Bridges(samples, length, self.info["n_components"])
        return Neighbors(index, distance, self.info["metric"], self.info, bridges)


@engine.session()
def graph(
    corpus: CorpusView,
    k: int = 10,
    *,
    metric: str = "cosine",
    method: str = "auto",
    recall: float = 0.95,
    candidates: int | None = None,
    wait: float = -1,
) -> Graph:
    """Compute the kNN graph of a corpus, or find the one stored next to it.

    The workers write the graph block by block. The same settings find the same graph.

    Parameters
    ----------
    corpus : Corpus
        The samples.
    k : int, default=10
        Number of neighbors per sample.
    metric : {"cosine", "euclidean"}, default="cosine"
        Distance. "cosine" finds only samples that share a feature.
    method : {"auto", "exact", "approx"}, default="auto"
        "exact" compares all pairs. "approx" compares sketches of the samples first. "auto" takes
        "exact" while its predicted cost is below ten minutes of one core.
    recall : float, default=0.95
        Share of the true neighbors that "approx" has to find.
    candidates : int or None, default=None
        Number of candidates per sample that "approx" compares exactly. None takes half as many
        again as k.
    wait : float, default=-1
        Seconds to wait while another process computes the same graph. -1 waits as long as it takes.

    Returns
    -------
    Graph
        The stored graph.

    Raises
    ------
    ValueError
        k is outside 1 … n − 1, the metric or method is unknown, the candidates do not reach the
        recall, or a recall is asked of an exact graph.
    StoreError
        Another process holds the graph, or the disk is full.
    CorruptStoreError
        The stored graph is not what was written.

    See Also
    --------
    open_graph : Open a stored graph by its URI.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> graph = storage.graph(storage.open(uri), k=3)
    >>> graph.shape
    (100, 3)
    """
    staged = require_staged(corpus)
    settings: dict[str, Any] = {"k": k, "metric": metric, "method": method}
    if method == "exact" and (recall, candidates) != (0.95, None):
        raise ValueError("recall and candidates are for an approximate graph: leave them out")
    if method != "exact":
        settings |= {"recall": recall, "candidates": candidates}
    uri, made = graph_uri(staged, settings), False
    if not manifest.is_there(uri):
        with atomic.building(uri, manifest.is_there, wait) as (target, _):
            if not manifest.is_there(uri):
                _write(target, staged, settings)
                made = True
    return replace(open_graph(uri), made=made)


def graph_uri(corpus: Corpus, settings: dict[str, Any]) -> str:
    """Return where the graph of these rows with these settings is kept."""
    rows = [segment.name for segment in corpus.segments]
    key = fingerprint_of(
        "graph", manifest.VERSION, corpus.manifest.content, rows, sorted(settings.items())
    )
    return f"{corpus.uri.removesuffix('.zarr')}.graphs/{key[:16]}.zarr"


def open_graph(uri: str) -> Graph:
    """Open a stored graph.

    Parameters
    ----------
    uri : str
        Path or URL of the graph, as in `Graph.uri`.

    Returns
    -------
    Graph
        The graph. Its neighbors are not read yet.

    Raises
    ------
    StoreError
        Nothing is there, or it is not a graph, or it is of a newer version.
    CorruptStoreError
        The graph is not what was written.

    See Also
    --------
    graph : Compute a graph, or find the stored one.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> graph = storage.graph(storage.open(uri), k=3)
    >>> storage.open_graph(graph.uri) == graph
    True
    """
    body = manifest.read_root(uri)
    if "graph" not in body:
        raise StoreError(f"{uri} holds no graph: run `bigfs graph` on its store first")
    info, shape = body["graph"], body.get("shape")
    if not (
        isinstance(info, dict)
        and "metric" in info
        and isinstance(shape, list)
        and len(shape) == 2
        and "content" in body
    ):
        raise CorruptStoreError(
            f"{uri}: bigfs did not write its manifest: remove the graph and repeat the command"
        )
    return Graph(uri, (int(shape[0]), int(shape[1])), info, body["content"])


def _write_rows(
    target: Target, start: int, stop: int, index: AnyArray, distance: AnyArray
) -> dict[str, str]:
    """Write finished rows from a worker, in whole chunks, so that each chunk has one writer."""
    return write_chunks(target, "index", start, [index]) | write_chunks(
        target, "distance", start, [distance]
    )


def _write(uri: str, corpus: Corpus, settings: dict[str, Any]) -> None:
    shape = (corpus.X.shape[0], settings["k"])
    rows = min(row_alignment(predict(shape[0], corpus.X.stats.nnz)), shape[0])
    writer = Writer(uri)
    writer.group("", "anndata")
    writer.group("uns", "dict")
    writer.create("index", shape, np.int32, rows, sharded=False)
    writer.create("distance", shape, np.float64, rows, sharded=False)
    target = writer.target("index", "distance")
    written, info = stream_knn(corpus.X, sink=partial(_write_rows, target), **settings)
    for part in written:
        writer.checksums.update(part)
    index = open_unpublished(target, "index")
    bridges = find_bridges(
        corpus.X,
        ((i, np.asarray(index[i : i + rows])) for i in range(0, shape[0], rows)),
        metric=info["metric"],
        approximate=info["method"] == "approx",
    )
    info |= {"n_components": bridges.n_components, "n_joined": len(bridges.distance)}
    if len(bridges.distance):
        for path, values in (("bridges", bridges.samples), ("bridge_distance", bridges.distance)):
            writer.create(path, values.shape, values.dtype, len(values))
            writer.append(path, 0, [values])
    for path in ("index", "distance"):  # their blocks of rows need not end where a shard does
        writer.gather(path)
    about = {"shape": shape, "graph": info, "store": corpus.uri, "of": corpus.manifest.content}
    seal(writer, about)
