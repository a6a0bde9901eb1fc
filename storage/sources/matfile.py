"""A script that reads a MATLAB file before version 7.3 by SciPy and saves its matrix as .npy files.

SciPy's reader can crash on a damaged file, and nothing bounds what a compressed one expands to, so
it runs in a process of its own. The script imports nothing of this package, to start fast.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from scipy.io.matlab import MatReadError, MatReadWarning

# what SciPy may raise for damaged bytes
BROKEN = (
    *(MatReadError, MatReadWarning, zlib.error, EOFError, OSError, ValueError, ArithmeticError),
    *(LookupError, TypeError, AttributeError, UnboundLocalError, RuntimeError),
)
NAMES = ("feature_names", "class_names")  # variables with names, where a file has them


def choose_variables(
    names: Iterable[str], x: str | None, y: str | None
) -> tuple[str, str | None, list[str]]:
    """Return the variables of the matrix, of the labels (or None) and of the names."""
    there = sorted(names)
    x = x or next((name for name in ("X", "fea") if name in there), None)
    y = y or next((name for name in ("Y", "y", "gnd") if name in there), None)
    if x not in there or y not in (None, *there):
        raise ValueError(
            f"it has the variables {', '.join(there) or 'none'}: name the matrix with x=, the "
            f"labels with y="
        )
    return x, y, [name for name in NAMES if name in there and name not in (x, y)]


def extract(
    path: str, folder: str, x: str | None, y: str | None, memory_limit: int
) -> dict[str, Any]:
    """Save the matrix, the labels (own_y.npy) and the names.

    The reply has the shape of a sparse matrix, or the bytes that are needed beyond the limit.
    """
    variables = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path)}
    x, y, names = choose_variables(variables, x, y)
    shape, kind = variables[x]
    needs = 24 * math.prod(shape)
    if kind == "sparse":
        needs = 10 * Path(path).stat().st_size + 16 * sum(shape)
    if needs > memory_limit:
        return {"needs": needs}
    wanted = [x, *([y] if y else []), *names]
    content = scipy.io.loadmat(path, variable_names=wanted, spmatrix=False)
    X, reply = content.pop(x), {}
    if sp.issparse(X):
        X.check_format(full_check=True)  # or a broken file crashes what converts it
        X = sp.csr_array(X)
        reply["shape"] = X.shape
        _save(folder, data=X.data, indices=X.indices, indptr=X.indptr)
    else:
        _save(folder, X=X)
    if y:
        _save(folder, own_y=_labels(content[y]))
    for name in names:
        _save(folder, **{name: _texts(content[name])})
    return reply


def _labels(y: Any) -> Any:
    """Return labels as an array without objects. A cell array holds arrays of one text each."""
    if sp.issparse(y):
        return y.toarray()
    if y.dtype != object:
        return y
    return np.array([str(np.squeeze(cell).item()) for cell in y.ravel()], dtype=np.str_)


def _texts(cells: Any) -> Any:
    """Return a cell array of texts as an array, and anything else as an array without texts."""
    if not isinstance(cells, np.ndarray) or cells.dtype != object:
        is_text = isinstance(cells, np.ndarray) and cells.dtype.kind == "U"
        return cells if is_text else np.zeros(0)
    values = [np.squeeze(cell) for cell in cells.ravel()]
    return np.array([str(v.item()) if v.size == 1 else "" for v in values], dtype=np.str_)


def _save(folder: str, **arrays: Any) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with open(Path(folder) / f"{name}.npy", "wb") as file:
            # writes through Python, whose errors have an errno
            out: Any = SimpleNamespace(write=file.write)
            np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)


def limit_memory(size: int) -> None:
    """Bound the memory from here on, if the system can, and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = pages * resource.getpagesize() + size
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main(task: dict[str, Any]) -> None:
    """Extract, and write the reply or the error as JSON."""
    limit_memory(task["memory_limit"])
    # SciPy warns of a variable that comes twice or can't be read
    warnings.simplefilter("error", MatReadWarning)
    try:
        reply = extract(**task)
    except MemoryError:
        reply = {"needs": None}
    except BROKEN as error:
        reply = {"error": str(error) or repr(error)}
        if isinstance(error, OSError) and error.errno:
            reply = {"error": error.strerror, "errno": error.errno}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
