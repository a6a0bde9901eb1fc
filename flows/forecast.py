"""The forecast of a run, by earlier runs on this machine."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator, Sequence
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


def forecast(plan: Plan, past: Sequence[Past], *, scored: bool = True) -> str | None:
    """Return a line on the seconds, the passes and the memory of a run, None of a short one.

    Time grows with the stored values, and with the pairs of samples where the method compares
    them. How many rounds a method takes is taken from its earlier run. Without one it is the time
    of a pass and the cap.
    """
    train, entry = selection.training_part(plan.corpus), selection.get_method(plan.method)
    values, selector = max(train.X.nnz, 1), entry.make()
    if own := [one for one in past if one.method == plan.method]:
        one = min(own, key=lambda one: abs(log(one.values / values)))
        more = values / one.values
        splits, has_test = evaluation.splits_of(
            plan.corpus, train.X, entry, plan.job.scoring.choices()
        )
        seconds = {
            step: time * more ** (2 if entry.pairs else 1) for step, time in one.seconds.items()
        }
        if not scored or has_test != one.has_test:
            seconds.pop("evaluate", None)
        elif "evaluate" in seconds:
            seconds["evaluate"] *= splits / one.splits
        if (total := sum(seconds.values())) < LONG:
            return None
        longest = max(seconds, key=lambda step: seconds[step])
        parts = ", ".join(f"{step} {_time(time)}" for step, time in seconds.items())
        lacks = ", evaluate not measured" if scored and "evaluate" not in seconds else ""
        return (
            f"about {_time(total)} ({parts}{lacks}), {longest} longest, {one.passes} passes; "
            f"{one.name} took {_time(sum(one.seconds.values()))} and "
            f"{engine.format_bytes(one.memory)} on {one.values:,} values, and here are {values:,}"
        )
    passes, memory = selector._cost.passes, selector._cost.memory
    cost = f"passes over {values:,} values: {passes}; memory: {memory}"
    cap = selector.get_params().get("max_iter")
    if timed := [one for one in past if one.passes]:
        work = sum(one.passes * one.values for one in timed)
        a_pass = values * sum(one.seconds["select"] for one in timed) / work
        if a_pass * (cap or 1) < LONG:
            return None
        most = f", and there are at most {cap} rounds" if cap else ""
        return f"{cost}; a pass takes about {_time(a_pass)}{most}: no run here is by {plan.method}"
    if evaluation.selection_work(train.X, entry) < evaluation.MAX_WORK / 2:
        return None
    return f"{cost}; no run here has measured the time of a pass"


def past_runs(folder: str) -> Iterator[Past]:
    """Yield what a run and those beside it took on this machine."""
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


def _time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < LONG else f"{seconds / 60:.1f} min"
