"""Operands of several passes that stay with the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bigfs.engine.clusters import ClusterLost, client, translate_cluster_errors
from bigfs.engine.placement import homes_at

BATCH = 8  # values that travel at a time, so that few of them wait in the driver's buffers
ATTEMPTS = 4  # at a pass whose operands are lost with a worker


class KeptOperands:
    """Operands with one value per tile that travel to the workers once, not with every pass.

    Where `make` is given, a value is what it returns, and is held here only while it travels.
    """

    def __init__(
        self,
        values: Sequence[Any],
        local: bool = False,
        make: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.values, self.local, self._make = list(values), local, make
        self._client: Any = None
        self._futures: list[Any] = []

    def at_workers(self) -> list[Any]:
        """Return the keys of the values, after those that no worker holds were sent."""
        current = client()
        if self.local or current is None:
            return [self._make(value) for value in self.values]
        if current is not self._client:
            self._client, self._futures = current, [None] * len(self.values)
        missing = [i for i in range(len(self.values)) if self._is_missing(i)]
        n = len(self.values)
        # None: all workers died, and their nannies start new ones
        home: Sequence[str | None] = homes_at([(i + 0.5) / n for i in range(n)]) or [None] * n
        with translate_cluster_errors():
            for worker in dict.fromkeys(home[i] for i in missing):
                of_worker = [i for i in missing if home[i] == worker]
                for first in range(0, len(of_worker), BATCH):
                    batch = of_worker[first : first + BATCH]
                    futures = current.scatter(
                        [self._make(self.values[i]) for i in batch],
                        workers=None if worker is None else [worker],
                        hash=False,
                    )
                    for i, future in zip(batch, futures, strict=True):
                        self._futures[i] = future
        return list(self._futures)

    def is_lost(self) -> bool:
        """Return whether values that were sent are with no worker any more."""
        return any(self._is_missing(i) for i in range(len(self._futures)))

    def _is_missing(self, i: int) -> bool:
        return self._futures[i] is None or self._futures[i].status != "finished"


def while_lost(compute: Callable[[], Any], operands: Sequence[Any]) -> Any:
    """Return what `compute` returns. Repeat it where kept operands were lost with a worker."""
    kept = [operand for operand in operands if isinstance(operand, KeptOperands)]
    for _ in range(ATTEMPTS - 1 if kept else 0):
        try:
            return compute()
        except ClusterLost:
            if not any(operand.is_lost() for operand in kept):
                raise
    return compute()
