"""Limits on the runs of `bigfs serve`, because anybody who reaches the API can request other
parameters.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
from pydantic import BaseModel

from flows.options import Engine

VARIABLE = "BIGFS_SERVED"  # in the environment of the runs, which the API can't set


class Served(BaseModel):
    """Limits on the runs of a deployment."""

    folder: str  # everything below it may be read and written
    places: list[str]  # the deployment's own source and run directory
    engine: Engine
    process: int  # that serves

    def require(self, engine: Engine, places: Sequence[str | None]) -> None:
        """Refuse a run that the deployment does not allow.

        Parameters
        ----------
        engine : Engine
            Where the run wants to work.
        places : sequence of str or None
            The sources, stores and run directories that it names.

        Raises
        ------
        PermissionError
            A place lies outside, or the cluster is another one.
        """
        for name in ("scheduler", "tls", "dashboard"):
            wanted, allowed = getattr(engine, name), getattr(self.engine, name)
            if wanted != allowed:
                raise PermissionError(
                    f"this deployment allows engine.{name} = {allowed!r} only; "
                    f"the run has {wanted!r}"
                )
        for place in places:
            if place is not None and not self._inside(place):
                raise PermissionError(
                    f"this deployment may use paths in {self.folder} only; the run names "
                    f"{place}: start bigfs serve in another folder"
                )

    def _inside(self, place: str) -> bool:
        if place in self.places:
            return True
        if "://" in place or "::" in place:
            return False
        return Path(self.folder, place).resolve().is_relative_to(Path(self.folder).resolve())


def require_served(engine: Engine, *places: str | None) -> None:
    """Check a run against the limits of `bigfs serve`, if it started this process.

    Parameters
    ----------
    engine : Engine
        Where the run wants to work.
    *places : str or None
        The sources, stores and run directories that it names.

    Raises
    ------
    PermissionError
        The deployment does not allow it.
    """
    if VARIABLE in os.environ:
        served = Served.model_validate_json(os.environ[VARIABLE])
        served.require(engine, places)
        threading.Thread(target=_end_with, args=(served.process,), daemon=True).start()


def _end_with(process: int) -> None:
    """End this process, and with it its workers, as soon as another process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process).wait()
    os._exit(1)
