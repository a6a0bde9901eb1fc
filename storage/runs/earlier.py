"""Earlier results of a run: `NAME.earlier/DATE` holds each one whole, with the program's marker.

A run that is made again, as every night, takes the name of the result before it. That one is kept
if it answered the same question on other data. `bigfs history` reads them, and
`bigfs prune --older-than` deletes them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bigfs.storage import atomic
from bigfs.storage.errors import RunError
from bigfs.storage.runs.metadata import read_metadata

EARLIER = ".earlier"  # suffix of the folder


def kept_folder(final: str | Path) -> Path:
    """Return the folder that keeps the earlier results of a run."""
    return Path(f"{final}{EARLIER}")


def keep_earlier(final: Path, metadata: dict[str, Any]) -> None:
    """Copy the finished run of a name, before the run with this metadata replaces it."""
    try:
        earlier = read_metadata(final)
    except RunError:
        return  # there is none, or it can't be read
    questions = [{**run["parameters"], "store": None} for run in (earlier, metadata)]
    is_same = earlier.get("key") == metadata.get("key")
    if is_same or questions[0] != questions[1] or "made" not in earlier:
        return
    kept = kept_folder(final) / earlier["made"][:19].replace(":", "-")
    if kept.exists():
        return
    atomic.make_folder(kept.parent)
    with atomic.workplace(kept) as work:
        atomic.mark(work / "copy")
        shutil.copytree(final, work / "copy", dirs_exist_ok=True)
        atomic.publish(work / "copy", kept)
