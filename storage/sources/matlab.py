"""Matrices in MATLAB files. `bigfs.storage.sources.matfile` reads those before version 7.3."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.engine import MemoryLimitError, format_bytes, require_memory
from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.format import disk
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.arrays import SavedMatrix, names_in
from bigfs.storage.sources.scratch_matrix import ScratchMatrix, open_dense
from bigfs.types import AnyArray

READER = Setting([sys.executable, "-P", str(Path(__file__).with_name("matfile.py"))])


@dataclass(eq=False, kw_only=True)
class Mat(SavedMatrix):
    """A MATLAB file with a matrix of samples × features and a vector of labels.

    Texts in the variables feature_names and class_names are the names of the columns, and of the
    classes of whole labels from 1 (or from 0 where 0 occurs). A file can't be read in pieces: a
    process of its own reads it within the memory limit. Files of version 7.3 are refused.
    """

    format = "mat"
    x: str | None = None  # the variable with the matrix, by default X or fea
    y: str | None = None  # the variable with the labels, by default Y, y or gnd

    def settings(self) -> tuple[Any, ...]:
        return *super().settings(), self.x, self.y

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return head.startswith(b"MATLAB ")

    def write_matrix(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        with open(self.path, "rb") as file:
            if file.read(10) == b"MATLAB 7.3":
                raise SourceError(
                    f"{self.path} is of version 7.3: save it by save(NAME, 'X', 'Y', '-v7'), or "
                    f"its matrix as .npz or .h5ad"
                )
        matrix, y = self._from_reader(folder)
        return matrix, None if y is None else self._by_name(y, matrix.folder)

    def _by_name(self, y: AnyArray, folder: str) -> Any:
        """Return whole labels as the names of their classes, None where a label is missing."""
        names = names_in(Path(folder), "class_names")
        if names is None or y.dtype.kind not in "iuf":
            return y
        labels = y.reshape(-1).astype(np.float64)
        if self.unlabeled is not None:
            samples.require_number(self.unlabeled, self.path)
            labels[labels == samples.parse_number(str(self.unlabeled))] = np.nan
        known = labels[~np.isnan(labels)]
        first = 0 if (known == 0).any() else 1
        last = first + len(names) - 1
        if np.any((known != np.rint(known)) | (known < first) | (known > last)):
            raise SourceError(
                f"{self.path} has {len(names)} class_names, but its labels are not whole numbers "
                f"from {first} to {last}: rename the variable to ignore it"
            )
        return [None if np.isnan(label) else names[int(label) - first] for label in labels]

    def _from_reader(self, folder: Path) -> tuple[ScratchMatrix, AnyArray | None]:
        limit = engine.memory_limit()
        task = {"path": self.path, "folder": str(folder), "x": self.x, "y": self.y}
        reply = _run_reader(task | {"memory_limit": limit})
        if "needs" in reply:
            what = f"reading {self.path}, which can't be read in parts,"
            if reply["needs"] is not None:
                require_memory(reply["needs"], what, limit)
            raise MemoryLimitError(
                f"{what} needs more than the {format_bytes(limit)} that are allowed in one "
                f"process: raise --memory-limit"
            )
        if "shape" in reply:
            matrix = ScratchMatrix(str(folder), self.path, tuple(reply["shape"]))
            checks.require_shape(*matrix.shape, self.path)
        else:
            matrix = open_dense(folder, self.path)
        return matrix, disk.load(folder / "own_y.npy") if matrix.has("own_y") else None


def _run_reader(task: dict[str, Any]) -> dict[str, Any]:
    """Run `bigfs.storage.sources.matfile` and return its reply, or raise the error that it met."""
    ended = subprocess.run([*READER.value, json.dumps(task)], capture_output=True, check=False)
    if ended.returncode < 0:
        raise EOFError("the file is damaged (the reader crashed)")
    ended.check_returncode()
    reply: dict[str, Any] = json.loads(ended.stdout)
    if "errno" in reply:
        raise OSError(reply["errno"], reply["error"])
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply
