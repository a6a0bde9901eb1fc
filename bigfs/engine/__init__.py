"""The one door to Dask: work by tile on this process, on a cluster of processes, or at an address.

A tile is a small key with `start`, `stop` and `load()`. One task is one tile's read and product;
its result is dense and small. Results come back in tile order and sums are taken in a fixed tree,
so the answer does not depend on the workers: neither on their number nor on the death of one.

With no `cluster(...)` around it the user's current `distributed.Client` is taken. Without one,
everything runs serially in this process.
"""

from bigfs.engine.cache import forget, keep, kept, load
from bigfs.engine.clusters import ClusterLost, client, cluster, n_workers, quiet_dask
from bigfs.engine.memory import (
    NotEnoughMemory,
    format_bytes,
    limited,
    memory_limit,
    parse_bytes,
    peak_memory,
    require_memory,
)
from bigfs.engine.tasks import (
    Progress,
    Tile,
    add,
    lazy_tiles,
    map_tiles,
    once,
    progress,
    reduce_tiles,
    show_progress,
)

__all__ = [
    "ClusterLost",
    "NotEnoughMemory",
    "Progress",
    "Tile",
    "add",
    "client",
    "cluster",
    "forget",
    "format_bytes",
    "keep",
    "kept",
    "lazy_tiles",
    "limited",
    "load",
    "map_tiles",
    "memory_limit",
    "n_workers",
    "once",
    "parse_bytes",
    "peak_memory",
    "progress",
    "quiet_dask",
    "reduce_tiles",
    "require_memory",
    "show_progress",
]
