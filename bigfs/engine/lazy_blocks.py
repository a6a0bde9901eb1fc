"""Blocks of a Dask collection as keys: small tasks that make a block where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any

import dask
import numpy as np
import scipy.sparse as sp
from dask.base import is_dask_collection
from dask.core import flatten, get_dependencies
from dask.optimization import cull

from bigfs.result import holding

# the values of the inputs that are at hand: in a task all of its own, in the driver those it holds
_values: ContextVar[Mapping[Any, Any]] = ContextVar("inputs", default=MappingProxyType({}))
SEVERAL = -1  # the owner of a task that more than one block needs


def is_lazy(X: Any) -> bool:
    """Return whether X is an array or data frame of Dask, whatever library makes its graph."""
    return bool(is_dask_collection(X)) and hasattr(X, "to_delayed") and hasattr(X, "shape")


def empty_block(X: Any) -> Any:
    """Return an empty block of a Dask array, of the kind that its blocks have."""
    from dask.array.utils import meta_from_array  # takes 0.4 s, which a Dask array has paid

    return meta_from_array(X)


@dataclass(frozen=True)
class Input:
    """A value that several blocks need, or that a cluster holds. Only its key travels."""

    key: Any
    graph: Any = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Input, (self.key,)


@dataclass(frozen=True)
class LazyBlock:
    """Keys of neighboring blocks of a Dask collection, with the tasks that no other block needs."""

    keys: tuple[Any, ...]
    graph: dict[Any, Any] = field(repr=False)
    inputs: tuple[Input, ...] = ()

    def load(self, axis: int = 0) -> Any:
        """Compute the blocks in this process, and join them along an axis."""
        values = _values.get()
        inputs = {needed.key: values[needed.key] for needed in self.inputs}
        blocks = dask.get(self.graph | inputs, list(self.keys))
        if len(blocks) == 1:
            return blocks[0]
        if any(hasattr(block, "indptr") for block in blocks):
            return sp.vstack(blocks, "csr") if axis == 0 else sp.hstack(blocks, "csc")
        return np.concatenate(blocks, axis)

    def __add__(self, other: LazyBlock) -> LazyBlock:
        """Return what computes the blocks of both."""
        return LazyBlock(
            self.keys + other.keys, self.graph | other.graph, self.inputs + other.inputs
        )


def lazy_blocks(X: Any) -> list[LazyBlock]:
    """Return a key for each block of a Dask collection, in order."""
    (optimized,) = dask.optimize(X)
    # the values that a cluster holds are only in the graph as it was
    graph = dict(X.__dask_graph__()) | dict(optimized.__dask_graph__())
    keys = list(flatten(optimized.__dask_keys__()))
    owner: dict[Any, int] = {}
    for block, key in enumerate(keys):
        waiting = [key]
        while waiting:
            needed = waiting.pop()
            if owner.get(needed) in (block, SEVERAL):
                continue
            owner[needed] = block if needed not in owner else SEVERAL
            waiting += _needs(graph, needed)
    return [_lazy_block(graph, key, owner) for key in keys]


def _lazy_block(graph: dict[Any, Any], key: Any, owner: dict[Any, int]) -> LazyBlock:
    own, inputs, waiting = dict[Any, Any](), list[Input](), [key]
    seen = {key}
    while waiting:
        needed = waiting.pop()
        needs = _needs(graph, needed)
        if _is_held(graph[needed]) or (
            owner[needed] == SEVERAL and (needs or _is_array(graph[needed]))
        ):
            inputs.append(Input(needed, graph))
            continue
        own[needed] = graph[needed]  # a handle that others need too, such as a file, is inlined
        waiting += needs - seen
        seen |= needs
    return LazyBlock((key,), own, tuple(inputs))


def _needs(graph: dict[Any, Any], key: Any) -> set[Any]:
    """Return the keys that a task depends on."""
    task = graph[key]
    needs = task.dependencies if hasattr(task, "dependencies") else get_dependencies(graph, key)
    return set(needs) - {key}


def _is_held(task: Any) -> bool:
    """Return whether a value of a graph lies on a cluster."""
    return hasattr(task, "client") and hasattr(task, "status")


def _is_array(task: Any) -> bool:
    value = getattr(task, "value", task)  # of a node of data
    return isinstance(value, np.ndarray) or hasattr(value, "indptr")


# --- what tasks wait for --------------------------------------------------------------------------


def lazy_inputs(*operands: Any) -> dict[Any, Input]:
    """Return the inputs that operands hold, each once.

    A task that gets the operands waits for all of them, and has all of them in memory.
    """
    inputs = dict[Any, Input]()
    waiting = list(operands)
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Input):
            inputs[operand.key] = operand
        elif isinstance(operand, list | tuple):
            waiting += operand
        elif is_dataclass(operand) and not isinstance(operand, type):
            waiting += [getattr(operand, part.name) for part in fields(operand)]
    return inputs


def graph_of_inputs(inputs: Mapping[Any, Input]) -> dict[Any, Any]:
    """Return the tasks that make these inputs, and those that the driver holds as they are."""
    held, graph = _values.get(), dict[Any, Any]()
    missing: dict[int, tuple[Any, list[Any]]] = {}  # by their graph
    for key, needed in inputs.items():
        if key in held:
            graph[key] = held[key]
        else:
            missing.setdefault(id(needed.graph), (needed.graph, []))[1].append(key)
    for whole, keys in missing.values():
        graph |= cull(whole, keys)[0]
    return graph


@contextmanager
def having_inputs(values: Mapping[Any, Any]) -> Iterator[None]:
    """Let blocks find the values of inputs by their keys in the block."""
    with holding(_values, {**_values.get(), **values}):
        yield


class WithInputs:
    """A function of operands, which first gets the values of the inputs with these keys."""

    def __init__(self, fn: Callable[..., Any], keys: Sequence[Any]) -> None:
        self.fn, self.keys = fn, list(keys)
        self.__name__ = getattr(fn, "__name__", "task")

    def __call__(self, inputs: list[Any], *operands: Any) -> Any:
        with having_inputs(dict(zip(self.keys, inputs, strict=True))):
            return self.fn(*operands)
