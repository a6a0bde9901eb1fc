"""MATLAB files before version 7.3, read by SciPy in a process of its own.

SciPy's reader can crash on a damaged file, and nothing bounds what a compressed one expands to. The
process runs this file as a script, which imports nothing of this package, so that it starts fast
and never runs a user's script again.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import warnings
import zlib
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
COMMAND = [sys.executable, "-P", __file__]


NAMES = ("feature_names", "class_names")  # variables with names, where a file has them


def extract(path: str, folder: Path, x: str | None, y: str | None, room: int) -> dict[str, Any]:
    """Save the matrix and the labels of a file as .npy files, in a separate process.

    Parameters
    ----------
    path : str
        The file.
    folder : Path
        The folder for X.npy, or data.npy, indices.npy and indptr.npy, for own_y.npy, and for the
        variables of `NAMES` that the file has.
    x, y : str or None
        The names of the variables, as in `variables`.
    room : int
        The bytes that reading may take.

    Returns
    -------
    dict
        "variables" has the shape and the class of each variable. "shape" is the shape of the matrix
        if it is sparse. No file is saved where a variable is missing or `projected` passes `room`.

    Raises
    ------
    EOFError
        The process died.
    MemoryError
        The file takes more than `room`.
    OSError
        The disk is full, with the system's number.
    ValueError
        SciPy can't read the file.
    """
    task = {"path": path, "folder": str(folder), "x": x, "y": y, "room": room}
    ended = subprocess.run([*COMMAND, json.dumps(task)], capture_output=True, check=False)
    if ended.returncode < 0:
        raise EOFError("the file is damaged (the reader crashed)")
    ended.check_returncode()
    reply: dict[str, Any] = json.loads(ended.stdout)
    if "memory" in reply:
        raise MemoryError
    if "errno" in reply:
        raise OSError(reply["errno"], reply["error"])
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply


def variables(names: Any, x: str | None, y: str | None) -> tuple[str | None, str | None]:
    """Return the names of the matrix and of the labels.

    Parameters
    ----------
    names : collection of str
        The variables of the file.
    x, y : str or None
        The names that the user gave. None takes X, else fea, and Y, else y, else gnd.

    Returns
    -------
    tuple of str or None
        None where there is no such variable.
    """
    x = x or next((name for name in ("X", "fea") if name in names), None)
    return x, y or next((name for name in ("Y", "y", "gnd") if name in names), None)


def projected(path: str, shape: list[int], kind: str) -> int:
    """Return the bytes that reading a matrix takes.

    Parameters
    ----------
    path : str
        The file.
    shape : list of int
        The shape of the matrix.
    kind : str
        Its class, as `scipy.io.whosmat` says it.

    Returns
    -------
    int
    """
    if kind == "sparse":
        return 10 * Path(path).stat().st_size + 16 * sum(shape)
    return 3 * 8 * math.prod(shape)


# --- in the process -------------------------------------------------------------------------------


def _save_variables(
    path: str, folder: Path, x: str | None, y: str | None, room: int
) -> dict[str, Any]:
    shapes = {
        name: ([int(side) for side in shape], kind) for name, shape, kind in scipy.io.whosmat(path)
    }
    reply: dict[str, Any] = {"variables": shapes}
    x, y = variables(shapes, x, y)
    if x not in shapes or (y and y not in shapes) or projected(path, *shapes[x]) > room:
        return reply
    names = [name for name in NAMES if name in shapes and name not in (x, y)]
    content = scipy.io.loadmat(path, variable_names=[x, *([y] if y else []), *names])
    X = content.pop(x)
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


def _save(folder: Path, **arrays: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with open(folder / f"{name}.npy", "wb") as file:
            # writes through Python, whose errors have an errno
            out: Any = SimpleNamespace(write=file.write)
            np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)


def _limit(room: int) -> None:
    """Bound the memory from here on, if the system can, and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = pages * resource.getpagesize() + room
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main(task: dict[str, Any]) -> None:
    """Do a task of `extract` and write the reply as JSON.

    Parameters
    ----------
    task : dict
        The parameters of `extract`.
    """
    _limit(task["room"])
    # SciPy warns of a variable that comes twice or can't be read
    warnings.simplefilter("error", MatReadWarning)
    try:
        reply = _save_variables(**task | {"folder": Path(task["folder"])})
    except MemoryError:
        reply = {"memory": True}
    except BROKEN as error:
        reply = {"error": str(error) or repr(error)}
        if isinstance(error, OSError) and error.errno:
            reply = {"error": error.strerror, "errno": error.errno}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
