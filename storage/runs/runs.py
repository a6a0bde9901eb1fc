"""Run directories: the parameters of a run, its results, and its checkpoints. No pickles.

    selected.csv   rank, index, name, score; class, for which the feature stands out most, where
                   samples have classes; p_value, where the method has them
    classes.csv    the selected features of each class by t against the other classes
    scores.npy     every feature's score, float64
    columns.npz    other figures of every feature, of methods that have some
    run.json       everything needed to repeat the run, its status, history and figures
    curves.csv     method, n_features, and a column for each metric
    report.html    the report

An unfinished run lies in `.NAME.run-partial`, a folder with the program's marker, and gets its name
by one rename when it is finished. The folder of a killed run holds its checkpoints, and the same
command goes on from them. Nothing that the program did not make is deleted or overwritten.

A run that is made again of a source that has changed leaves the earlier result, whole and with the
program's marker, in `NAME.earlier/DATE`.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bigfs.storage import atomic
from bigfs.storage.errors import RunError, explain_read_errors
from bigfs.storage.format import disk
from bigfs.storage.locks import lock
from bigfs.storage.runs.checkpoints import Checkpoint, to_json_types
from bigfs.storage.runs.earlier import keep_earlier
from bigfs.storage.runs.metadata import VERSION, read_metadata, read_parameters, strict_json

from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.storage.runs.models import Model

__all__ = ["Checkpoint", "Run", "RunError", "lock_run", "recover", "require_out", "write_csv"]

FILES = {
    *("selected.csv", "classes.csv", "scores.npy", "columns.npz", "run.json", "curves.csv"),
    *("report.html", "model.npz"),
}
OTHER = {"checkpoints", atomic.MARKER}
# the apostrophe that version 2 put before a text that a spreadsheet takes for a formula
MARK = re.compile(r"(?<![^;\t\r\n])'")


def write_csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV, every text as it is."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([header, *rows])


def _read_csv(file: Path, marked: bool) -> Iterator[dict[str, str]]:
    """Read what `write_csv` wrote, in version 2 with marks. A row that is cut is a ValueError."""
    with file.open(newline="", encoding="utf-8") as opened:
        header, *rows = csv.reader(opened, strict=True)
    for row in rows:
        cells = [MARK.sub("", cell) for cell in row] if marked else row
        yield dict(zip(header, cells, strict=True))


class Run:
    """A run directory: unfinished (`begin`, `open_unfinished`) or finished (`open`)."""

    def __init__(self, path: Path, final: Path, metadata: dict[str, Any]) -> None:
        self.path, self.final, self.metadata = path, final, metadata
        # inside `transaction`: name → the path to write to
        self._place: Callable[[str], Path] | None = None

    def __repr__(self) -> str:
        known = self.metadata.get("parameters", {})
        facts = [str(known[name]) for name in ("method", "features") if name in known]
        state = "" if self.path == self.final else ", unfinished"
        return f"<Run {self.final}{': ' if facts else ''}{' '.join(facts)}{state}>"

    @classmethod
    def begin(cls, out: str | Path, parameters: dict[str, Any]) -> Run:
        """Start a run, or go on with a killed one of the same parameters.

        Parameters
        ----------
        out : str or Path
            The run's directory. A finished run there stays until the new one is finished.
        parameters : dict
            The parameters of the run.

        Returns
        -------
        Run
            The unfinished run.

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
        path, metadata = _work(final), {"version": VERSION, "parameters": to_json_types(parameters)}
        with atomic.explain_write_errors(final):
            recover(final)
            if atomic.is_marked(path) and read_parameters(path) != metadata["parameters"]:
                atomic.delete_marked(path)
            run = cls(path, final, metadata)
            try:
                atomic.make_folder(path.parent)
                atomic.mark(path)
                run.update_metadata()
            except (OSError, RunError):
                run.abandon()
                raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a finished run.

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
        _complete(path)
        return cls(path, path, read_metadata(path))

    @classmethod
    def open_unfinished(cls, out: str | Path) -> Run:
        """Open the unfinished run of a directory.

        Parameters
        ----------
        out : str or Path
            The directory that the run will have.

        Returns
        -------
        Run
            The run.

        Raises
        ------
        RunError
            There is none, its run.json is damaged, or a newer version wrote it.
        """
        final = _final(out)
        _complete(_work(final))
        return cls(_work(final), final, read_metadata(_work(final)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Give the files that the block writes their names at its end: all of them, or none.

        A block that fails or is killed leaves the files as they were. Once the files are on the
        disk, a kill or an error is made good when the run is opened next. A block inside another
        one ends with it.

        Raises
        ------
        RunError
            The disk is full, or the folder can't be written.
        """
        if self._place is not None:
            yield
            return
        try:
            with atomic.write_together(self.path) as self._place:
                yield
                self.write_text("run.json", self._json())
        finally:
            self._place = None

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """Write a file whole or not at all, at once or at the end of `transaction`."""
        file = self.path / name
        if self._place is None:
            with atomic.write(file) as part:
                yield part
            return
        with atomic.explain_write_errors(file):
            yield self._place(name)

    def update_metadata(self, **figures: Any) -> None:
        """Add entries to run.json. It is written whole or not at all."""
        self.metadata |= to_json_types(figures)
        if self._place is None:
            self.write_text("run.json", self._json())

    def _json(self) -> str:
        return strict_json(self.metadata, indent=True)

    def write_table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file of the run, whole or not at all."""
        with self._replacing(name) as part:
            write_csv(part, header, rows)

    def read_table(self, name: str) -> list[dict[str, str]]:
        """Read a CSV file of the run."""
        with explain_read_errors(self.path / name):
            return list(_read_csv(self.path / name, marked=self.metadata["version"] == 2))

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
            file.write(values.data)  # on a full disk, np.save raises an error without errno

    def write_columns(self, columns: dict[str, AnyArray]) -> None:
        """Write further columns of the features, whole or not at all."""
        with self._replacing("columns.npz") as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **columns)

    def write_model(self, model: Model) -> None:
        """Write the model that the run's scores come from, whole or not at all."""
        with self._replacing("model.npz") as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **model.arrays())

    def model(self) -> Model:
        """Return the linear model on the selected features, ready to predict.

        Returns
        -------
        storage.runs.models.Model
            The model. Its `predict` takes the matrix of a store, an array, or texts.

        Raises
        ------
        RunError
            The run has no model, or its file is damaged.
        """
        from bigfs.storage.runs.models import read_model  # loads scikit-learn

        return read_model(self.path / "model.npz")

    @property
    def scores(self) -> Any:
        """Every feature's score, mapped from the file."""
        with explain_read_errors(self.path / "scores.npy"):
            scores = disk.map_file(self.path / "scores.npy")
            if scores.ndim != 1:
                raise ValueError("it must hold one score per feature")
        return scores

    @property
    def columns(self) -> dict[str, AnyArray] | None:
        """Further columns of the features. None if the method has none."""
        file = self.path / "columns.npz"
        if not file.exists():
            return None
        with explain_read_errors(file), file.open("rb") as opened, np.load(opened) as arrays:
            return dict(arrays)

    @property
    def selected(self) -> Any:
        """Indices of the selected features, best first."""
        rows = self.read_table("selected.csv")
        with explain_read_errors(self.path / "selected.csv"):
            index = np.array([int(row["index"]) for row in rows], dtype=np.int64)
            if (
                not len(index)
                or index.min() < 0
                or any({"name", "score"} - set(row) for row in rows)
            ):
                raise ValueError("it must hold the index, name and score of one feature or more")
        return index

    def checkpoint(self, *identity: Any) -> Checkpoint:
        """Return the store of the states of this run's loops.

        States are found again only with the same `identity`.
        """
        key = hashlib.sha256(
            json.dumps(to_json_types(list(identity)), sort_keys=True).encode()
        ).hexdigest()[:12]
        return Checkpoint(self.path / "checkpoints", key)

    def finish(self) -> Path:
        """Delete the checkpoints and give the run its name.

        An earlier run of that name is kept in `NAME.earlier` if it answers the same question on
        other data, and else deleted.

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
            with atomic.explain_write_errors(self.final):
                _clear(self.path)
                keep_earlier(self.final, self.metadata)
                with atomic.workplace(self.final) as work:
                    atomic.publish(self.path, self.final, work)
                atomic.unmark(self.final)
            self.path = self.final
        else:
            _clear(self.path)
        return self.final

    def abandon(self) -> None:
        """Delete the unfinished run, unless it has checkpoints that the next try can use."""
        if self.path != self.final and not any((self.path / "checkpoints").glob("*.npz")):
            atomic.delete_marked(self.path)


def require_out(out: str | Path) -> None:
    """Refuse a directory that a run cannot have, before any work."""
    final = _final(out)
    with atomic.explain_write_errors(final):
        recover(final)
        if os.path.lexists(final):
            if not (final / "run.json").exists():
                raise RunError(f"{final} exists and is not a run directory: give another --out")
            foreign = sorted(name for name in os.listdir(final) if not _is_own(name))
            if foreign:
                raise RunError(
                    f"{final} holds {foreign[0]}, which bigfs did not write: move it "
                    f"away, or give another --out"
                )
        home = next(parent for parent in final.absolute().parents if os.path.lexists(parent))
        parts = [*final.absolute().relative_to(home).parts, f".{final.name}.{'0' * 16}.staging"]
        if max(len(os.fsencode(part)) for part in parts) > os.pathconf(home, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if not os.access(home, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{home} is not writable")


@contextlib.contextmanager
def lock_run(out: str | Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the directory of a run, or raise a BusyError if another process has it."""
    final = _final(out)
    with contextlib.ExitStack() as stack:
        with atomic.explain_write_errors(final):
            stack.enter_context(lock(final, wait=-1 if waits else 0, name=str(out)))
        yield


def recover(out: str | Path) -> None:
    """Put right what a process left half-way that was killed while it changed a finished run."""
    final = _final(out)
    _complete(final)
    atomic.sweep(final)
    old = final.with_name(f".{final.name}.run-old")  # as version 0.1 exchanged runs
    if atomic.is_marked(old):
        if final.exists():
            atomic.delete_marked(old)
        else:
            old.rename(final)
    if atomic.is_marked(final):
        atomic.unmark(final)


def _complete(path: Path) -> None:
    """Give a run the name or the files that it misses because a process was killed."""
    atomic.recover(path)
    atomic.complete(path)


def _final(out: str | Path) -> Path:
    """Return the run's directory, with a symbolic link resolved."""
    return Path(out).resolve() if os.path.islink(out) else Path(out)


def _work(final: Path) -> Path:
    return final.with_name(f".{final.name}.run-partial")


def _clear(path: Path) -> None:
    """Delete the checkpoints, and the unfinished files of a killed process."""
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    for name in os.listdir(path):
        if name not in FILES and name != atomic.MARKER and _is_own(name):
            (path / name).unlink(missing_ok=True)


def _is_own(name: str) -> bool:
    """Return whether bigfs wrote a file of a run, finished or not."""
    final = atomic.part_name(name).removesuffix(".part")  # the suffix of version 0.1
    return final in FILES or name in OTHER or name.endswith(atomic.COMMIT)
