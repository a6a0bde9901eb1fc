"""
Out of core, the same answer
============================

A store is read tile by tile. This example cuts one in very small tiles, so that it behaves like a
corpus that is far larger than memory, and compares the answer with that of an array in memory.
"""

# %%
# One corpus, two ways to hold it
# -------------------------------

from tempfile import mkdtemp

import numpy as np
import scipy.sparse as sp

from bigfs import storage

uri = storage.stage(
    "synthetic:newswire?rows=3000", f"{mkdtemp()}/newswire.zarr", tile_rows=300
)
corpus = storage.open(uri)
in_memory = sp.csr_array(corpus.X.columns(np.arange(corpus.X.shape[1])))
print(
    f"the store has {len(corpus.X.row_tiles)} tiles of rows and "
    f"{len(corpus.X.column_tiles)} tiles of columns"
)

# %%
# Fit both
# --------

import bigfs

settings = {"embedding": "lda", "n_features_to_select": 100}
from_store = bigfs.SparGE(**settings).fit(corpus.X, corpus.y)
from_memory = bigfs.SparGE(**settings).fit(in_memory, corpus.y)
print(
    "the same features in the same order:",
    np.array_equal(from_store.selected_, from_memory.selected_),
)
difference = (
    np.abs(from_store.scores_ - from_memory.scores_).max() / from_memory.scores_.max()
)
print(f"largest difference of a score, relative: {difference:.1e}")

# %%
# How often was the corpus read?
# ------------------------------
# A method out of core is measured by its passes over the data. The scores of one feature at a time
# need none here, because the store
# holds the sums per class.

import matplotlib.pyplot as plt

passes = {}
for name, selector in [
    ("ANOVA", bigfs.ANOVA(n_features_to_select=100)),
    ("Laplacian score", bigfs.LaplacianScore(n_features_to_select=100)),
    ("SparGE on classes", bigfs.SparGE(**settings)),
    ("SparGE on variance", bigfs.SparGE(embedding="pca", n_features_to_select=100)),
]:
    X = storage.open(uri).X
    selector.fit(X, corpus.y)
    passes[name] = X.passes

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar_label(ax.barh(list(passes), list(passes.values())), padding=3)
ax.set(xlabel="passes over the corpus", title="3,000 documents, 20,000 terms")
plt.show()
