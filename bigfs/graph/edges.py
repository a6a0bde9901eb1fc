"""The edges of a kNN graph: the neighbors of each sample, and bridges between the components."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from bigfs.types import AnyArray

Metric = Literal["cosine", "euclidean"]


class Bridges(NamedTuple):
    """The edges that join the components of a kNN graph, the shortest first."""

    samples: AnyArray  # (b, 2) int32: the ends of each edge, the lower number first
    distance: AnyArray  # (b,) float64
    n_components: int  # of the graph without them


@dataclass(frozen=True)
class Neighbors:
    """The k nearest neighbors of n samples, nearest first, equal distances by lower index.

    Parameters
    ----------
    index : ndarray of int32 of shape (n, k)
        Row numbers of the neighbors. −1 where a sample has fewer than k, which happens with the
        cosine metric if rows share nothing.
    distance : ndarray of float64 of shape (n, k)
        1 − cosine, or the Euclidean distance. inf where a neighbor is missing.
    metric : {"cosine", "euclidean"}
        Metric of the distances.
    info : dict, default={}
        How the graph was computed: `method`, the reason `why`, the `predicted` cost, and for an
        approximate graph the estimated `recall` and the size of its sample.
    bridges : Bridges or None, default=None
        Edges that join the components of the graph. None where nobody has looked for them.
    """

    index: AnyArray
    distance: AnyArray
    metric: str
    info: dict[str, Any] = field(default_factory=dict)
    bridges: Bridges | None = None
