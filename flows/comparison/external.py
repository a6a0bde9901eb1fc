"""Selectors of other packages in a comparison, each in a process of its own.

The process gets the samples as files, and never more memory than a worker. It is killed when the
method is late. So an external selector cannot end a comparison, whatever it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.evaluation.splits import labeled_rows, target_kind
from bigfs.flows.comparison.request import selector_name
from bigfs.flows.evaluation.choosing import ChosenSets
from bigfs.matrix import Matrix
from bigfs.storage.runs.checkpoints import digest

BYTES_PER_VALUE = 12 + 12  # of the samples as float64 with their columns, gathered and written


class ExternalSelector(NamedTuple):
    """A class or function without arguments that makes a selector in scikit-learn's style."""

    place: str  # of the form package.module:Name or file.py:Name

    @property
    def name(self) -> str:
        return selector_name(self.place)

    def identity(self) -> str:
        """Return a hash of the code, as far as its file and its package's version tell."""
        module, colon, name = self.place.partition(":")
        is_file = module.endswith(".py")
        if not (colon and name and (Path(module).is_file() or not is_file)):
            raise ValueError(
                f"--with takes package.module:Class or file.py:Class; got {self.place!r}"
            )
        file: str | None = module if is_file else _file_of(module)
        if file is None:
            raise ValueError(f"--with {self.place}: there is no module {module}")
        code = Path(file).read_bytes() if Path(file).is_file() else b""
        packages = packages_distributions().get(module.partition(".")[0], [])
        return digest([self.place, code.hex(), [version(package) for package in packages]])

    def choose(self, X: Matrix, y: Any, sizes: Sequence[int]) -> ChosenSets:
        """Choose each number of features."""
        engine.require_memory(X.nnz * BYTES_PER_VALUE, f"handing the samples to {self.name}")
        before, keep = X.passes, labeled_rows(y)
        if not keep.any():
            keep[:], y = True, None
        Z = sp.csr_matrix(X.columns(slice(None)).tocsr(), dtype=np.float64)
        if not keep.all():
            Z, y = Z[keep], y[keep]
        with tempfile.TemporaryDirectory(prefix="bigfs-") as folder:
            sp.save_npz(Path(folder) / "X.npz", Z, compressed=False)
            if y is not None:
                target = y.toarray() if target_kind(y) == "multilabel" else np.asarray(y)
                np.save(Path(folder) / "y.npy", target, allow_pickle=False)
            del Z
            answer = self._ask(folder, [self.place, str(engine.memory_limit()), *map(str, sizes)])
        sets = {int(m): np.array(index, dtype=np.int64) for m, index in answer["sets"].items()}
        used = {name: answer[name] for name in ("processor_seconds", "peak_memory")}
        return ChosenSets(sets, [], answer["fits"], X.passes - before, used)

    def _ask(self, folder: str, arguments: list[str]) -> dict[str, Any]:
        """Run the selector, and return what it wrote."""
        command = [
            sys.executable,
            "-m",
            "bigfs.flows.comparison.external_worker",
            folder,
            *arguments,
        ]
        printed = Path(folder) / "printed.txt"
        with printed.open("wb") as out:
            # a time limit ends the wait, which kills the process
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if ended.returncode:
            lines = printed.read_text(encoding="utf-8", errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            raise ValueError(last or f"its process ended with status {ended.returncode}")
        answer: dict[str, Any] = json.loads((Path(folder) / "answer.json").read_text("utf-8"))
        return answer


def _file_of(module: str) -> str | None:
    """Return the file of a module, or None if there is no such file. No package is imported for it.

    It is looked for in the current folder first, as the process of the selector does.
    """
    place: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    name, origin = "", None
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        found = None if place is None else PathFinder.find_spec(name, place)
        if found is None:
            return None
        place, origin = found.submodule_search_locations, found.origin or ""
    return origin
