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
from skops.io import load

import bigfs
from bigfs import storage
from bigfs.flows import run as runs
from bigfs.flows.job import Job
from bigfs.flows.options import Engine
from bigfs.flows.use.export import export
from bigfs.flows.use.predict import predict
from bigfs.storage.runs.runs import Run

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

job = Job(
    source=str(home / "posts"),
    store=str(home / "posts.zarr"),
    out=str(home / "runs/posts"),
    method="sparge-lda",
    features=100,
    engine=Engine(workers=0),
)
path = runs.run(runs.prepare(job))
print(sorted(file.name for file in Path(path).iterdir()))

# %%
# Look at the choice
# ------------------
# The words come best first, so the first 20 of them are a good choice of 20. ``run.json`` has the
# curves of the report. The test half took no part in the choice.

run = Run.open(path)
names = storage.open(job.store).feature_names
print("best words:", ", ".join(names[run.selected[:8]]))

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
# A run keeps the model that its accuracy comes from. ``bigfs predict runs/posts posts.zarr
# predictions.csv --part test`` gives the accuracy of the report, to the last digit.

predictions = predict(path, job.store, home / "predictions.csv", part="test")
print(predictions.scores["accuracy"] == curves["sparge-lda"][100])
print(run.model().predict(["nugget and bullion from the vein", "a telescope in orbit"]))

# %%
# Export
# ------
# ``bigfs export runs/posts model.skops`` writes a pipeline of scikit-learn, without pickle. It takes
# raw text, and needs scikit-learn and skops, but not bigfs.

export(path, home / "model.skops")
model = load(home / "model.skops")
print(" → ".join(model.named_steps))
print(model.predict(["the price of crude oil", "wheat and maize"]))
