"""Write and read .npy files, also on disks that are full.

NumPy's own error for a full disk has no errno and reads like a damaged file. The system kills a
process that fills a mapped file on a full disk, so the space for the file is allocated first.
`np.load` takes a file that begins like a zip archive for one, and leaves it open if it is not one.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from bigfs.types import AnyArray


def save(path: str | os.PathLike[str], values: AnyArray) -> None:
    """Write an array as a .npy file."""
    with open(path, "wb") as file:
        # no file to NumPy: it then writes through Python, with its errors
        plain: Any = SimpleNamespace(write=file.write)
        np.lib.format.write_array(plain, np.asarray(values), allow_pickle=False)


def load(path: str | os.PathLike[str]) -> AnyArray:
    """Read a .npy file whole."""
    with open(path, "rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def map_file(path: str | os.PathLike[str], mode: Literal["r", "r+"] = "r") -> np.memmap[Any, Any]:
    """Map a .npy file for reading, or for writing too by "r+"."""
    return np.lib.format.open_memmap(path, mode)


def read_part(values: Any, start: int, stop: int) -> AnyArray:
    """Read a part of an array. The pages of a mapped file do not stay in memory."""
    if isinstance(values, np.memmap) and values.filename is not None:
        values = map_file(values.filename)
    return np.array(values[start:stop])


def allocate(
    path: str | os.PathLike[str], dtype: Any, shape: tuple[int, ...]
) -> np.memmap[Any, Any]:
    """Make a mapped .npy file with its space on the disk allocated."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > shutil.disk_usage(Path(path).parent).free:
        raise OSError(errno.ENOSPC, f"{size} bytes are needed", str(path))
    map_file = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if size and hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.path.getsize(path))
    return map_file
