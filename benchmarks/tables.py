"""Ordinary tables with one command and no option but the label: columns, score and time.

python -m benchmarks.tables            # nine small tables
python -m benchmarks.tables --large    # and one of a million rows

The other side is scikit-learn's usual pipeline on the columns that a person would take: gaps
filled, categories one-hot, all standardized, `SelectKBest` of as many features, and a logistic or a
ridge regression, in five folds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.feature_selection import SelectKBest, f_classif, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.shared import clean_environment, load, table

app = typer.Typer(add_completion=False)
LIMIT = "1GB"  # of the million rows


class Ordinary(NamedTuple):
    """A table with the column `target`, and the columns that a person would leave out."""

    frame: pd.DataFrame
    out: tuple[str, ...] = ()
    suffix: str = ".csv"


def shipped(name: str) -> Ordinary:
    """Return a set of scikit-learn, with classes by their names."""
    data = getattr(datasets, f"load_{name}")(as_frame=True)
    frame = data.frame.rename(columns={"target": "number"})
    names = getattr(data, "target_names", None)
    target = frame["number"] if names is None else [str(names[code]) for code in frame["number"]]
    return Ordinary(frame.drop(columns="number").assign(target=target))


def customers(n: int, suffix: str = ".csv", seed: int = 1) -> Ordinary:
    """Draw customers of a shop: mixed units, gaps, categories, ids, dates and remarks."""
    random = np.random.default_rng(seed)
    age, spent = random.integers(18, 90, n).astype(float), random.lognormal(7, 1.2, n).round(2)
    city = random.choice(["Bern", "Oslo", "Rome", "Wien", "Graz"], n)
    member, visits = random.random(n) < 0.4, random.poisson(5, n)
    score = (age - 50) / 20 + np.log(spent) - 7 + member + np.isin(city, ["Oslo", "Rome"])
    words = np.array(["late", "parcel", "good", "broken", "again", "nice", "shop", "never"])
    frame = {
        "customer_id": np.arange(n) + 10_000,
        "age": np.where(random.random(n) < 0.05, np.nan, age),
        "spent": spent,
        "city": city,
        "member": member,
        "visits": visits,
        "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(random.integers(0, 3000, n), "D"),
        "remark": [" ".join(row) for row in words[random.integers(0, 8, (n, 6))]],
        **{f"answer_{j}": random.integers(1, 6, n) for j in range(6)},
        "target": np.where(score + random.normal(size=n) > 1, "stays", "leaves"),
    }
    return Ordinary(pd.DataFrame(frame), ("customer_id", "since", "remark"), suffix)


def survey() -> Ordinary:
    """Draw answers of few words, with ? for those who gave none."""
    random, n = np.random.default_rng(2), 1500
    answers = {f"q{j}": random.choice(["no", "rather", "yes"], n) for j in range(20)}
    score = sum((answers[f"q{j}"] == "yes").astype(int) for j in range(5))
    income = random.lognormal(3, 0.5, n).round(1).astype(str)
    income[random.random(n) < 0.1] = "?"
    frame = {"respondent": [f"r{i * 7919 % 100003}" for i in range(n)], **answers}
    target = np.where(score + random.normal(size=n) > 2, "a", "b")
    return Ordinary(pd.DataFrame(frame | {"income": income, "target": target}), ("respondent",))


def houses() -> Ordinary:
    """Draw houses with their prices, which are real targets."""
    random, n = np.random.default_rng(3), 2000
    area, rooms = random.lognormal(4.6, 0.4, n).round(), random.integers(1, 9, n)
    kind = random.choice(["flat", "house", "villa"], n, p=[0.6, 0.3, 0.1])
    price = 2000 * area + 9000 * rooms + 2e5 * (kind == "villa") + 3e4 * random.normal(size=n)
    frame = {"kind": kind, "area": area, "rooms": rooms, "year": random.integers(1900, 2024, n)}
    frame |= {f"noise_{j}": random.normal(size=n) for j in range(15)}
    return Ordinary(pd.DataFrame(frame | {"target": (price + 0.5).round(1)}), suffix=".parquet")


def sensors() -> Ordinary:
    """Draw 200 readings in four units, of which ten tell the machine's state."""
    random, n = np.random.default_rng(4), 1200
    state = random.integers(0, 3, n)
    X = random.normal(size=(n, 200))
    X[:, :10] += random.normal(size=(3, 10))[state]
    X = X * 10.0 ** random.integers(-3, 4, 200)
    frame = pd.DataFrame(X, columns=[f"s{j}" for j in range(200)])
    names = np.array(["idle", "runs", "fails"])
    return Ordinary(frame.assign(target=names[state]), suffix=".parquet")


SMALL: dict[str, Callable[[], Ordinary]] = {
    **{name: lambda name=name: shipped(name) for name in ("iris", "wine", "breast_cancer")},
    "digits": lambda: shipped("digits"),
    "diabetes": lambda: shipped("diabetes"),
    "customers": lambda: customers(3000),
    "survey": survey,
    "houses": houses,
    "sensors": sensors,
}
LARGE = "a million customers"


def usual(it: Ordinary, k: int, rows: int = 50_000) -> float:
    """Return the score of scikit-learn's pipeline, on at most so many rows."""
    frame = it.frame.sample(min(rows, len(it.frame)), random_state=0).drop(columns=list(it.out))
    if "income" in frame:  # of the survey, whose ? is a gap
        frame["income"] = pd.to_numeric(frame["income"], errors="coerce")
    y = frame.pop("target")
    is_real = y.dtype.kind == "f"
    numbers = make_column_selector(dtype_include=["number", "bool"])
    texts = make_column_selector(dtype_exclude=["number", "bool"])
    columns = make_column_transformer(
        (SimpleImputer(), numbers), (OneHotEncoder(sparse_output=False), texts)
    )
    choice = SelectKBest(f_regression if is_real else f_classif, k=k)
    model = Ridge() if is_real else LogisticRegression(max_iter=1000)
    pipeline = make_pipeline(columns, StandardScaler(), choice, model)
    return float(np.mean(cross_val_score(pipeline, frame, y, cv=5)))


def run(it: Ordinary, folder: Path) -> tuple[float, int, dict[str, Any]]:
    """Run the command on the table. Returns its seconds, its peak of bytes, and its record."""
    file = folder / f"data{it.suffix}"
    if it.suffix == ".csv":
        it.frame.to_csv(file, index=False)
    else:
        it.frame.to_parquet(file)
    words = [*("-m", "bigfs", "run", file.name, "--label", "target", "--out", "run", "-q")]
    if len(it.frame) >= 1_000_000:
        words += ["--memory-limit", LIMIT]
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *words], cwd=folder, check=True, env=clean_environment(folder),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return seconds, peak, json.loads((folder / "run" / "run.json").read_text())


@app.command()
def main(
    large: Annotated[bool, typer.Option("--large", help="A million rows too.")] = False,
    only: Annotated[str, typer.Option("--only", help="One table.")] = "",
) -> None:
    """Run every table, and compare it with the usual pipeline."""
    made = SMALL | ({LARGE: lambda: customers(1_000_000, ".parquet")} if large else {})
    rows = []
    for name, make in made.items():
        if only not in ("", name):
            continue
        it = make()
        with tempfile.TemporaryDirectory() as folder:
            seconds, peak, record = run(it, Path(folder))
        points = [p for p in record["curves"] if p["method"] != "all features"]
        k = max(p["n_features"] for p in points)
        [point] = [p for p in points if p["n_features"] == k and p["method"] == points[0]["method"]]
        score = point.get("accuracy", point.get("r2"))
        assert isinstance(score, float)
        left_out = set(record["decided"]["unused"])
        peer = usual(it, k)
        shape = f"{len(it.frame):,} × {it.frame.shape[1] - 1}"
        is_right = "as asked" if left_out == set(it.out) else f"{sorted(left_out)}, not {it.out}"
        cells = (points[0]["method"], k, f"{score:.3f}", f"{peer:.3f}", f"{score - peer:+.3f}")
        rows.append((name, shape, is_right, *cells, f"{seconds:.1f}", f"{peak / 1e6:.0f}"))
        print(*rows[-1], sep=" | ", flush=True)
    head = ["table", "rows × columns", "left out", "method", "features", "score", "usual"]
    head += ["ahead", "seconds", "largest peak so far (MB)"]
    table(f"one command for each table; {load()}, pid {os.getpid()}", head, rows)


if __name__ == "__main__":
    app()
