"""The result of a solver, and the iteration loop that all methods share."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bigfs import cards

State = TypeVar("State")
Record = dict[str, float]
ALL = "all features"  # in the place of a method, in a curve


class Status(StrEnum):
    """How a run ended.

    The value of each member is the sentence that the user reads, with advice where the run ended
    early.

    Attributes
    ----------
    CONVERGED : str
        A certificate of the result, such as a gap or a residual, reached the tolerance.
    EXACT : str
        The solution has a closed form.
    FINISHED : str
        The run ended by its own rule: it made all its steps, or a step changed little. No
        certificate says how good the result is.
    MAX_ITER : str
        The run stopped at its iteration limit.
    GRID_END : str
        The run reached the least penalty of its grid before enough features had a weight.
    STALLED : str
        The run made no further progress in floating point.
    ROUNDED : str
        The run stopped at its iteration limit, with products in single precision whose rounding may
        be as large as the penalty. More iterations would not help.
    MEMORY : str
        The next step would have taken more memory than this process may use.
    LIMIT : str
        The exact choice reached its limit of nodes, of seconds or of lists.
    NOT_FINITE : str
        The run met NaN or infinity.

    See Also
    --------
    Result : Holds the status of a run.
    NotConvergedWarning : The warning of a run that ended early.

    Examples
    --------
    >>> from bigfs.result import Status
    >>> Status.MAX_ITER.name
    'MAX_ITER'
    >>> print(Status.MAX_ITER)
    stopped at the iteration limit: raise max_iter or tol
    """

    CONVERGED = "converged to the requested tolerance"
    EXACT = "solved in closed form, without iterations"
    FINISHED = "ended by its own rule; no certificate says how good the result is"
    MAX_ITER = "stopped at the iteration limit: raise max_iter or tol"
    GRID_END = (
        "stopped at the least penalty with too few features of a weight: choose fewer features"
    )
    STALLED = "stopped at the limit of floating point: raise tol or rescale the data"
    ROUNDED = (
        "stopped where products in single precision are rounded by more than the penalty: "
        "raise gamma or tol, or choose fewer features"
    )
    MEMORY = (
        "stopped because the next step does not fit in memory: raise the memory limit, gamma or tol"
    )
    LIMIT = "stopped at its limit of nodes, seconds or lists: raise it or the gap that is asked for"
    NOT_FINITE = "stopped at NaN or infinity: remove extreme values or raise the regularization"


class NotConvergedWarning(UserWarning):
    """Warning of a run that ended before its tolerance.

    The message says why the run ended and how far it is from the optimum.

    See Also
    --------
    Status : How a run ended.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import RLSR
    >>> from bigfs.result import NotConvergedWarning
    >>> X, y = load_iris(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", NotConvergedWarning)
    ...     selector = RLSR(max_iter=1, tol=1e-9).fit(X, y)
    >>> selector.result_.status.name
    'MAX_ITER'
    """


log = logging.getLogger(__name__)
NOISE = 1e-9  # of a relative gap
STOPS = ("gap", "violation", "error", "change")  # what loops drive to zero


@dataclass(frozen=True)
class Result(Generic[State]):
    """Hold the value that a solver returns, with its status and history.

    Parameters
    ----------
    value : object
        The last state of the run.
    status : Status
        How the run ended.
    history : list of dict, default=[]
        One record of numbers per step.
    stats : dict, default={}
        Counts and measurements of the whole run.

    Attributes
    ----------
    converged : bool
        Whether the value is a solution.

    See Also
    --------
    Status : How a run ended.
    NotConvergedWarning : The warning of a run that ended early.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SparGE
    >>> X, y = load_iris(return_X_y=True)
    >>> result = SparGE(n_features_to_select=2).fit(X, y).result_
    >>> result.status.name, result.converged
    ('CONVERGED', True)
    >>> sorted(result.history[-1])
    ['features', 'gap', 'lower', 'sets', 'upper']
    """

    value: State
    status: Status
    history: list[Record] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        facts = {name: value for name, value in self.facts().items() if name not in self.stats}
        return f"Result({', '.join(f'{k}={cards.readable(v)}' for k, v in facts.items())})"

    def _repr_html_(self) -> str:
        """Return a card for notebooks."""
        return cards.card("Result", self.facts(), self.curve())

    def facts(self) -> dict[str, Any]:
        """Return the status, the last record and the counts.

        Returns
        -------
        dict
            Their values by name, for a card or a line of a log.
        """
        last = dict(self.history[-1]) if self.history else {}
        counts: dict[str, Any] = {
            name: value for name, value in self.stats.items() if np.isscalar(value)
        }
        facts: dict[str, Any] = {"status": str(self.status), "steps": len(self.history) or None}
        if "gap" in last and "objective_gap" in counts:  # two gaps, each with its name
            features, relaxation = counts.pop("objective_gap"), last.pop("gap")
            facts["gap of the features"] = f"{100 * features:.2f} %"
            facts["gap of the relaxation"] = f"{100 * relaxation:.2f} %"
        return facts | last | counts

    def curve(self) -> str:
        """Draw the number that decides when to stop.

        Returns
        -------
        str
            Its curve over the steps as an SVG. Empty without one.
        """
        name = next((n for n in STOPS if self.history and n in self.history[-1]), None)
        return cards.curve(name, [r[name] for r in self.history if name in r]) if name else ""

    @property
    def converged(self) -> bool:
        """Whether the run came to its end and did not stop before."""
        return self.status in (Status.CONVERGED, Status.EXACT, Status.FINISHED)


@contextlib.contextmanager
def holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Let a context variable have a value inside a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class Checkpoint(Protocol):
    """Storage of the states of a run's loops between their steps."""

    def load(self, name: str) -> tuple[tuple[Any, ...], list[Record]] | None: ...

    def save(self, name: str, state: Any, history: list[Record]) -> None: ...


class _Observer(NamedTuple):
    callback: Callable[[str, Record], None] | None
    checkpoint: Checkpoint | None
    begun: Counter[str]  # loops of each scoped name, with a checkpoint


_UNOBSERVED = _Observer(None, None, Counter())
_scope: ContextVar[tuple[str, ...]] = ContextVar("scope", default=())
_observer: ContextVar[_Observer] = ContextVar("observer", default=_UNOBSERVED)


@contextlib.contextmanager
def observe(
    callback: Callable[[str, Record], None] | None = None, checkpoint: Checkpoint | None = None
) -> Iterator[None]:
    """Watch the loops of a block of code.

    Only outermost loops are observed. The inner iterations of a solver belong to their step. Each
    loop has a checkpoint of its own. The second loop of a name in the same `scope` has a 2 after
    its name, and so on. So a run that resumes must run its loops in the same order.

    Parameters
    ----------
    callback : callable or None, default=None
        Called as ``callback(name, record)`` after each step. None keeps the callback of an
        enclosing `observe`.
    checkpoint : Checkpoint or None, default=None
        Stores the state after each step. A run that finds its state there resumes from it. None
        keeps the checkpoint of an enclosing `observe`, and the count of its loops.

    Yields
    ------
    None
        Nothing. The block runs under observation.

    See Also
    --------
    Result : Holds the same records after the run.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import SparGE
    >>> from bigfs.result import observe
    >>> X, y = load_iris(return_X_y=True)
    >>> names = set()
    >>> with observe(lambda name, record: names.add(name)):
    ...     selector = SparGE(n_features_to_select=2).fit(X, y)
    >>> names
    {'SparGE'}
    """
    outer = _observer.get()
    begun = outer.begun if checkpoint is None else Counter()
    inner = _Observer(callback or outer.callback, checkpoint or outer.checkpoint, begun)
    with holding(_observer, inner):
        yield


def scope(name: str) -> contextlib.AbstractContextManager[None]:
    """Put a name, such as a fold's, before the names of the loops in a block, for checkpoints."""
    return holding(_scope, (*_scope.get(), name))


_early_ends: ContextVar[list[str] | None] = ContextVar("early_ends", default=None)


@contextlib.contextmanager
def early_ends() -> Iterator[list[str]]:
    """Collect what the runs of a block say that end before their tolerance, in place of warning.

    Filters of warnings hold for all threads. This one holds for the thread of the block alone.
    """
    messages = list[str]()
    with holding(_early_ends, messages):
        yield messages


def warn_early_end(message: str, stacklevel: int = 2) -> None:
    """Say that a run ended before its tolerance."""
    if (messages := _early_ends.get()) is not None:
        messages.append(message)
    else:
        warnings.warn(message, NotConvergedWarning, stacklevel=stacklevel + 1)


def iterate(
    step: Callable[[State], State],
    state: State,
    *,
    measure: Callable[[State], Record],
    stop: str,
    tol: float,
    max_iter: int,
    name: str,
    no_room: type[MemoryError] | None = None,
    reached: Status = Status.CONVERGED,
    ends: Callable[[State], Status | None] = lambda state: None,
    at_limit: Callable[[State], Status] = lambda state: Status.MAX_ITER,
    why: Callable[[], str] = lambda: "",
) -> Result[State]:
    """Step until `measure(state)[stop] <= tol`.

    Inside `observe(...)` a run that finds a checkpoint of its name resumes from it.

    Parameters
    ----------
    step : callable
        Pure function from a state to the next one.
    state : NamedTuple
        First state, of arrays and numbers.
    measure : callable
        Function from a state to its record in the history. A number that is not finite ends the
        run, except that the number `stop` may be infinite while it is unknown.
    stop : str
        Key of the number in the record that is compared with `tol`.
    tol : float
        Tolerance. It is relative where `measure` gives a relative number.
    max_iter : int
        Maximum number of steps.
    name : str
        Name of the run, for the warning, the progress and the checkpoint.
    no_room : type of MemoryError or None, default=None
        The error that a step raises where it does not fit in memory. After the first step this
        error ends the run at the last state. With None it is raised.
    reached : Status, default=Status.CONVERGED
        Status of a run that ends at `tol`. A loop that counts its steps down, or ends where a step
        changes little, gives FINISHED.
    ends : callable, default=lambda state: None
        Function from a state to the status with which the run ends there before its tolerance, or
        to None.
    at_limit : callable, default=lambda state: Status.MAX_ITER
        Function from the last state to the status of a run that made `max_iter` steps.
    why : callable, default=lambda: ""
        Function that says why a run has not converged, for the warning and for `stats`.

    Returns
    -------
    Result
        The last state, with its status and history. A run that ends early warns.
    """
    callback, checkpoint, begun = _observer.get()
    history: list[Record] = []
    scoped = saved = None
    if checkpoint is not None:
        scoped = " ".join((*_scope.get(), name))
        begun[scoped] += 1
        if begun[scoped] > 1:
            scoped = f"{scoped} {begun[scoped]}"
        saved = checkpoint.load(scoped)
    if saved is not None:
        state, history = type(state)(*saved[0]), list(saved[1])

    def verdict() -> Status | None:
        record = history[-1]
        if not all(np.isfinite(v) or (k == stop and v == np.inf) for k, v in record.items()):
            return Status.NOT_FINITE
        if record[stop] < -NOISE:  # no certificate is below zero but for rounding
            return Status.STALLED
        return reached if record[stop] <= tol else ends(state)

    status = verdict() if history else None
    while status is None:
        if len(history) >= max_iter:
            status = at_limit(state)
            break
        try:
            with holding(_observer, _UNOBSERVED):
                state = step(state)
        except MemoryError as error:
            if no_room is None or not isinstance(error, no_room) or not history:
                raise
            log.info("%s: %s", name, error)
            status = Status.MEMORY
            break
        history.append(measure(state))
        status = verdict()
        log.debug("%s, step %d: %s", name, len(history), history[-1])
        if callback is not None:
            callback(name, history[-1])
        if checkpoint is not None and scoped and status is not Status.NOT_FINITE:
            checkpoint.save(scoped, state, history)
    log.info("%s: %s after %d steps", name, status, len(history))
    if status is not reached:
        last = history[-1] if history else {}
        known = (n for n in (stop, "violation") if np.isfinite(last.get(n, np.inf)))
        gap = next((f"{n} {last[n]:.2e}" for n in known), f"{stop} not yet known")
        reason = why() if history else ""
        warn_early_end(f"{name} {status} ({gap}, tolerance {tol:.0e}){reason and f': {reason}'}")
        return Result(state, status, history, {"why": reason} if reason else {})
    return Result(state, status, history)
