"""The one door to Dask: work by tile on this process, on a cluster of processes, or at an address.

A tile is a small key with `start`, `stop` and `load()`. One task is one tile's read and product; its
result is dense and small. Results come back in tile order and sums are taken in a fixed tree, so
the answer does not depend on the workers: neither on their number nor on the death of one.

With no `cluster(...)` around it the user's current `distributed.Client` is taken. Without one, everything runs serially in
this process.
"""

from bigfs.blocks.engine import ClusterLost, client, cluster, n_workers
from bigfs.blocks.memory import NotEnoughMemory, limited, memory_limit, peak_memory, require_memory
from bigfs.blocks.tasks import Progress, Tile, add, lazy_tiles, map_tiles, once, progress, reduce_tiles, show_progress
from bigfs.blocks.worker import forget, keep, kept, load

__all__ = [
    "ClusterLost",
    "NotEnoughMemory",
    "Progress",
    "Tile",
    "add",
    "client",
    "cluster",
    "forget",
    "keep",
    "kept",
    "lazy_tiles",
    "limited",
    "load",
    "map_tiles",
    "memory_limit",
    "n_workers",
    "once",
    "peak_memory",
    "progress",
    "reduce_tiles",
    "require_memory",
    "show_progress",
]
