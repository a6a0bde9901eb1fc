"""
Coming from scikit-learn
========================

Selectors are estimators as ``SelectKBest`` and ``RFE`` are: they go into a ``Pipeline``, and they
take a store on disk where the matrix does not fit in memory.
"""

# %%
# In place of SelectKBest
# -----------------------
# 400 samples of 300 sparse features. The first six tell three classes apart.

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import scipy.sparse as sp
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import bigfs
from bigfs import storage

rng = np.random.default_rng(0)
y = rng.integers(0, 3, 400)
rates = np.full((400, 300), 0.3)
for j in range(6):
    rates[y == j % 3, j] = 2.0
X = sp.csr_array(rng.poisson(rates).astype(float))

model = make_pipeline(bigfs.SparGE(n_features_to_select=6), LogisticRegression())
print(f"accuracy by five folds: {cross_val_score(model, X, y, cv=5).mean():.3f}")

# %%
# On a store out of core
# ----------------------
# :func:`bigfs.storage.stage` lays the matrix out on disk. The selector reads it in parts.

uri = storage.stage(X, Path(mkdtemp()) / "X.zarr", y=y)
corpus = storage.open(uri)
selector = bigfs.SparGE(n_features_to_select=6).fit(corpus.X, corpus.y)
ours = selector.get_support(indices=True)
best = SelectKBest(f_classif, k=6).fit(X, y)
theirs = best.get_support(indices=True)
print("SparGE:", ours, "SelectKBest:", theirs)

# %%
# How good is the list of SelectKBest?
# ------------------------------------
# :func:`bigfs.audit` bounds how much better any other list of that length could be.

print(bigfs.audit(corpus.X, corpus.y, {"SelectKBest": theirs.tolist()}))

# %%
# The scores of both lists
# ------------------------

import matplotlib.pyplot as plt

_, ax = plt.subplots(layout="constrained")
ax.plot(best.scores_, ".", color="0.7", label="all features")
ax.plot(ours, best.scores_[ours], "o", label="chosen by SparGE")
ax.set(xlabel="feature", ylabel="F of f_classif")
ax.legend()
plt.show()
