"""
Coming from scanpy: genes of an .h5ad file, written back
========================================================

A file of cells is staged, genes are chosen, by scanpy's highly variable ones and together for the
cell types, and the choice goes back into ``var`` of the file. The package anndata is not needed:
bigfs reads and writes the published format. :doc:`/guide/jobs` has a panel of genes on the command line.
"""

# %%
# A file of cells
# ---------------
# 600 cells of three types from six donors, with counts of 500 genes. The first 12 genes tell the types apart, and
# each of the first four has two others that follow it. The file is written by the published format.

from pathlib import Path
from tempfile import mkdtemp

import h5py
import numpy as np
import scipy.sparse as sp

home = Path(mkdtemp())
rng = np.random.default_rng(0)
cell_type = rng.integers(0, 3, 600)
rates = np.full((600, 500), 0.3)
for gene in range(4):
    level = np.where(cell_type == gene % 3, 2.5, 0.4) * rng.gamma(2, 0.5, 600)
    rates[:, [gene, gene + 4, gene + 8]] = level[:, None]
counts = sp.csr_array(rng.poisson(rates).astype(np.float32))
genes = [f"marker{j}" for j in range(12)] + [f"gene{j}" for j in range(12, 500)]


def write_frame(file, name, index):
    """Write a data frame without columns."""
    frame = file.create_group(name)
    frame.attrs.update(
        {
            "encoding-type": "dataframe",
            "encoding-version": "0.2.0",
            "_index": "_index",
            "column-order": np.array([], dtype=h5py.string_dtype()),
        }
    )
    frame.create_dataset("_index", data=index, dtype=h5py.string_dtype())
    return frame


with h5py.File(home / "cells.h5ad", "w") as file:
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    X = file.create_group("X")
    X.attrs.update(
        {
            "encoding-type": "csr_matrix",
            "encoding-version": "0.1.0",
            "shape": counts.shape,
        }
    )
    for part in ("data", "indices", "indptr"):
        X[part] = getattr(counts, part)
    write_frame(file, "var", genes)
    types = write_frame(file, "obs", [f"cell{i}" for i in range(600)])
    types.attrs["column-order"] = ["cell_type", "donor"]
    for name, categories, codes in (
        ("cell_type", ["B", "NK", "T"], cell_type),
        ("donor", [f"donor{i}" for i in range(6)], np.arange(600) % 6),
    ):
        column = types.create_group(name)
        column.attrs.update(
            {
                "encoding-type": "categorical",
                "encoding-version": "0.2.0",
                "ordered": False,
            }
        )
        column.create_dataset("categories", data=categories, dtype=h5py.string_dtype())
        column["codes"] = codes.astype(np.int8)

# %%
# Highly variable genes
# ---------------------
# ``weight="lognorm"`` is ``normalize_total`` and ``log1p``. ``label``, ``batch`` and ``group`` name
# columns of ``obs``. :class:`bigfs.HighlyVariable` scores genes as
# ``scanpy.pp.highly_variable_genes`` does, here within each donor, for cells that do not fit in
# memory as well. They know no types, so few or none of the markers are among them here.

import bigfs
from bigfs import storage

roles = "label=cell_type&batch=donor&group=donor"
uri = storage.stage(f"{home}/cells.h5ad?{roles}", home / "cells.zarr", weight="lognorm")
corpus = storage.open(uri)
variable = bigfs.HighlyVariable(n_features_to_select=12).fit(corpus.X)
found = [name for name in variable.get_feature_names_out() if name.startswith("marker")]
print(len(found), "markers among the 12 most variable genes")

# %%
# Choose genes, and their number
# ------------------------------
# :class:`bigfs.SelectorCV` takes the smallest number of genes whose accuracy is within one standard
# error of the best. ``cross_val_score`` chooses again inside each fold, so its accuracy is honest.
# With ``groups`` no donor is in both parts of a fold.

selector = bigfs.SelectorCV(cv=3, sizes=[1, 2, 4, 8, 16, 32])
selector.fit(corpus.X, corpus.y, groups=corpus.groups)
print(selector.get_feature_names_out())
accuracy = selector.cross_val_score(corpus.X, corpus.y, cv=3, groups=corpus.groups)
print(f"accuracy for new donors: {accuracy.mean():.3f}")

# %%
# Write the choice into the file
# ------------------------------
# The file gets ``var["bigfs_selected"]``, ``var["bigfs_score"]``, ``var["bigfs_rank"]`` and
# ``uns["bigfs"]``. On request it gets ``var["highly_variable"]``, which the tools of scanpy take. On
# the command line this is ``bigfs select cells.zarr --out my-run --into cells.h5ad``.

corpus.write_var(selector, highly_variable=True)
with h5py.File(home / "cells.h5ad") as file:
    print(list(file["var"].attrs["column-order"]))
    print("highly variable:", int(file["var/highly_variable"][:].sum()), "genes")

# %%
# Look at the number, and at the genes
# ------------------------------------
# The second picture shows how often each gene is chosen from random halves of the cells. Genes that
# follow one another take turns.

import matplotlib.pyplot as plt

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
bigfs.plot.size_choice(selector, ax=left)
half = bigfs.SparGE(n_features_to_select=selector.n_features_)
found = bigfs.stability(half, corpus.X, corpus.y, n_subsamples=20)
bigfs.plot.stability(found, feature_names=genes, n_features=12, ax=right)
plt.show()
