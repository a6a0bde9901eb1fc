"""Limits on the runs of `bigfs serve`: whoever reaches the API can ask for other parameters."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl

import psutil
from pydantic import BaseModel

from flows.options import Engine

LIMITS_VARIABLE = "BIGFS_SERVED"  # in the environment of the runs, which the API can't set


class ServeLimits(BaseModel):
    """Limits on the runs of a deployment."""

    folder: str  # everything below it may be read and written
    paths: list[str]  # the deployment's own source and run directory
    engine: Engine
    process: int  # id of the serving process

    def require(self, engine: Engine, paths: Sequence[str | None]) -> None:
        """Refuse a run that the deployment does not allow."""
        for name in ("scheduler", "tls", "dashboard"):
            requested, allowed = getattr(engine, name), getattr(self.engine, name)
            if requested != allowed:
                raise PermissionError(
                    f"this deployment allows engine.{name} = {allowed!r} only; "
                    f"the run has {requested!r}"
                )
        for path in paths:
            if path is not None and not self._is_inside(path):
                raise PermissionError(
                    f"this deployment may use paths in {self.folder} only; the run names "
                    f"{path}: start bigfs serve in another folder"
                )

    def _is_inside(self, path: str) -> bool:
        if path in self.paths:
            return True
        if "://" in path or "::" in path:
            return False
        name, _, query = path.partition("?")  # options of a source, any of which may be a file
        folder = Path(self.folder).resolve()
        return all(
            Path(folder, part).resolve().is_relative_to(folder)
            for part in (path, name, *(value for _, value in parse_qsl(query)))
        )


def require_allowed(engine: Engine, *paths: str | None) -> None:
    """Check a run against the limits of `bigfs serve`, if it started this process."""
    if LIMITS_VARIABLE in os.environ:
        limits = ServeLimits.model_validate_json(os.environ[LIMITS_VARIABLE])
        limits.require(engine, paths)
        threading.Thread(target=_exit_with, args=(limits.process,), daemon=True).start()


def _exit_with(process: int) -> None:
    """End this process, and with it its workers, as soon as another process has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(process).wait()
    os._exit(1)
