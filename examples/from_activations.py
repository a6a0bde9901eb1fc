"""
Coming from sparse autoencoders and probes
==========================================

Top latents of a sparse autoencoder are staged as they are stored, and each concept gets the few
latents that tell it from the rest. :doc:`/guide/jobs` has the same on the command line.
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
from bigfs import storage

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


def stage_lists(rows, name, label):
    path = home / f"{name}.parquet"
    pq.write_table(pa.table(rows), path)
    store = home / f"{name}.zarr"
    uri = storage.stage(path, store, indices="latents", values="acts", label=label)
    return storage.open(uri)


corpus = stage_lists(rows, "acts", label="concept")

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
# Several concepts per text
# -------------------------
# A column of lists of names, or a 0/1 matrix next to the rows, is a set of labels per text. The
# embedding "cca" chooses for all labels at once. On the command line this is
# ``bigfs run 'acts.parquet?indices=latents&values=acts&label=concepts' --method sparge-cca``.

has = np.zeros((400, 4), dtype=int)
has[np.arange(400), concept] = has[np.arange(400), rng.integers(0, 4, 400)] = 1
own = [np.flatnonzero(np.repeat(row, 2)) for row in has]
rows = {
    "latents": [[*a, *b[2:]] for a, b in zip(own, indices, strict=True)],
    "acts": [rng.gamma(2, 0.5, len(a) + 10) for a in own],
    "concepts": [list(concepts[row == 1]) for row in has],
}
labeled = stage_lists(rows, "sets", label="concepts")
for targets in (labeled.y, has):
    together = bigfs.SparGE(embedding="cca", n_features_to_select=8)
    print(sorted(together.fit(labeled.X, targets).selected_.tolist()))

# %%
# The picture shows which latents each concept got.

import matplotlib.pyplot as plt

_, ax = plt.subplots(layout="constrained")
for k, latents in enumerate(chosen):
    ax.plot(latents, [k] * len(latents), "o")
ax.set_yticks(range(4), concepts)
ax.set_xlabel("latent")
plt.show()
