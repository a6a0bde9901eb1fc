"""Blocks of a Dask collection as keys: small tasks that make a block where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import dask
from dask.base import is_dask_collection
from dask.core import get_dependencies
from dask.delayed import Delayed


def is_lazy(X: Any) -> bool:
    """Return whether X is an array or data frame of Dask, whatever library makes its graph."""
    return bool(is_dask_collection(X)) and hasattr(X, "to_delayed") and hasattr(X, "shape")


def empty_block(X: Any) -> Any:
    """Return an empty block of a Dask array, of the kind that its blocks have."""
    from dask.array.utils import meta_from_array  # takes 0.4 s, which a Dask array has paid

    return meta_from_array(X)


class OwnTasks:
    """The tasks that one block needs and no other. Dask does not look into it."""

    def __init__(self, key: Any, graph: dict[Any, Any], input_keys: tuple[Any, ...]) -> None:
        self.key, self.graph, self.input_keys = key, graph, input_keys


@dataclass(frozen=True)
class LazyBlock:
    """Key of a block of a Dask collection."""

    tasks: OwnTasks
    inputs: tuple[Any, ...]

    def load(self) -> Any:
        """Compute the block in this process."""
        values = zip(self.tasks.input_keys, self.inputs, strict=True)
        return dask.get(self.tasks.graph | dict(values), self.tasks.key)


def lazy_blocks(parts: Sequence[Delayed]) -> list[LazyBlock]:
    """Return a key for each block of a Dask collection."""
    graph: dict[Any, Any] = {}
    for unseen in {id(part.dask): part.dask for part in parts}.values():
        graph |= dict(unseen)
    needs = {key: _needs(graph, key) for key in graph}
    users = _users([part.key for part in parts], needs)
    shared = {key: graph[key] for key in users if key in graph and users[key].bit_count() > 1}
    blocks = []
    for part in parts:
        own: dict[Any, Any] = {}
        inputs: list[Any] = []
        waiting, seen = [part.key], {part.key}
        while waiting:
            key = waiting.pop()
            if key in shared or key not in graph or key in needs[key]:
                inputs.append(key)
                continue
            own[key] = graph[key]
            new = needs[key] - seen
            seen |= new
            waiting += new
        lazy = tuple(
            Delayed(key, shared if key in shared else {k: graph[k] for k in [key] if k in graph})
            for key in inputs
        )
        blocks.append(LazyBlock(OwnTasks(part.key, own, tuple(inputs)), lazy))
    return blocks


def _needs(graph: dict[Any, Any], key: Any) -> set[Any]:
    """Return the keys that a task depends on. A value that a cluster holds depends on itself."""
    task = graph[key]
    return set(task.dependencies if hasattr(task, "dependencies") else get_dependencies(graph, key))


def _users(blocks: Sequence[Any], needs: dict[Any, set[Any]]) -> dict[Any, int]:
    """Return which blocks need each key, as bits of an integer."""
    order: list[Any] = []  # each key after those that it depends on
    seen: set[Any] = set()
    for block in blocks:
        waiting = [(block, False)]
        while waiting:
            key, is_done = waiting.pop()
            if is_done:
                order.append(key)
            elif key not in seen:
                seen.add(key)
                waiting.append((key, True))
                waiting += [(needed, False) for needed in needs.get(key, ())]
    users = dict.fromkeys(order, 0)
    for i, block in enumerate(blocks):
        users[block] |= 1 << i
    for key in reversed(order):
        for needed in needs.get(key, ()):
            users[needed] |= users[key]
    return users


def lazy_inputs(*operands: Any) -> list[Delayed]:
    """Return the lazy values that operands hold, each once. A task that gets the operands waits for
    all of them, and has all of them in memory."""
    inputs: dict[Any, Delayed] = {}
    waiting = list(operands)
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Delayed):
            inputs[operand.key] = operand
        elif isinstance(operand, list | tuple):
            waiting += operand
        elif is_dataclass(operand) and not isinstance(operand, type):
            waiting += [getattr(operand, field.name) for field in fields(operand)]
    return list(inputs.values())
