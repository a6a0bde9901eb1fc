"""HDF5 files by h5py, which is an optional extra."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from bigfs.storage.errors import SourceError

from bigfs.advice import install_command

HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes


@contextlib.contextmanager
def open_hdf5(path: str) -> Iterator[Any]:
    """Open an HDF5 file, or refuse it before anything is read if some data lie in other files."""
    h5py = need_h5py(path)

    def elsewhere(name: str, link: Any) -> str | None:
        """Return what lies in another file, or None. The first text ends the visit."""
        if isinstance(link, h5py.ExternalLink):
            return f"{name} is a link to {link.filename}"
        thing = file.get(name) if isinstance(link, h5py.HardLink) else None
        if isinstance(thing, h5py.Dataset) and (thing.external or thing.is_virtual):
            return f"{name} has its values in other files"
        return None

    try:
        opened = h5py.File(path, "r")
    except BlockingIOError:
        raise SourceError(
            f"{path} is open for writing in another program: close it there"
        ) from None
    with opened as file:
        if complaint := file.visititems_links(elsewhere):
            raise SourceError(f"{path}: {complaint}: copy them into the file")
        yield file


def need_h5py(path: str) -> Any:
    """Import h5py, or say how to install it."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise SourceError(
            f"{path} is an HDF5 file and needs h5py: {install_command('hdf5')}"
        ) from None
    return h5py
