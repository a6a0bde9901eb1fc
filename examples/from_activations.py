"""
Coming from sparse autoencoders and probes
==========================================

Top latents of a sparse autoencoder are staged as they are stored, and each concept gets the few
latents that tell it from the rest.
"""

# %%
# Latents in lists
# ----------------
# A row holds the latents of one text that are active, and their values. Each of four concepts
# has two latents of its own among 200.

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bigfs
import storage

home = Path(mkdtemp())
rng = np.random.default_rng(0)
concepts = np.array(["code", "law", "news", "sport"])
concept = rng.integers(0, 4, 400)
indices = [
    [2 * c, 2 * c + 1, *rng.choice(np.arange(8, 200), 10, replace=False)]
    for c in concept
]
values = [rng.gamma(2, 0.5, 12) for _ in concept]
rows = {"latents": indices, "acts": values, "concept": concepts[concept]}
pq.write_table(pa.table(rows), home / "acts.parquet")

uri = storage.stage(
    home / "acts.parquet",
    home / "acts.zarr",
    indices="latents",
    values="acts",
    label="concept",
)
corpus = storage.open(uri)

# %%
# A few latents per concept
# -------------------------
# One choice per concept against the rest, of two latents each.

X, y = corpus.X, np.asarray(corpus.y)
chosen = []
for k, name in enumerate(concepts):
    probe = bigfs.SparGE(n_features_to_select=2).fit(X, (y == k).astype(int))
    chosen.append(probe.get_support(indices=True))
    print(name, chosen[-1])

# %%
# The picture shows which latents each concept got.

import matplotlib.pyplot as plt

_, ax = plt.subplots(layout="constrained")
for k, latents in enumerate(chosen):
    ax.plot(latents, [k] * len(latents), "o")
ax.set_yticks(range(4), concepts)
ax.set_xlabel("latent")
plt.show()
