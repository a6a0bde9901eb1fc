"""HDF5 files by h5py, which is an optional extra."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from bigfs.advice import install_command
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.trial import trial

# reads all but the values of a file, of which it takes the first and the last
LOOK = """
import h5py, sys
def look(name, thing):
    print("at", ascii(name), flush=True)
    dict(thing.attrs)
    if isinstance(thing, h5py.Dataset) and thing.size and not (thing.external or thing.is_virtual):
        thing[(0,) * thing.ndim], thing[tuple(side - 1 for side in thing.shape)]
def tried(path):
    with h5py.File(path, "r", locking="best-effort") as file:
        file.visititems_links(lambda name, link: None)
        dict(file.attrs), file.visititems(look)
    return "read"
"""
HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes


def require_end(path: str) -> None:
    """Refuse a file that ends the process which reads it, or never returns."""
    need_h5py(path)
    if os.path.isfile(path) and trial(LOOK).ask(os.fsencode(os.path.abspath(path))) is None:
        raise SourceError(f"{path} is broken: the HDF5 library does not come to an end with it")


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
        # some file systems of servers have no locks
        opened = h5py.File(path, "r", locking="best-effort")
    except BlockingIOError:
        raise SourceError(
            f"{path} is open for writing in another program: close it there"
        ) from None
    with opened as file:
        if complaint := file.visititems_links(elsewhere):
            raise SourceError(f"{path}: {complaint}: copy them into the file")
        yield file


def other_hdf5(file: Any) -> str | None:
    """Return what an open file is by its groups, with what to do, if it is no AnnData."""
    kind = str(file.attrs.get("encoding-type"))
    if kind == "anndata" or {"obs", "var"} & set(file):
        return None
    if kind == "MuData":
        return (
            "MuData: write one of its modalities, as by "
            "mudata.read(FILE)['rna'].write_h5ad('cells.h5ad')"
        )
    if "PYTABLES_FORMAT_VERSION" in file.attrs:
        return "HDF5 of pandas: turn it into Parquet, as by pandas.read_hdf(FILE).to_parquet(NEW)"
    names = ", ".join(map(ascii, file)) or "nothing"
    return f"HDF5 that holds {names[:200]}, and no AnnData: save its matrix as .npy or .npz"


def need_h5py(path: str) -> Any:
    """Import h5py, or say how to install it."""
    try:
        import h5py
    except ModuleNotFoundError:
        raise SourceError(
            f"{path} is an HDF5 file and needs h5py: {install_command('hdf5')}"
        ) from None
    return h5py
