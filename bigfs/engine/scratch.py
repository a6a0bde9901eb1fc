"""Temporary files of numbers, for arrays that fit in no process."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bigfs.engine.clusters import asking_cluster
from bigfs.engine.executor import client
from bigfs.types import FloatArray


@dataclass(frozen=True)
class ScratchFile:
    """Key of a temporary file of float64 numbers."""

    path: str

    @classmethod
    def new(cls) -> ScratchFile:
        """Make an empty file."""
        descriptor, path = tempfile.mkstemp(prefix="bigfs-")
        os.close(descriptor)
        return cls(path)

    def is_shared(self) -> bool:
        """Return whether every process that runs tasks sees the file."""
        if client() is None:
            return True
        with asking_cluster():
            return all(client().run(os.path.exists, self.path).values())

    def read(self, place: int, shape: tuple[int, ...]) -> FloatArray:
        """Return an array of this shape from the numbers that begin at a place."""
        numbers = np.empty(shape)
        with open(self.path, "rb") as file:
            file.seek(8 * place)
            n_read = file.readinto(numbers.data) if numbers.size else 0
        if n_read != numbers.nbytes:
            raise OSError(f"the temporary file {self.path} was cut off")
        return numbers

    def write(self, place: int, numbers: FloatArray) -> None:
        """Write an array, so that it begins at a place."""
        try:
            with open(self.path, "r+b") as file:
                file.seek(8 * place)
                file.write(np.ascontiguousarray(numbers, dtype=np.float64).data)
        except OSError as error:
            raise OSError(
                f"the temporary file {self.path} cannot be written ({error.strerror}): set TMPDIR "
                f"to a folder with room that all workers see"
            ) from error

    def remove(self) -> None:
        """Delete the file."""
        Path(self.path).unlink(missing_ok=True)
