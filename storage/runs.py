"""Run directories: what was asked, what came out, and the checkpoints in between. No pickles.

    selected.csv   rank, index, name, score
    scores.npy     every feature's score, float64
    run.json       everything needed to repeat the run, its status, history and figures
    curves.csv     method, n_features, and a column for each metric
    report.html    the page to look at

A run is worked on in `.NAME.run-partial`, a folder that carries the program's marker, and gets its
name by one rename when it is whole. A killed run's work folder holds its checkpoints; the same
command goes on from them. Nothing that the program did not make is deleted or overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from storage import disk, sheets
from storage.checkpoints import Checkpoint, plain
from storage.ownership import MARKER, WORDS, claim, discard, is_ours, release
from storage.replacing import DAMAGED, PART, RunError, replacing, undamaged, writing

__all__ = ["Checkpoint", "Run", "RunError", "recover", "require_out"]

VERSION = 2  # 1 wrote the cells of its CSV files without `storage.sheets`' mark
FILES = {"selected.csv", "scores.npy", "run.json", "curves.csv", "report.html"}
# the second: as version 1 named them
PARTS = {f".{name}{PART}" for name in FILES} | {f"{name}.part" for name in FILES}
OTHER = {"checkpoints", MARKER, *PARTS}


class _Stage(BaseModel):
    stage: str
    seconds: float
    peak_memory: dict[str, int]


class _Point(BaseModel):
    method: str
    n_features: int


class _Asked(BaseModel):
    store: str
    method: str
    features: int
    parameters: dict[str, Any]


class _About(BaseModel):
    """What run.json holds, as far as the program reads it again."""

    model_config = ConfigDict(strict=True)

    version: int
    parameters: _Asked
    stages: list[_Stage] = []
    history: list[dict[str, float]] = []
    curves: list[_Point] = []
    profile: list[list[float]] = []
    hints: list[str] = []
    resumed: dict[str, int] = {}
    status: str = ""
    evaluation: str = ""


class Run:
    """A run directory, at work (`begin`, `at_work`) or whole (`open`)."""

    def __init__(self, path: Path, final: Path, about: dict[str, Any]) -> None:
        self.path, self.final, self.about = path, final, about
        self._pending: dict[Path, Path] | None = None  # file → part, in `together`

    @classmethod
    def begin(cls, out: str | Path, parameters: dict[str, Any]) -> Run:
        """Start a run, or go on with a killed one of the same parameters.

        Parameters
        ----------
        out : str or Path
            The run's directory. A whole run there stays until the new one is whole.
        parameters : dict
            What was asked for.

        Returns
        -------
        Run
            The run, at work.

        Raises
        ------
        RunError
            `out` can't be written, is no run directory, or holds files that the program did not
            write.
        StoreError
            Something that the program did not make has the name of the work folder.
        """
        require_out(out)
        final = _final(out)
        path, about = _work(final), {"version": VERSION, "parameters": plain(parameters)}
        with writing(final):
            recover(final)
            if is_ours(path) and _parameters(path) != about["parameters"]:
                discard(path)
            run = cls(path, final, about)
            try:
                claim(path)
                run.note()
            except (OSError, RunError):
                run.abandon()
                raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a whole run.

        Parameters
        ----------
        path : str or Path
            The run's directory.

        Returns
        -------
        Run
            The run.

        Raises
        ------
        RunError
            There is no run, its run.json is damaged, or a newer version wrote it.
        """
        path = Path(path)
        return cls(path, path, _about(path))

    @classmethod
    def at_work(cls, out: str | Path) -> Run:
        """Open the run that is at work for a directory; raises as `open`.

        Parameters
        ----------
        out : str or Path
            The directory that the run will have.

        Returns
        -------
        Run
            The run.
        """
        final = _final(out)
        return cls(_work(final), final, _about(_work(final)))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Give the files that the block writes their names at its end, run.json last.

        A block that fails, on a full disk say, leaves the files as they were. A block inside
        another one ends with it.

        Raises
        ------
        RunError
            The disk is full, or the folder can't be written.
        """
        if self._pending is not None:
            yield
            return
        self._pending = {}
        try:
            yield
            self.write_text("run.json", self._json())
            for file, part in self._pending.items():
                with writing(file):
                    part.replace(file)
        finally:
            for part in self._pending.values():
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
            self._pending = None

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """Write a file whole or not at all: now, or at the end of `together`."""
        file = self.path / name
        if self._pending is None:
            with replacing(file) as part:
                yield part
            return
        self._pending[file] = part = file.with_name(f".{name}{PART}")
        with writing(file):
            part.unlink(missing_ok=True)
            yield part

    def note(self, **figures: Any) -> None:
        """Add figures to run.json, written whole or not at all."""
        self.about |= plain(figures)
        if self._pending is None:
            self.write_text("run.json", self._json())

    def _json(self) -> str:
        return json.dumps(self.about, indent=1, ensure_ascii=False, allow_nan=True)

    def write_table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file of the run, whole or not at all; see `storage.sheets`."""
        with self._replacing(name) as part:
            sheets.write(part, header, rows)

    def read_table(self, name: str) -> list[dict[str, str]]:
        """Read a CSV file of the run."""
        with undamaged(self.path / name):
            return list(sheets.read(self.path / name, marked=self.about["version"] > 1))

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run, whole or not at all. Returns its path."""
        with self._replacing(name) as part:
            part.write_text(text, encoding="utf-8")
        return self.path / name

    def write_scores(self, scores: Any) -> None:
        """Write every feature's score, whole or not at all."""
        values = np.ascontiguousarray(scores, dtype=np.float64)
        with self._replacing("scores.npy") as part, part.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, np.lib.format.header_data_from_array_1_0(values)
            )
            file.write(values.data)  # np.save's error for a full disk has no errno

    @property
    def scores(self) -> Any:
        """Every feature's score, mapped from the file."""
        with undamaged(self.path / "scores.npy"):
            scores = disk.map_file(self.path / "scores.npy")
            if scores.ndim != 1:
                raise ValueError("it must hold one score per feature")
        return scores

    @property
    def selected(self) -> Any:
        """Indices of the selected features, best first."""
        rows = self.read_table("selected.csv")
        with undamaged(self.path / "selected.csv"):
            index = np.array([int(row["index"]) for row in rows], dtype=np.int64)
            if (
                not len(index)
                or index.min() < 0
                or any({"name", "score"} - set(row) for row in rows)
            ):
                raise ValueError("it must hold the index, name and score of one feature or more")
        return index

    def checkpoint(self, *identity: Any) -> Checkpoint:
        """Where the loops of this run keep their states; `identity` is what must not have
        changed.
        """
        key = hashlib.sha256(
            json.dumps(plain(list(identity)), sort_keys=True).encode()
        ).hexdigest()[:12]
        return Checkpoint(self.path / "checkpoints", key)

    def finish(self) -> Path:
        """Drop the checkpoints and give the run its name; a run of that name before it goes.

        Returns
        -------
        Path
            The run's directory.

        Raises
        ------
        RunError
            The run of that name holds files that the program did not write.
        """
        if self.path != self.final:
            require_out(self.final)
            with writing(self.final):
                _clear(self.path)
                old = _old(self.final)
                discard(old)
                if self.final.exists():
                    (self.final / MARKER).write_bytes(WORDS)
                    self.final.rename(old)
                self.path.rename(self.final)
                release(self.final)
                discard(old)
            self.path = self.final
        else:
            _clear(self.path)
        return self.final

    def abandon(self) -> None:
        """Leave nothing behind, unless there are checkpoints that the next try can use."""
        if self.path != self.final and not any((self.path / "checkpoints").glob("*.npz")):
            discard(self.path)


def require_out(out: str | Path) -> None:
    """Refuse a directory that a run could not have, before any work.

    Parameters
    ----------
    out : str or Path
        The run's directory.

    Raises
    ------
    RunError
        The name is taken by something else than a run, the run there holds files that the program
        did not write, or its folder can't be written.
    """
    final = _final(out)
    with writing(final):
        if os.path.lexists(final):
            if not (final / "run.json").exists():
                raise RunError(f"{final} exists and is not a run directory: give another --out")
            foreign = sorted({child.name for child in final.iterdir()} - FILES - OTHER)
            if foreign:
                raise RunError(
                    f"{final} holds {foreign[0]}, which bigfs did not write: move it "
                    f"away, or give another --out"
                )
        home = next(parent for parent in final.absolute().parents if os.path.lexists(parent))
        parts = [*final.absolute().relative_to(home).parts, _work(final).name]
        if max(len(os.fsencode(part)) for part in parts) > os.pathconf(home, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if not os.access(home, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{home} is not writable")


def recover(out: str | Path) -> None:
    """Complete what a process that was killed in `Run.finish` left half-way.

    Parameters
    ----------
    out : str or Path
        The run's directory.
    """
    final = _final(out)
    old = _old(final)
    if is_ours(old):
        if final.exists():
            discard(old)
        else:
            old.rename(final)
    if is_ours(final):
        release(final)


def _about(path: Path) -> dict[str, Any]:
    """What run.json says, checked."""
    file = path / "run.json"
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(
            f"{path} is not a run directory, as it has no run.json: make one with "
            f"`bigfs select` or `bigfs run`"
        ) from error
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is damaged ({error}): repeat the run") from error
    with undamaged(file):
        about = json.loads(text)
        newer = isinstance(about["version"], int) and about["version"] > VERSION
    if newer:
        raise RunError(
            f"{path} was written by a newer bigfs (format {about['version']}; this "
            f"one reads up to {VERSION}): upgrade bigfs"
        )
    try:
        _About.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise RunError(f"{file} is damaged ({where}: {first['msg']}): repeat the run") from error
    return dict(about)


def _parameters(path: Path) -> Any:
    """What the run at work in a folder was asked for; None if it can't be told."""
    try:
        return json.loads((path / "run.json").read_text(encoding="utf-8"))["parameters"]
    except DAMAGED:
        return None


def _final(out: str | Path) -> Path:
    """The run's directory; of a symbolic link, what it leads to."""
    return Path(out).resolve() if os.path.islink(out) else Path(out)


def _work(final: Path) -> Path:
    return final.with_name(f".{final.name}.run-partial")


def _old(final: Path) -> Path:
    """Where a run lies in the instant of its exchange for the next one."""
    return final.with_name(f".{final.name}.run-old")


def _clear(path: Path) -> None:
    """Delete the checkpoints and what a killed process was writing."""
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    for name in PARTS:
        (path / name).unlink(missing_ok=True)
