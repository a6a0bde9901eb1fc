"""The columns of the samples beside their labels: groups, batches, weights and times.

Every sample has a value of each. Groups and batches are texts, weights are numbers of at least 0,
and times are all numbers or all dates, which become UTC.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import labels as label_rules
from bigfs.storage.sources.base import shorten

from bigfs.types import AnyArray

CATEGORIES = ("group", "batch")  # the roles whose values are texts
DATE = np.dtype("datetime64[us]")
DATES = (datetime.date, np.datetime64)  # of which `datetime.datetime` is one


def as_obs(role: str, values: Sequence[Any], place: Callable[[int], object]) -> AnyArray:
    """Return the values of a role as an array of texts, numbers or dates.

    The place of a value is written out in an error only.
    """
    read = {"group": _category, "batch": _category, "sample_weight": _weight, "time": _time}[role]
    kept = [read(value, role, place, i) for i, value in enumerate(values)]
    if role in CATEGORIES:
        return np.array(kept, dtype=np.str_)
    dates = [isinstance(value, DATES) for value in kept]
    if any(dates) and not all(dates):
        raise mixed_times(place(dates.index(not dates[0])))
    return np.array(kept, dtype=DATE if any(dates) else np.float64)


def join_obs(role: str, parts: Sequence[AnyArray], place: object) -> AnyArray:
    """Return the values of a role in parts as one array."""
    if not parts:
        return as_obs(role, (), str)
    if len({part.dtype.kind for part in parts}) > 1:
        raise mixed_times(place)
    return np.concatenate(parts)


def mixed_times(place: object) -> SourceError:
    return SourceError(f"{place}: time= names a column with both numbers and dates: give one kind")


def _category(value: Any, role: str, place: Callable[[int], object], i: int) -> str:
    text = label_rules.as_label(value, None, place(i), role)
    if text is None or isinstance(text, tuple):
        raise _refusal(value, role, "a text or a number", place(i))
    return label_rules.label_text(text)


def _weight(value: Any, role: str, place: Callable[[int], object], i: int) -> float:
    number = _number(value)
    if number is None or not 0 <= number < np.inf:
        raise _refusal(value, role, "a finite number of at least 0", place(i))
    return number


def _time(value: Any, role: str, place: Callable[[int], object], i: int) -> Any:
    number = _number(value)
    if number is not None and np.isfinite(number):
        return number
    if (date := _date(value)) is None:
        raise _refusal(value, role, "a number or a date such as 2024-03-01T12:30", place(i))
    return date


def _date(value: Any) -> Any:
    """Return a date, or a text in ISO 8601, as UTC, or None where it is none."""
    if value != value:  # NaT
        return None
    try:
        date = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(date, datetime.datetime) and date.tzinfo is not None:
            date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return date if isinstance(date, DATES) else None


def _number(value: Any) -> float | None:
    """Return a value as a number, or None where it is none."""
    try:
        return None if value is None or isinstance(value, bool | np.datetime64) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _refusal(value: Any, role: str, required: str, place: object) -> SourceError:
    got = "none" if value is None or value == "" else shorten(value)
    return SourceError(
        f"{place}: {role}= names a column that must hold {required} for every sample; got {got}"
    )
