"""The forecast of a run, by earlier runs on this machine."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, NamedTuple

from bigfs import engine
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation import selection
from bigfs.flows.plan import Plan
from bigfs.storage.errors import RunError
from bigfs.storage.runs.runs import Run

LONG = 60.0  # seconds from which on a run has a forecast
# by which power of the number of values a run may take longer than in proportion
GROWTH = 0.2
LOOKED = 100  # runs that are looked at, the latest ones


class Past(NamedTuple):
    """The costs of an earlier run."""

    name: str
    method: str
    values: int  # that it selected from
    passes: int
    seconds: dict[str, float]  # by step
    memory: int  # of the largest process
    splits: int  # that it was scored in
    has_test: bool


def expect_steps(
    corpus: Any, method: str, choices: Mapping[str, Any] | None, past: Sequence[Past]
) -> tuple[Past, dict[str, float]] | None:
    """Return the earlier run of a method that is nearest in size, and the seconds of each step that
    follow from it. None as the choices of the scoring is no scoring.

    Time grows with the stored values, and with the pairs of samples where the method compares them.
    How many rounds a method takes is taken from its earlier run.
    """
    train, entry = selection.training_part(corpus), selection.get_method(method)
    values = max(train.X.nnz, 1)
    if not (own := [one for one in past if one.method == method]):
        return None
    one = min(own, key=lambda one: abs(log(one.values / values)))
    more = (values / one.values) ** (2 if entry.pairs else 1)
    seconds = {step: time * more for step, time in one.seconds.items()}
    splits, has_test = evaluation.splits_of(corpus, train.X, entry, choices or {})
    if choices is None or has_test != one.has_test:
        seconds.pop("evaluate", None)
    elif "evaluate" in seconds:
        seconds["evaluate"] *= splits / one.splits
    return one, seconds


def forecast(
    plan: Plan, past: Sequence[Past], *, scored: bool = True, least: float = LONG
) -> str | None:
    """Return a line on the seconds, the passes and the memory of a run, None of a short one.

    Without an earlier run of the method it is the time of a pass and the cap.
    """
    train, entry = selection.training_part(plan.corpus), selection.get_method(plan.method)
    values, selector = train.X.nnz, entry.make()
    choices = plan.job.scoring.choices() if scored else None
    if (found := expect_steps(plan.corpus, plan.method, choices, past)) is not None:
        one, seconds = found
        if (total := sum(seconds.values())) < least:
            return None
        longest = max(seconds, key=lambda step: seconds[step])
        parts = ", ".join(f"{step} {_time(time)}" for step, time in seconds.items())
        lacks = ", evaluate not measured" if scored and "evaluate" not in seconds else ""
        return (
            f"about {_range(total, values / one.values)} ({parts}{lacks}), {longest} longest, "
            f"{one.passes} passes; {one.name} took {_time(sum(one.seconds.values()))} and "
            f"{engine.format_bytes(one.memory)} on {one.values:,} values, and here are {values:,}"
        )
    passes, memory = selector._cost.passes, selector._cost.memory
    cost = f"passes over {values:,} values: {passes}; memory: {memory}"
    cap = selector.get_params().get("max_iter")
    if timed := [one for one in past if one.passes]:
        work = sum(one.passes * one.values for one in timed)
        a_pass = values * sum(one.seconds["select"] for one in timed) / work
        if a_pass * (cap or 1) < least:
            return None
        most = f", and there are at most {cap} rounds" if cap else ""
        return f"{cost}; a pass takes about {_time(a_pass)}{most}: no run here is by {plan.method}"
    if evaluation.selection_work(train.X, entry) < evaluation.MAX_WORK.value / 2:
        return None
    return f"{cost}; no run here has measured the time of a pass"


def forecast_methods(
    corpus: Any, methods: Sequence[str], choices: Mapping[str, Any], past: Sequence[Past]
) -> str | None:
    """Return a line on the seconds of several methods together, None of short ones."""
    found = {method: expect_steps(corpus, method, choices, past) for method in methods}
    known = {method: one for method, one in found.items() if one is not None}
    total = sum(sum(seconds.values()) for _, seconds in known.values())
    if total < LONG:
        return None
    more = max(selection.training_part(corpus).X.nnz / one.values for one, _ in known.values())
    lacks = ", ".join(method for method in methods if method not in known)
    return (
        f"about {_range(total, more)} for {', '.join(known)}, by their runs here"
        f"{lacks and f'; no run here is by {lacks}'}"
    )


def past_runs(folder: str) -> Iterator[Past]:
    """Yield what a run, and the runs in the same folder, took on this machine."""
    places, made = list[Path](), dict[Path, float]()
    with contextlib.suppress(OSError):  # the first run of a folder
        places = list(Path(folder).parent.iterdir())
    for place in places:
        with contextlib.suppress(OSError):  # no run, not ours to read, or deleted meanwhile
            made[place] = (place / "run.json").stat().st_mtime
    for place in sorted(made, key=lambda place: -made[place])[:LOOKED]:
        try:
            about = Run.open(place).metadata
        except (RunError, OSError):
            continue
        steps: dict[str, Any] = {
            s["stage"]: s for s in about.get("stages", []) if not s.get("reused")
        }
        values = steps.get("select", {}).get("values")
        if values and about.get("host") == platform.node() and not about.get("resumed"):
            names = [name for name in ("graph", "select", "evaluate") if name in steps]
            measured = about.get("measured", {})
            yield Past(
                str(place),
                about["parameters"]["method"],
                values,
                int(about.get("stats", {}).get("passes", 0)),
                {name: steps[name]["seconds"] for name in names},
                max(max(steps[name]["peak_memory"].values()) for name in names),
                measured.get("folds", 1) if measured.get("how") == "nested folds" else 1,
                measured.get("how") == "test half",
            )


def _range(seconds: float, more: float) -> str:
    """Return seconds, as text, that are scaled from a run of fewer values."""
    most = seconds * max(more, 1.0) ** GROWTH
    return _time(seconds) if most < 1.1 * seconds else f"{_time(seconds)} to {_time(most)}"


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < LONG else f"{seconds / 60:.1f} min"
