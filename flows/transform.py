"""The selected columns of a store, as a file of SciPy."""

from __future__ import annotations

import contextlib
import os
import zipfile
from pathlib import Path

import scipy.sparse as sp

import storage
from storage.ownership import in_the_way
from storage.replacing import replacing
from storage.runs import Run

NPZ_MEMBERS = {"data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"}


def transform(run: str | Path, store: str, out: str | Path) -> Path:
    """Write the selected columns of a store, in the order of their rank, as a scipy.sparse .npz.

    Parameters
    ----------
    run : str or Path
        A run's directory.
    store : str
        A staged corpus with the features that the run selected.
    out : str or Path
        The file to write; `.npz` is added if missing. An existing file is replaced only if it is
        the .npz of a sparse matrix.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        The store does not have the features of the run, or `out` is another kind of file.
    """
    opened, corpus = Run.open(run), storage.open(store)
    file = Path(out) if str(out).endswith(".npz") else Path(f"{out}.npz")
    _require_matrix(file)
    index = opened.selected
    names = [row["name"] for row in opened.read_table("selected.csv")]
    if index.max() >= corpus.X.shape[1] or list(corpus.feature_names[index]) != names:
        raise ValueError(
            f"{store} does not have the features that {run} selected: stage "
            f"it with the same vocabulary"
        )
    with replacing(file) as part, part.open("wb") as stream:
        sp.save_npz(stream, sp.csr_matrix(corpus.X.columns(index)))
    return file


def _require_matrix(file: Path) -> None:
    """Check that the file is missing or is the .npz of a sparse matrix."""
    if os.path.lexists(file):
        names: list[str] = []
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
            names = archive.namelist()
        if not set(names) >= NPZ_MEMBERS:
            raise in_the_way(file)
