"""Run directories: what was asked, what came out, and the checkpoints in between. No pickles.

    selected.csv   rank, index, name, score
    scores.npy     every feature's score, float64
    run.json       everything needed to repeat the run, its status, history and figures
    curves.csv     method, n_features, accuracy
    report.html    the page to look at

A run is worked on in `NAME.partial` and gets its name by one rename when it is whole. A killed
run's partial directory holds its checkpoints; the same command goes on from them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

VERSION = 1


class RunError(ValueError):
    """A run directory that is not one, or was written by a newer version."""


class Run:
    """A run directory, at work (`begin`) or whole (`open`)."""

    def __init__(self, path: Path, final: Path, about: dict[str, Any]) -> None:
        self.path, self.final, self.about = path, final, about

    @classmethod
    def begin(cls, out: str | Path, parameters: dict[str, Any]) -> Run:
        """Start a run, or go on with a killed one of the same parameters."""
        final = Path(out)
        if final.exists() and not (final / "run.json").exists():
            raise RunError(f"{final} exists and is no run directory: give another --out")
        path = final.with_name(final.name + ".partial")
        about = {"version": VERSION, "parameters": _plain(parameters)}
        before = path / "run.json"
        if path.exists() and not (before.exists() and json.loads(before.read_text()).get("parameters") == about["parameters"]):
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path, final, about)
        run.note()
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A run that is there: whole, or one at work by its partial name."""
        path = Path(path)
        final = path.with_suffix("") if path.suffix == ".partial" else path
        try:
            about = json.loads((path / "run.json").read_text())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RunError(f"{path} is no run directory: it has no run.json; make one with `bigfs select` or `bigfs run`") from error
        except json.JSONDecodeError as error:
            raise RunError(f"{path / 'run.json'} is damaged: {error}") from error
        if about.get("version", 0) > VERSION:
            raise RunError(f"{path} was written by a newer bigfs (format {about['version']}, this one knows {VERSION}): upgrade bigfs")
        return cls(path, final, about)

    def note(self, **figures: Any) -> None:
        """Add figures to run.json, written whole or not at all."""
        self.about |= _plain(figures)
        _write(self.path / "run.json", json.dumps(self.about, indent=1, ensure_ascii=False, allow_nan=True))

    def write_table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        part = self.path / f"{name}.part"
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)
        part.replace(self.path / name)

    def read_table(self, name: str) -> list[dict[str, str]]:
        with (self.path / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def write_text(self, name: str, text: str) -> Path:
        _write(self.path / name, text)
        return self.path / name

    def write_scores(self, scores: Any) -> None:
        np.save(self.path / "scores.npy", np.asarray(scores, dtype=np.float64), allow_pickle=False)

    @property
    def scores(self) -> Any:
        return np.load(self.path / "scores.npy", mmap_mode="r", allow_pickle=False)

    @property
    def selected(self) -> Any:
        """Indices of the selected features, best first."""
        return np.array([int(row["index"]) for row in self.read_table("selected.csv")], dtype=np.int64)

    def checkpoint(self, *identity: Any) -> Checkpoint:
        """Where the loops of this run keep their states; `identity` is what must not have changed."""
        key = hashlib.sha256(json.dumps(_plain(list(identity)), sort_keys=True).encode()).hexdigest()[:12]
        return Checkpoint(self.path / "checkpoints", key)

    def finish(self) -> Path:
        """Drop the checkpoints and give the run its name; a run of that name before it goes."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)
        if self.path != self.final:
            old = self.final.with_name(self.final.name + ".old")
            shutil.rmtree(old, ignore_errors=True)
            if self.final.exists():
                self.final.rename(old)
            self.path.rename(self.final)
            shutil.rmtree(old, ignore_errors=True)
            self.path = self.final
        return self.final

    def abandon(self) -> None:
        """Leave nothing behind, unless there are checkpoints that the next try can use."""
        if self.path != self.final and not (self.path / "checkpoints").is_dir():
            shutil.rmtree(self.path, ignore_errors=True)


class Checkpoint:
    """States of named loops as .npz files, each replaced as one; see `bigfs.result.Checkpoint`."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.resumed: dict[str, int] = {}  # loop → steps that an earlier try had done

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.lower().replace(' ', '-')}-{self.key}.npz"

    def load(self, name: str) -> tuple[tuple[Any, ...], list[dict[str, float]]] | None:
        file = self._file(name)
        if not file.exists():
            return None
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                flat = {key: arrays[key] for key in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(f"the checkpoint {file} is damaged ({error}): delete it and start the run again") from error
        form = json.loads(str(flat["form"]))
        self.resumed[name] = len(form["history"])
        return tuple(_unflatten(flat, f"{i}", kind) for i, kind in enumerate(form["fields"])), form["history"]

    def save(self, name: str, state: Any, history: list[dict[str, float]]) -> None:
        flat: dict[str, Any] = {}
        fields = [_flatten(flat, f"{i}", field) for i, field in enumerate(state)]
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self._file(name).with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, form=json.dumps({"fields": fields, "history": _plain(history)}), **flat)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._file(name))


def _flatten(flat: dict[str, Any], key: str, value: Any) -> Any:
    """Put the arrays of `value` under `key` and return what kind it is."""
    if sp.issparse(value):
        value = value.tocsr()
        flat |= {f"{key}.data": value.data, f"{key}.indices": value.indices, f"{key}.indptr": value.indptr}
        return ["csr", *value.shape]
    if isinstance(value, tuple | list):
        return ["tuple", [_flatten(flat, f"{key}.{i}", item) for i, item in enumerate(value)]]
    if value is None:
        return ["none"]
    if isinstance(value, np.ndarray):
        flat[key] = value
        return ["array"]
    flat[key] = np.asarray(value)
    return ["number"]


def _unflatten(flat: dict[str, Any], key: str, form: Any) -> Any:
    kind = form[0]
    if kind == "csr":
        return sp.csr_array((flat[f"{key}.data"], flat[f"{key}.indices"], flat[f"{key}.indptr"]), shape=tuple(form[1:]))
    if kind == "tuple":
        return tuple(_unflatten(flat, f"{key}.{i}", item) for i, item in enumerate(form[1]))
    if kind == "none":
        return None
    return flat[key] if kind == "array" else flat[key].item()


def _plain(value: Any) -> Any:
    """As JSON knows it: NumPy's numbers and arrays become Python's."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _write(file: Path, text: str) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
