"""What nested folds report on pure noise for every supervised method, on arrays in memory.

python benchmarks/noise_methods.py RESULTS.jsonl --methods chi2,gini --draws 50
python benchmarks/noise_methods.py RESULTS.jsonl --methods grid:anova,grid:sparge-lda

"grid:anova" is a pipeline of ANOVA and a linear SVM. In each of five folds dask-ml's GridSearchCV
chooses its number of features and its C.

The program goes on after the draws that the file has, and prints the means of all of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from dask_ml.model_selection import GridSearchCV
from shared import table
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from bigfs import Matrix
from bigfs.evaluation.curves import Rankings, measure
from bigfs.evaluation.splits import Split, stratified_folds
from bigfs.selectors.registry import METHODS

WIDTH = 200  # pixels of the images that SMR takes


def noise(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative values and balanced random classes."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % 2)


def by_grid(method: str, seed: int, n: int, d: int, features: int) -> float:
    """The accuracy of a pipeline whose parameters dask-ml's grid chooses in each of five folds."""
    X, y = noise(seed, n, d)
    steps = [("select", METHODS[method].make()), ("classify", LinearSVC(random_state=0))]
    grid = {
        "select__n_features_to_select": [features // 2, features],
        "classify__C": [0.01, 0.1, 1.0, 10.0],
    }
    search = GridSearchCV(Pipeline(steps), grid, cv=3, scheduler="synchronous")
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return float(cross_val_score(search, X, y, cv=folds, error_score="raise").mean())


def reported(method: str, seed: int, n: int, d: int, features: int) -> float:
    """The accuracy of the features of a method, chosen again in each of five folds."""
    X, y = noise(seed, n, d)
    of_images = {"sample_shape": (d // WIDTH, WIDTH)} if method == "smr" else {}

    def rank(number: int, split: Split) -> Rankings:
        selector = METHODS[method].make(n_features_to_select=features, **of_images)
        selector.fit(split.X_train, split.y_train)
        return {method: {features: selector.selected_[:features]}}

    folds = stratified_folds(Matrix.from_array(X), y, 5)
    (point,) = measure(folds, rank, with_all=False).points
    return point.scores["accuracy"]


def main(
    file: Path,
    methods: Annotated[str, typer.Option(help="separated by commas")] = ",".join(
        name for name, method in METHODS.items() if "class" in method.targets
    ),
    draws: Annotated[int, typer.Option(help="of the noise")] = 50,
    n: Annotated[int, typer.Option(help="samples")] = 200,
    d: Annotated[int, typer.Option(help="features")] = 20_000,
    features: Annotated[int, typer.Option(help="to select")] = 50,
) -> None:
    done: dict[str, dict[int, float]] = defaultdict(dict)
    for line in file.read_text().splitlines() if file.exists() else []:
        method, seed, accuracy = json.loads(line)
        done[method][seed] = accuracy
    for seed in range(draws):
        for method in methods.split(","):
            if seed not in done[method]:
                accuracy_of = by_grid if method.startswith("grid:") else reported
                name = method.removeprefix("grid:")
                done[method][seed] = accuracy_of(name, seed, n, d, features)
                with file.open("a") as out:
                    out.write(json.dumps([method, seed, done[method][seed]]) + "\n")
    rows = []
    for method, found in sorted(done.items()):
        values = np.array(list(found.values()))
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        rows.append([method, len(values), f"{values.mean():.3f}", f"{error:.3f}"])
    table(f"noise, {n} × {d:,}", ["method", "draws", "reported", "standard error"], rows)


if __name__ == "__main__":
    typer.run(main)
