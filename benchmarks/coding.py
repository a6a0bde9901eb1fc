"""JGSC, RJGSC and SMR: time at full size, and covered eyes.

python benchmarks/coding.py jgsc [--robust]     # News20's scale
python benchmarks/coding.py smr                 # 11,554 images, as many as PIE has
python benchmarks/coding.py eyes DATA           # DATA holds ORL.mat
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import typer
from data import load
from shared import STORES, peaks, row, timed

import bigfs
from bigfs import engine, storage
from bigfs.result import NotConvergedWarning, observe
from bigfs.storage import sources

app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)
SIZE = (32, 32)
EYES = (slice(8, 14), slice(4, 28))  # rows and columns that are covered


@app.command()
def jgsc(robust: bool = False, n_atoms: int = 256, workers: int = 2, limit: str = "1GB") -> None:
    """JGSC on the generated corpus of News20's size, from a store, on a local cluster."""
    X = storage.open(storage.stage("synthetic:news20", STORES / "news20.zarr")).X
    method = bigfs.RJGSC if robust else bigfs.JGSC
    with engine.cluster(workers=workers, memory_limit=limit):
        began, learned = time.perf_counter(), 0.0

        def note(name: str, record: object) -> None:
            nonlocal learned
            if name == "dictionary learning":
                learned = time.perf_counter() - began

        with observe(note):
            run = timed(lambda: method(n_atoms=n_atoms).fit(X))
        figure = f"{run.seconds:.1f} s, dictionary {learned:.1f} s; {peaks()}"
    print(run.value.n_iter_, "Sylvester equations:", run.value.result_.history[-1])
    row(f"{method.__name__}, {n_atoms} atoms", "scale of News20", figure)


@app.command()
def smr(k: int = 4) -> None:
    """11,554 × 32 × 32, 68 classes; the route by samples for two rounds."""
    rows = sources.find("synthetic:images").read((0, 11_554))
    X = bigfs.Matrix.from_array(rows.X, tile_rows=2048)
    y = np.array(rows.samples["label"].to_pylist())
    for gram, rounds in (("covariance", 30), ("samples", 2)):
        model = bigfs.SMR(sample_shape=SIZE, k=k, gram=gram, max_iter=rounds)
        run = timed(lambda model=model: model.fit(X, y))
        figure = f"{run.seconds:.1f} s, {run.processor:.1f} s of processor"
        print(run.value.result_.history[-1])
        row(f"SMR, k = {k}, {rounds} rounds by {gram}", str(X.shape), figure)


def covered(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """The eyes of every image (pixels in column-major order) behind a block of uniform noise."""
    images = X.reshape(-1, *SIZE).transpose(0, 2, 1).copy()
    images[(slice(None), *EYES)] = np.random.default_rng(seed).random((len(X), 6, 24))
    return images.transpose(0, 2, 1).reshape(len(X), -1)


@app.command()
def eyes(data: Path, out: Path = Path("docs/pictures")) -> None:
    """A covered face, SMR's score map, and the chosen pixels, with and without the cover."""
    X, y = load(data, "ORL")
    X = X / 255
    figure, axes = plt.subplots(2, 4, figsize=(9.2, 4.8), layout="constrained")
    cases = {"as they are": X, "eyes covered": covered(X)}
    for axes_row, (name, Z) in zip(axes, cases.items(), strict=True):
        settings = {"sample_shape": SIZE, "order": "F", "alpha": 1.0, "k": 4, "max_iter": 100}
        model = bigfs.SMR(n_features_to_select=200, **settings).fit(Z, y)
        fisher = bigfs.Fisher(n_features_to_select=200).fit(Z, y)
        mean = Z.mean(axis=0).reshape(SIZE, order="F")
        chosen = [m.get_support().reshape(SIZE, order="F") for m in (model, fisher)]
        shown = [Z[0].reshape(SIZE, order="F"), model.score_map_, mean, mean]
        for i, (axis, picture) in enumerate(zip(axes_row, shown, strict=True)):
            axis.imshow(picture, cmap="viridis" if i == 1 else "gray")
            axis.set(xticks=[], yticks=[])
        for axis, mask in zip(axes_row[2:], chosen, strict=True):
            axis.imshow(np.where(mask, 1.0, np.nan), cmap="autumn", alpha=0.6)
        axes_row[0].set_ylabel(name)
        inside = [int(mask[EYES].sum()) for mask in chosen]
        print(f"{name}: of 200 pixels in the block of 144: SMR {inside[0]}, Fisher {inside[1]}")
    titles = ("an image", "SMR scores", "SMR, 200 pixels", "Fisher, 200 pixels")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10)
    figure.savefig(out / "covered-eyes.png", dpi=90)


if __name__ == "__main__":
    warnings.simplefilter("ignore", NotConvergedWarning)
    app()
