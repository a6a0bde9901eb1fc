"""What a run of `bigfs serve` may do: whoever reaches the API can ask for runs with other
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
    """The bounds of a deployment's runs."""

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
                    f"this deployment runs with engine.{name} = {allowed!r} only, "
                    f"and the run asks for {wanted!r}"
                )
        for place in places:
            if place is not None and not self._inside(place):
                raise PermissionError(
                    f"this deployment works below {self.folder} only, and the run names "
                    f"{place}: serve it from another folder"
                )

    def _inside(self, place: str) -> bool:
        if place in self.places:
            return True
        if "://" in place or "::" in place:
            return False
        return Path(self.folder, place).resolve().is_relative_to(Path(self.folder).resolve())


def require_served(engine: Engine, *places: str | None) -> None:
    """Refuse what the deployment does not allow, if this process runs one of `bigfs serve`.

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
    """End this process when another one has ended, however that happened; workers end with this
    one.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process).wait()
    os._exit(1)
