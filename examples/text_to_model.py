"""
Text: from nothing to a model
=============================

This example takes a folder of 2,000 short documents, chooses 100 of their words, measures the
choice, and ends with a model that predicts texts. Your own folder takes the same steps.
"""

# %%
# A folder of documents
# ---------------------
# It has one subfolder per class below ``train`` and ``test``. The words are generated, so nothing
# is downloaded.

from pathlib import Path
from tempfile import mkdtemp

import matplotlib.pyplot as plt
import numpy as np
from skops import io

import bigfs
from bigfs import storage

home = Path(mkdtemp())
bags = storage.open(storage.stage("synthetic:phrases?rows=2000", home / "bags.zarr"))
words, rows = bags.feature_names[:], bags.X.to_dask().compute()
for i, (half, code) in enumerate(zip(bags.split, bags.y, strict=True)):
    folder = Path(home, "posts", str(half), str(bags.class_names[code]))
    folder.mkdir(parents=True, exist_ok=True)
    row = rows[[i]]
    (folder / f"{i}.txt").write_text(". ".join(words[row.indices]))
print(sorted(folder.name for folder in Path(home, "posts/train").iterdir()))

# %%
# Run
# ---
# This is what ``bigfs run posts --features 100`` does. The first step reads the documents once,
# counts and weighs their words, and writes the matrix in chunks. The last one writes the report.

run = bigfs.run(
    home / "posts",
    features=100,
    store=home / "posts.zarr",
    out=home / "runs/posts",
    engine={"workers": 0},  # 2,000 documents need no processes
)
print(sorted(file.name for file in Path(home, "runs/posts").iterdir()))

# %%
# Look at the choice
# ------------------
# The words come best first, so the first 20 of them are a good choice of 20. ``run.json`` has the
# curves of the report. The test half took no part in the choice.

words = [row["name"] for row in run.read_table("selected.csv")]
print("best words:", ", ".join(words[:8]))

curves = {}
for point in run.metadata["curves"]:
    curves.setdefault(point["method"], {})[point["n_features"]] = point["accuracy"]
[everything] = curves.pop("all features").items()
_, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
bigfs.plot.accuracy_curve(curves, all_features=everything, ax=ax)
plt.show()

# %%
# Predict
# -------
# A run keeps the model that its accuracy comes from. Of the test half it gives the accuracy of the
# report, as ``bigfs predict runs/posts posts.zarr predictions.csv --part test`` does.

test = storage.open(home / "posts.zarr").part("test")
right = run.model().predict(test.X) == np.array(test.class_names)[test.y]
print(np.mean(right) == curves["sparge-lda"][100])
print(run.model().predict(["nugget and bullion from the vein", "a telescope in orbit"]))

# %%
# Export
# ------
# ``bigfs export runs/posts model.skops`` writes a pipeline of scikit-learn, without pickle. It takes
# raw text, and needs scikit-learn and skops, but not bigfs.

io.dump(run.model().to_sklearn(), home / "model.skops")
model = io.load(home / "model.skops")
print(" → ".join(model.named_steps))
print(model.predict(["the price of crude oil", "wheat and maize"]))
