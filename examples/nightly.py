"""
Every night: choose again as the corpus grows
=============================================

A folder of documents grows, and each night the features are chosen anew. In cron this is one
command, and it does nothing where the folder has not changed::

    bigfs run posts --features 60

With a Prefect server there is a page per run, and a schedule of Prefect's::

    bigfs serve posts --cron "0 3 * * *" --features 60

On a work pool the same flow is a deployment (``deploy/prefect.yaml``)::

    prefect --no-prompt deploy --all --prefect-file deploy/prefect.yaml
    prefect deployment run bigfs/nightly --param features=60

This example calls :func:`bigfs.run`, which does the same without a server.
"""

# %%
# The documents of a night
# ------------------------
# They arrive in one subfolder per class. Their words are generated.

import contextlib
from pathlib import Path
from tempfile import mkdtemp

from bigfs import storage

home = Path(mkdtemp())
bags = storage.open(storage.stage("synthetic:phrases?rows=1800", home / "bags.zarr"))
words, rows = bags.feature_names[:], bags.X.to_dask().compute()


def arrive(start, stop):
    """Write some documents into the folder."""
    for i in range(start, stop):
        folder = Path(home, "posts", str(bags.class_names[bags.y[i]]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.txt").write_text(". ".join(words[rows[[i]].indices]))


# %%
# The job
# -------
# A run keeps its directory for as long as its source has the same name. A night that finds nothing
# new ends at once, and a run that was killed goes on from its last step. The result of the night
# before is kept next to it: ``bigfs history`` lists them.

import bigfs

nights = {}


def night(number):
    """Stage the rows that are there, choose, measure, and write the report."""
    run = bigfs.run(
        "posts",
        features=60,
        scoring={"against": ["anova"], "test_size": 0.3},
        engine={"workers": 0},  # 600 documents need no cluster
    )
    names = [row["name"] for row in run.read_table("selected.csv")]
    if nights and set(names) == list(nights.values())[-1][1]:
        print(f"night {number}: nothing new")
        return
    nights[f"night {number}"] = run.metadata["curves"], set(names)
    print(f"night {number}: {', '.join(names[:5])}")


# %%
# Four nights
# -----------
# In the third night nothing has arrived.

for number, (start, stop) in enumerate(
    [(0, 600), (600, 1200), (1200, 1200), (1200, 1800)], 1
):
    arrive(start, stop)
    with contextlib.chdir(home):  # stores and runs lie in the current folder
        night(number)

# %%
# What changed
# ------------
# Each night is measured on a held-out share of its own documents. Most of the words stay.

import matplotlib.pyplot as plt

curves = {}
for name, (points, _) in nights.items():
    own = [p for p in points if p["method"] == "sparge-lda"]
    curves[name] = {p["n_features"]: p["accuracy"] for p in own}
chosen = [names for _, names in nights.values()]
for before, after in zip(chosen[:-1], chosen[1:], strict=True):
    print(f"{len(before & after)} of 60 words stayed")
print({name: round(curve[60], 3) for name, curve in curves.items()})
_, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
bigfs.plot.accuracy_curve(curves, highlight=list(curves)[-1], ax=ax)
plt.show()
