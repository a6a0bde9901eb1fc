"""The engine: tasks by tile in this process, on a cluster of processes, or at an address.

It is the only package that imports Dask. A tile is a small key with `start`, `stop` and `load()`.
One task reads one tile and computes with it, and its result is dense and small. Results come back
in the order of the tiles, and sums are taken in a fixed tree. So the answer depends neither on the
number of workers nor on the death of one.

Outside a `cluster(...)` block the user's current `distributed.Client` runs the tasks. Without a
client they run serially in this process. A fit asks once (`session`).
"""

from dask.system import CPU_COUNT as CPU_COUNT
from dask.utils import format_bytes as format_bytes
from dask.utils import parse_bytes as parse_bytes

from bigfs.engine.budget import IDLE as IDLE
from bigfs.engine.budget import PLANNED as PLANNED
from bigfs.engine.budget import SHARES as SHARES
from bigfs.engine.budget import TILE_TASK as TILE_TASK
from bigfs.engine.budget import MemoryLimitError as MemoryLimitError
from bigfs.engine.budget import current_session as current_session
from bigfs.engine.budget import first_time as first_time
from bigfs.engine.budget import leave_unsaid as leave_unsaid
from bigfs.engine.budget import limit_memory as limit_memory
from bigfs.engine.budget import trim_memory as trim_memory
from bigfs.engine.clusters import ClusterLostError as ClusterLostError
from bigfs.engine.clusters import cluster as cluster
from bigfs.engine.clusters import prepare_workers as prepare_workers
from bigfs.engine.clusters import quiet_dask as quiet_dask
from bigfs.engine.executor import client as client
from bigfs.engine.executor import compute as compute
from bigfs.engine.executor import current_executor as current_executor
from bigfs.engine.executor import dask_array as dask_array
from bigfs.engine.executor import dask_slices as dask_slices
from bigfs.engine.executor import held_inputs as held_inputs
from bigfs.engine.executor import in_this_process as in_this_process
from bigfs.engine.executor import map_tiles as map_tiles
from bigfs.engine.executor import n_workers as n_workers
from bigfs.engine.executor import progress as progress
from bigfs.engine.executor import reduce_groups as reduce_groups
from bigfs.engine.executor import reduce_tiles as reduce_tiles
from bigfs.engine.executor import session as session
from bigfs.engine.executor import show_progress as show_progress
from bigfs.engine.executor import started_tiles as started_tiles
from bigfs.engine.executor import stream_tiles as stream_tiles
from bigfs.engine.lazy_blocks import LazyBlock as LazyBlock
from bigfs.engine.lazy_blocks import empty_block as empty_block
from bigfs.engine.lazy_blocks import is_lazy as is_lazy
from bigfs.engine.lazy_blocks import lazy_blocks as lazy_blocks
from bigfs.engine.lazy_blocks import lazy_inputs as lazy_inputs
from bigfs.engine.measure import on_workers as on_workers
from bigfs.engine.measure import peak_memory as peak_memory
from bigfs.engine.measure import processor_time as processor_time
from bigfs.engine.measure import processor_time_since as processor_time_since
from bigfs.engine.measure import reset_peak_memory as reset_peak_memory
from bigfs.engine.memory import lazy_zeros as lazy_zeros
from bigfs.engine.memory import memory_limit as memory_limit
from bigfs.engine.memory import planned_memory as planned_memory
from bigfs.engine.memory import require_memory as require_memory
from bigfs.engine.memory import spare_memory as spare_memory
from bigfs.engine.memory import task_memory as task_memory
from bigfs.engine.shared import Shared as Shared
from bigfs.engine.shared import unshare as unshare
from bigfs.engine.workers import Source as Source
from bigfs.engine.workers import clear_cache as clear_cache
from bigfs.engine.workers import get_cached as get_cached
from bigfs.engine.workers import is_cached as is_cached
from bigfs.engine.workers import load as load
from bigfs.engine.workers import make_room as make_room
from bigfs.engine.workers import one_blas_thread as one_blas_thread
