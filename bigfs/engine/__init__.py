"""The engine: tasks by tile in this process, on a cluster of processes, or at an address.

It is the only package that imports Dask. A tile is a small key with `start`, `stop` and `load()`.
One task reads one tile and computes with it, and its result is dense and small. Results come back
in the order of the tiles, and sums are taken in a fixed tree. So the answer depends neither on the
number of workers nor on the death of one.

Outside a `cluster(...)` block the user's current `distributed.Client` runs the tasks. Without a
client they run serially in this process.
"""

from dask.utils import format_bytes, parse_bytes

from bigfs.engine.budget import (
    DRIVER_LIBRARIES,
    KERNELS,
    LIBRARIES,
    PLANNED,
    SHARES,
    TILE_TASK,
    NotEnoughMemory,
    limit_memory,
    trim_memory,
)
from bigfs.engine.clusters import (
    ClusterLost,
    client,
    cluster,
    n_workers,
    prepare_workers,
    quiet_dask,
)
from bigfs.engine.kept import KeptOperands, while_lost
from bigfs.engine.lazy_blocks import LazyBlock, empty_block, is_lazy, lazy_blocks, lazy_inputs
from bigfs.engine.measure import (
    peak_memory,
    processor_time,
    processor_time_since,
    reset_peak_memory,
)
from bigfs.engine.memory import (
    lazy_zeros,
    memory_limit,
    planned_memory,
    require_memory,
    task_memory,
)
from bigfs.engine.scratch import ScratchFile
from bigfs.engine.shared import Shared, unshared
from bigfs.engine.tasks import (
    Progress,
    Tile,
    add,
    beside,
    compute,
    dask_array,
    dask_slices,
    dask_vector,
    in_this_process,
    lazy_tiles,
    map_tiles,
    progress,
    reduce_groups,
    reduce_tiles,
    shared_operand,
    show_progress,
    started_tiles,
    stream_tiles,
)
from bigfs.engine.workers import (
    clear_cache,
    get_cached,
    is_cached,
    load,
    make_room,
    one_blas_thread,
)

__all__ = [
    "DRIVER_LIBRARIES",
    "KERNELS",
    "LIBRARIES",
    "PLANNED",
    "SHARES",
    "TILE_TASK",
    "ClusterLost",
    "KeptOperands",
    "LazyBlock",
    "NotEnoughMemory",
    "Progress",
    "ScratchFile",
    "Shared",
    "Tile",
    "add",
    "beside",
    "clear_cache",
    "client",
    "cluster",
    "compute",
    "dask_array",
    "dask_slices",
    "dask_vector",
    "empty_block",
    "format_bytes",
    "get_cached",
    "in_this_process",
    "is_cached",
    "is_lazy",
    "lazy_blocks",
    "lazy_inputs",
    "lazy_tiles",
    "lazy_zeros",
    "limit_memory",
    "load",
    "make_room",
    "map_tiles",
    "memory_limit",
    "n_workers",
    "one_blas_thread",
    "parse_bytes",
    "peak_memory",
    "planned_memory",
    "prepare_workers",
    "processor_time",
    "processor_time_since",
    "progress",
    "quiet_dask",
    "reduce_groups",
    "reduce_tiles",
    "require_memory",
    "reset_peak_memory",
    "shared_operand",
    "show_progress",
    "started_tiles",
    "stream_tiles",
    "task_memory",
    "trim_memory",
    "unshared",
    "while_lost",
]
