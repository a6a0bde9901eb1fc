"""Sizes, waits and limits that a test changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Setting(Generic[T]):
    """A value of this process that users leave alone.

    A test changes it, to reach the path of large data with small data, or the end of a wait.
    """

    def __init__(self, value: T) -> None:
        self.value = value

    @contextlib.contextmanager
    def during(self, value: T) -> Iterator[None]:
        """Have another value inside a block."""
        before, self.value = self.value, value
        try:
            yield
        finally:
            self.value = before
