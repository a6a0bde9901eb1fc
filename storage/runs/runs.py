"""Runs: the parameters of a run, its results, and its checkpoints. No pickles.

The name of a run is a symbolic link to its latest result, which one rename replaces:

    nightly                      → .nightly/2026-11-23T03-00-00
    .nightly/                    a folder with the program's marker
        2026-11-22T03-00-00/     an earlier result
        2026-11-23T03-00-00/     the latest result
        2026-11-24T03-00-00/     an unfinished one, which has the marker too, and checkpoints
        failures.jsonl           when and why a run of this name failed

A result is

    selected.csv   rank, index, name, score; class that the feature is most typical of, where
                   samples have classes; p_value, where the method has them
    classes.csv    the selected features of each class by t against the other classes
    scores.npy     every feature's score, float64
    columns.npz    other figures of every feature, of methods that have some
    curves.csv     method, n_features, and a column for each metric
    model.npz      the model that the scores come from
    report.html    the report
    run.json       everything needed to repeat the run, its status, history and figures, and the
                   hash of each other file, with which it is compared as it is read

The same command continues from the checkpoints of a killed run. A finished result is never changed
but by `transaction`, and only `bigfs prune` deletes it, or the same result that is made again.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from bigfs.storage import atomic
from bigfs.storage.errors import RunError, explain_read_errors
from bigfs.storage.format import disk
from bigfs.storage.locks import lock, name_taken
from bigfs.storage.runs.checkpoints import Checkpoint, digest, to_json_types
from bigfs.storage.runs.metadata import VERSION, read_metadata, sealed_json, unseal
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.storage.runs.models import Model

__all__ = ["Checkpoint", "Run", "RunError", "lock_run", "require_out", "results_of", "write_csv"]

CHECKPOINTS, FAILURES = "checkpoints", "failures.jsonl"
READERS = ".runs"  # suffix of the file next to a store that lists the runs which name it
LINKS = 40  # symbolic links that are followed from a name


def write_csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV, every text as it is. Lines end as in Unix."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(_Lines(opened)).writerows([header, *rows])


class _Lines:
    """Ends lines with LF. Asked for that, `csv` would not quote a CR in a text."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> int:
        return self.file.write(line.removesuffix("\r\n") + "\n")


class Run:
    """A result of a run: unfinished (`begin`, `open_unfinished`) or finished (`open`).

    `final` is the name of the run, and `path` the folder of this result, which stays where it is
    when the name points to the next one.
    """

    def __init__(
        self, path: Path, final: Path, metadata: dict[str, Any], *, unfinished: bool = False
    ) -> None:
        self.path, self.final, self.metadata = path, final, metadata
        self.unfinished = unfinished
        # inside `transaction`: name → the path to write to
        self._place: Callable[[str], Path] | None = None

    def __repr__(self) -> str:
        known = self.metadata.get("parameters", {})
        facts = [str(known[name]) for name in ("method", "features") if name in known]
        state = ", unfinished" if self.unfinished else ""
        return f"<Run {self.final}{': ' if facts else ''}{' '.join(facts)}{state}>"

    @classmethod
    def begin(cls, out: str | Path, parameters: dict[str, Any], key: str = "") -> Run:
        """Start a run, or continue from the checkpoints of a killed one with the same question.

        The results of its name stay.
        """
        require_out(out)
        final, parameters = _final(out), to_json_types(parameters)
        home, run = _home(final), None
        with atomic.explain_write_errors(final):
            try:
                atomic.make_folder(home.parent)
                atomic.write_marker(home)
                _require_links(home)
                path = unfinished_of(final)
                if path is not None:
                    about = _record_of(path)  # of a key the store may lie elsewhere by now
                    is_same = about.get("key") == key and (key or about["parameters"] == parameters)
                    _clear(path, but={CHECKPOINTS} if is_same else set())
                metadata = {"version": VERSION, "parameters": parameters, "key": key, "files": {}}
                if "://" not in (store := str(parameters["store"])):
                    metadata["relative_store"] = os.path.relpath(store, home.parent)
                run = cls(path or _new_folder(home), final, metadata, unfinished=True)
                atomic.write_marker(run.path)
                run.update_metadata()
            except (OSError, RunError):
                if run is not None:
                    run.abandon()
                _forget(home)
                raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open the latest result of a run, or an earlier one by its folder.

        Parameters
        ----------
        path : str or Path
            The run's name, or the folder of a result.

        Returns
        -------
        Run
            The run.

        Raises
        ------
        RunError
            There is no run, its run.json is damaged, or another version wrote it.
        """
        final = _final(path)
        folder = _target(final) or final
        atomic.complete(folder)
        name = name_of(folder)
        if name == folder and not (folder / "run.json").is_file():
            raise RunError(
                f"{path} is not a run directory, as it has no run.json: make one with "
                f"`bigfs select` or `bigfs run`"
            )
        return cls(folder, name, read_metadata(folder))

    @classmethod
    def open_unfinished(cls, out: str | Path) -> Run:
        """Open the unfinished result of a run, by the run's name."""
        final = _final(out)
        if (path := unfinished_of(final)) is None:
            raise RunError(f"{out} has no unfinished run")
        atomic.complete(path)
        return cls(path, final, read_metadata(path), unfinished=True)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Give the files that the block writes their names at its end: all of them, or none.

        A block that fails or is killed leaves the files as they were. Once the files are on the
        disk, a kill or an error is made good when the run is opened next. A block inside another
        one ends with it.
        """
        if self._place is not None:
            yield
            return
        try:
            with atomic.write_together(self.path) as self._place:
                yield
                with atomic.explain_write_errors(self.path / "run.json"):
                    text = sealed_json(self.metadata)
                    self._place("run.json").write_text(text, encoding="utf-8")
        finally:
            self._place = None

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """Write a file and its hash, whole or not at all."""
        with self.transaction(), atomic.explain_write_errors(self.path / name):
            assert self._place is not None
            yield (part := self._place(name))
            self.metadata.setdefault("files", {})[name] = _hash(part)

    def update_metadata(self, **figures: Any) -> None:
        """Add entries to run.json. It is written whole or not at all."""
        with self.transaction():
            self.metadata |= to_json_types(figures)

    def _verified(self, name: str) -> Path:
        """Return the path of a file, once its content is what was written."""
        file = self.path / name
        with explain_read_errors(file):
            if _hash(file) != self.metadata.get("files", {}).get(name):
                raise ValueError("it is not what was written")
        return file

    def holds(self, first: str, *others: str) -> bool:
        """Return whether a run has a file, and it and others that it may have are as written."""
        known = self.metadata.get("files", {})
        names = [first, *(name for name in others if name in known)]
        with contextlib.suppress(OSError):
            return all(known.get(name) == _hash(self.path / name) for name in names)
        return False

    def write_table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a CSV file of the run, whole or not at all."""
        with self._replacing(name) as part:
            write_csv(part, header, rows)

    def read_table(self, name: str) -> list[dict[str, str]]:
        """Read a CSV file of the run."""
        file = self._verified(name)
        with explain_read_errors(file):
            text = io.StringIO(file.read_bytes().decode(), newline="")
            header, *rows = csv.reader(text, strict=True)
            return [dict(zip(header, row, strict=True)) for row in rows]

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file of the run, whole or not at all. Returns its path."""
        with self._replacing(name) as part:
            part.write_text(text, encoding="utf-8")
        return self.path / name

    def write_scores(self, scores: Any) -> None:
        """Write every feature's score, whole or not at all."""
        with self._replacing("scores.npy") as part:
            disk.save(part, np.ascontiguousarray(scores, dtype=np.float64))

    def write_arrays(self, name: str, arrays: dict[str, AnyArray]) -> None:
        """Write columns.npz or model.npz, whole or not at all."""
        with self._replacing(name) as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

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

        file = self.path / "model.npz"
        return read_model(self._verified(file.name) if file.exists() else file)

    @property
    def scores(self) -> Any:
        """Every feature's score, mapped from the file."""
        file = self._verified("scores.npy")
        with explain_read_errors(file):
            scores = disk.map_file(file)
            if scores.ndim != 1:
                raise ValueError("it must hold one score per feature")
        return scores

    @property
    def columns(self) -> dict[str, AnyArray] | None:
        """Further columns of the features. None if the method has none."""
        file = self.path / "columns.npz"
        if not file.exists():
            return None
        self._verified(file.name)
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

    @property
    def store(self) -> str:
        """The path or URL of the store, which may have been moved together with the run."""
        store = str(self.metadata["parameters"]["store"])
        relative = self.metadata.get("relative_store")
        if relative is None or os.path.exists(store):
            return store
        moved = os.path.normpath(self.final.absolute().parent / relative)
        return moved if os.path.exists(moved) else store

    def checkpoint(self, *identity: Any) -> Checkpoint:
        """Return the store of the states of this run's loops.

        A run of another key does not find them, and `identity` tells the loops of one run apart.
        """
        return Checkpoint(self.path / CHECKPOINTS, digest(identity)[:12])

    def finish(self) -> Path:
        """Delete the checkpoints, and let the run's name point to this result. Returns the name.

        The result before it stays, unless it is the same, made once more.
        """
        before = _target(self.final)
        if self.unfinished:
            require_out(self.final)
        with atomic.explain_write_errors(self.final):
            shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)
            if self.unfinished:
                for part in atomic.paths_in(self.path, f".*{atomic.PART}"):
                    part.unlink()  # of a process that died: this one holds the lock
                note_reader(self.store, self.final)
                atomic.sync_tree(self.path)
                if before is not None and atomic.has_marker(before):
                    atomic.unmark(before)  # its process died as soon as the name pointed to it
                atomic.point(self.final, Path(_home(self.final).name) / self.path.name)
                atomic.unmark(self.path)
                self.unfinished = False
                if before is not None and _record_of(before).get("key") == self.metadata["key"]:
                    atomic.mark_ours(before)
                    atomic.delete_marked(before)
        return self.final

    def abandon(self) -> None:
        """Delete the unfinished run, unless it has checkpoints that the next try can use."""
        if self.unfinished and not atomic.paths_in(self.path / CHECKPOINTS, "*.npz"):
            atomic.delete_marked(self.path)
            _forget(_home(self.final))


def results_of(name: str | Path) -> list[Path]:
    """Return the folders of the finished results of a run, in the order of time."""
    final = _final(name)
    latest = _target(final)
    home = latest.parent if latest is not None else _home(final)
    if not atomic.has_marker(home):
        return [final] if (final / "run.json").is_file() else []
    paths = map(home.joinpath, atomic.names_in(home))
    held = {path: names for path in paths if (names := atomic.names_in(path))}
    earlier = [path for path in held if path != latest and atomic.MARKER not in held[path]]
    # a clock that was set back gives a later result an earlier name
    return [*sorted(earlier), *(path for path in held if path == latest)]


def names_below(folder: str | Path) -> list[Path]:
    """Return the names of the runs in a folder, at any depth, and of those that never finished."""
    names = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if "zarr.json" in files:  # a store
            folders.clear()
        homes = [name for name in folders if name[:1] == "." and atomic.has_marker(here / name)]
        names += [here / name[1:] for name in homes if not name.endswith(atomic.WORK)]
        folders[:] = [name for name in folders if name[:1] != "."]
        names += [here / name for name in folders if (here / name / "run.json").is_file()]
    return sorted(set(names))


def unfinished_of(name: str | Path) -> Path | None:
    """Return the folder of the unfinished result of a run."""
    final = _final(name)
    home, latest = _home(final), _target(final)
    if not atomic.has_marker(home):
        return None
    folders = [path for path in map(home.joinpath, atomic.names_in(home)) if path != latest]
    return max((path for path in folders if atomic.has_marker(path)), default=None)


def discard_unfinished(name: str | Path) -> None:
    """Delete the unfinished result of a run, with its checkpoints."""
    if (path := unfinished_of(name)) is not None:
        atomic.delete_marked(path)


def note_reader(store: str, name: str | Path) -> None:
    """Write next to a store that a run, or another record, names it, so that it is not pruned."""
    if "://" in store or not os.path.exists(store):
        return
    line, readers = os.path.abspath(name), Path(f"{store.removesuffix('.zarr')}{READERS}")
    with contextlib.suppress(PermissionError, FileNotFoundError):  # it is somebody else's
        if line not in readers_of(store):
            with readers.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            atomic.sync(readers)
            atomic.sync(readers.parent)


def readers_of(store: str) -> list[str]:
    """Return the names of the runs and other records that say that they name a store."""
    try:
        text = Path(f"{store.removesuffix('.zarr')}{READERS}").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return text.splitlines()


def record_failure(name: str | Path, reason: str) -> None:
    """Write next to the results of a run when and why it failed, where it has some."""
    home = _home(_final(name))
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    line = sealed_json({"made": made, "reason": reason, "folder": os.getcwd()}, indent=False)
    with contextlib.suppress(OSError):  # the reason is what the user has to read
        if atomic.has_marker(home):
            with (home / FAILURES).open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def failures_of(name: str | Path) -> list[dict[str, str]]:
    """Return when and why a run failed. Nothing is known from a damaged line."""
    file, lines = _home(_final(name)) / FAILURES, list[bytes]()
    with contextlib.suppress(OSError):
        lines = file.read_bytes().splitlines()
    unknown = {"made": "", "reason": f"a line of {FAILURES} is damaged", "folder": str(file.parent)}
    return [unseal(line) or unknown for line in lines]


@contextlib.contextmanager
def lock_run(out: str | Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the name of a run, or raise a BusyError if another process has it."""
    final = _final(out)
    with contextlib.ExitStack() as stack:
        with atomic.explain_write_errors(final):
            stack.enter_context(lock(final, wait=-1 if waits else 0, name=str(out)))
        yield


def require_out(out: str | Path) -> None:
    """Refuse a name that a run cannot have, before any work."""
    with atomic.explain_write_errors(Path(out)):
        final = _final(out)
        if os.path.lexists(final) and _target(final) is None:
            if not (final / "run.json").exists():
                raise RunError(f"{final} exists and is not a run directory: give another --out")
            raise RunError(
                f"{final} is a folder, and the name of a run is a link to its latest result: move "
                f"the folder away, or give another --out"
            )
        home = _home(final)
        if not atomic.is_available(home):
            raise name_taken(home)
        there = next(parent for parent in final.absolute().parents if os.path.lexists(parent))
        parts = [*final.absolute().relative_to(there).parts, f".{final.name}.{'0' * 16}.staging"]
        if max(len(os.fsencode(part)) for part in parts) > os.pathconf(there, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        if not os.access(there, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{there} is not writable")


def _final(out: str | Path) -> Path:
    """Return the name of a run: a symbolic link of the user's leads to where it lies."""
    path = Path(out)
    if path.name in ("", ".."):  # the current folder, or one above it
        path = path.resolve()
    for _ in range(LINKS):
        if not path.is_symlink() or _target(path) is not None:
            return path
        path = path.parent / os.readlink(path)
    raise RunError(f"{out} is a symbolic link that leads to itself: give another path")


def _home(final: Path) -> Path:
    """Return the folder of the results of a run."""
    return final.with_name(f".{final.name}")


def name_of(folder: Path) -> Path:
    """Return the name of the run that a folder is a result of."""
    home = folder.parent
    is_result = home.name[:1] == "." and home.name != ".." and atomic.has_marker(home)
    return home.with_name(home.name[1:]) if is_result else folder


def _target(final: Path) -> Path | None:
    """Return the latest result of a run, or None if its name is no link of ours."""
    if not final.is_symlink():
        return None
    target = Path(os.readlink(final))
    home = _home(final)
    is_ours = len(target.parts) == 2 and target.parts[0] == home.name and atomic.has_marker(home)
    return home / target.name if is_ours else None


def _new_folder(home: Path) -> Path:
    name = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    number = 1
    while os.path.lexists(folder := home / (name if number == 1 else f"{name}-{number}")):
        number += 1
    return folder


def _require_links(home: Path) -> None:
    """Refuse a disk without symbolic links before any work."""
    probe = home / ".link"
    try:
        probe.unlink(missing_ok=True)  # of a command that was killed here
        os.symlink("nowhere", probe)
        probe.unlink()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise RunError(
            f"the disk of {home} has no symbolic links, which give runs their names: give --out on "
            f"another disk"
        ) from error


def _record_of(path: Path) -> dict[str, Any]:
    """Return the record of a result, or an empty one if it is damaged."""
    with contextlib.suppress(RunError):
        return read_metadata(path)
    return {}


def _clear(path: Path, but: set[str]) -> None:
    """Delete what an unfinished run holds, but for its marker and some names."""
    for child in path.iterdir():
        if child.name == atomic.MARKER or child.name in but:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink()


def _forget(home: Path) -> None:
    """Delete the folder of the results of a run if it holds none."""
    with contextlib.suppress(OSError):
        if atomic.has_marker(home) and os.listdir(home) == [atomic.MARKER]:
            atomic.delete_marked(home)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
