"""
Coming from DuckDB and polars
=============================

A frame, a lazy frame or a query is staged as it is, within the memory limit. :doc:`/guide/jobs`
compares two corpora this way.
"""

# %%
# A table of texts
# ----------------
# ``text=`` and ``label=`` name the columns, and ``where=`` keeps rows.

from pathlib import Path
from tempfile import mkdtemp

import duckdb
import numpy as np
import polars as pl

import bigfs
from bigfs import storage

home = Path(mkdtemp())
rng = np.random.default_rng(0)
kind = rng.choice(["sport", "space"], 300)
words = {"sport": ["goal", "team", "match"], "space": ["orbit", "moon", "rocket"]}
common = [f"word{j}" for j in range(50)]
body = [" ".join([*rng.choice(words[k], 2), *rng.choice(common, 10)]) for k in kind]
lang = rng.choice(["en", "de"], 300)
frame = pl.DataFrame({"body": body, "kind": kind, "lang": lang})

uri = storage.stage(
    frame, home / "posts.zarr", text="body", label="kind", where="lang == 'en'"
)
posts = storage.open(uri)
selector = bigfs.SparGE(n_features_to_select=6).fit(posts.X, posts.y)
print(selector.get_feature_names_out())

# %%
# A table of numbers
# ------------------
# ``columns=`` takes names or patterns. A reader of small batches keeps the memory of DuckDB low.

level = {
    f"x{j}": rng.normal(size=300) + (j < 2) * 2 * (kind == "sport") for j in range(20)
}
numbers = pl.DataFrame({**level, "kind": kind})
query = duckdb.sql("select * from numbers").to_arrow_reader(10_000)
uri = storage.stage(query, home / "numbers.zarr", columns="x*", label="kind")
found = storage.open(uri)
best = bigfs.SparGE(n_features_to_select=2).fit(found.X, found.y)
print(best.get_feature_names_out())

# %%
# The two columns it chose tell the kinds apart.

import matplotlib.pyplot as plt

a, b = best.get_feature_names_out()
_, ax = plt.subplots(layout="constrained")
for name in words:
    ax.plot(level[a][kind == name], level[b][kind == name], "o", label=name)
ax.set(xlabel=a, ylabel=b)
ax.legend()
plt.show()
