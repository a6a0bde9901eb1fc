"""A small corpus of cells as anndata writes it, and what it holds.

`python -m tests.helpers.cells` writes tests/data/anndata-VERSION.zip by the anndata that is
installed. The kept archive is of anndata 0.13.4, pandas 3.1.1 and zarr 3.4.2, so that the tests
read its files where anndata cannot be installed too.
"""

import shutil
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

DATA = Path(__file__).parents[1] / "data"
KEPT = DATA / "anndata-0.13.4.tar.xz"
N, D = 12, 7
# csr in X, csc and dense in layers. Of the folders the first is sharded, as by default.
FILES = ("cells.h5ad", "cells.zarr", "unsharded.zarr", "format2.zarr")
X = np.maximum((3 * np.arange(N)[:, None] + 5 * np.arange(D)) % 7 - 3, 0).astype(np.float32)
CELLS, GENES = [f"cell{i}" for i in range(N)], [f"gene{j}" for j in range(D)]
# None is missing. Texts that repeat become a categorical, others stay as they are.
OBS = {
    "cell_type": ["B", "T", "NK", None] * 3,
    "note": [f"note {i}" for i in range(N)],
    "donor": [7, 8, None] * 4,
    "healthy": [True, None, False, True] * 3,
    "age": [0.5 * i for i in range(N)],
    "label": ["B", "T", "NK"] * 4,
    "split": ["train", "train", "test"] * 4,
}


def make_cells():
    """The corpus as an object of anndata."""
    import anndata
    import pandas as pd

    kinds = {"donor": "Int64", "healthy": "boolean"}
    obs = pd.DataFrame({name: pd.Series(v, dtype=kinds.get(name)) for name, v in OBS.items()})
    data = anndata.AnnData(
        X=sp.csr_matrix(X), obs=obs.set_index(pd.Index(CELLS)), var=pd.DataFrame(index=GENES)
    )
    data.layers["csc"], data.layers["dense"] = sp.csc_matrix(2 * X), 3 * X
    data.raw = data
    return data


def write_cells(folder):
    """Write `FILES` by the anndata that is installed."""
    import anndata
    import zarr

    with warnings.catch_warnings(action="ignore"):  # it warns of its own settings
        data = make_cells()
        data.write_h5ad(folder / "cells.h5ad")
        data.write_zarr(folder / "cells.zarr")
        narrow = {
            "write_csr_csc_indices_with_min_possible_dtype": True,
            "auto_shard_zarr_v3": False,
        }
        with anndata.settings.override(**narrow):
            data.write_zarr(folder / "unsharded.zarr")
        anndata.io.write_elem(
            zarr.open_group(folder / "format2.zarr", mode="w", zarr_format=2), "/", data
        )


def unpack_cells(folder):
    """Unpack the files that anndata 0.13.4 wrote."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")


def main():
    from importlib.metadata import version

    with tempfile.TemporaryDirectory() as home:
        write_cells(Path(home))
        file = shutil.make_archive(str(DATA / f"anndata-{version('anndata')}"), "xztar", home)
    sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main()
