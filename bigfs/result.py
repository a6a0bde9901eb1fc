"""What a solver gives back, and the one loop that every method steps through."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

State = TypeVar("State")
Record = dict[str, float]


class Status(StrEnum):
    """How a run ended. The value is the advice that the user reads."""

    CONVERGED = "converged to the tolerance asked for"
    EXACT = "solved in closed form; there is nothing to converge"
    MAX_ITER = "stopped at the iteration limit; raise max_iter or loosen tol"
    STALLED = "no further progress in floating point; loosen tol or rescale the data"
    NOT_FINITE = (
        "met NaN or infinity; look for extreme values in the data or raise the regularization"
    )


class NotConverged(UserWarning):
    """A run ended before its tolerance; the message says how far from the optimum."""


@dataclass(frozen=True)
class Result(Generic[State]):
    """A value with its status, one record per step in `history`, and counts in `stats`."""

    value: State
    status: Status
    history: list[Record] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        return self.status in (Status.CONVERGED, Status.EXACT)


class Checkpoint(Protocol):
    """Keeps the states of a run's loops between their steps; `storage.runs` has the one on disk.

    A loop is known by its name. A state is a NamedTuple; `load` gives its fields back in order.
    """

    def load(self, name: str) -> tuple[tuple[Any, ...], list[Record]] | None: ...

    def save(self, name: str, state: Any, history: list[Record]) -> None: ...


class _Observer(NamedTuple):
    callback: Callable[[str, Record], None] | None = None
    checkpoint: Checkpoint | None = None


_UNOBSERVED = _Observer()
_observer: ContextVar[_Observer] = ContextVar("observer", default=_UNOBSERVED)


@contextlib.contextmanager
def observed(
    callback: Callable[[str, Record], None] | None = None, checkpoint: Checkpoint | None = None
) -> Iterator[None]:
    """Watch the loops of the block: `callback(name, record)` after each step, states to
    `checkpoint`.

    What is None stays as an enclosing `observed` set it. Only outermost loops are observed: a
    solver's inner iterations belong to their step.
    """
    outer = _observer.get()
    token = _observer.set(_Observer(callback or outer.callback, checkpoint or outer.checkpoint))
    try:
        yield
    finally:
        _observer.reset(token)


def iterate(
    step: Callable[[State], State],
    state: State,
    *,
    measure: Callable[[State], Record],
    stop: str,
    tol: float,
    max_iter: int,
    name: str,
) -> Result[State]:
    """Step until `measure(state)[stop] <= tol`.

    Parameters
    ----------
    step : pure function from a state (a NamedTuple of arrays and numbers) to the next one.
    measure : the numbers of a state that go to the history; they are relative where they
        decide the stop. A number that is not finite ends the run, except that the stop's
        own number may be infinite while nothing is known yet.
    stop : the name, in `measure`'s record, of the number compared with `tol`.
    name : what runs, for the warning, the progress and the checkpoint. Inside `observed(...)` a run
        that finds a checkpoint of this name goes on from it.

    Returns
    -------
    Result with the last state. A run that ends early says so by its status and warns.
    """
    callback, checkpoint = _observer.get()
    history: list[Record] = []
    saved = checkpoint.load(name) if checkpoint is not None else None
    if saved is not None:
        state, history = type(state)(*saved[0]), list(saved[1])
    token = _observer.set(_UNOBSERVED)
    try:
        status = Status.CONVERGED if history and history[-1][stop] <= tol else None
        while status is None:
            if len(history) >= max_iter:
                status = Status.MAX_ITER
                break
            state = step(state)
            history.append(measure(state))
            status = _verdict(history[-1], stop, tol)
            if callback is not None:
                callback(name, history[-1])
            if checkpoint is not None and status is not Status.NOT_FINITE:
                checkpoint.save(name, state, history)
    finally:
        _observer.reset(token)
    if status is not Status.CONVERGED:
        warnings.warn(
            f"{name} {status} ({_left(history, stop)}, asked for {tol:.0e})",
            NotConverged,
            stacklevel=2,
        )
    return Result(state, status, history)


def _left(history: list[Record], stop: str) -> str:
    """How far a run is from its tolerance: the stop's number, or the violation where the former is
    not known yet.
    """
    record = history[-1] if history else {}
    known = next((key for key in (stop, "violation") if np.isfinite(record.get(key, np.inf))), None)
    return f"{stop} not known yet" if known is None else f"{known} {record[known]:.2e}"


def _verdict(record: Record, stop: str, tol: float) -> Status | None:
    if not all(np.isfinite(v) or (k == stop and v == np.inf) for k, v in record.items()):
        return Status.NOT_FINITE
    return Status.CONVERGED if record[stop] <= tol else None
