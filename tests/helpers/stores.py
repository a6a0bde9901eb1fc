"""Sources to stage, and what their stores hold."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io

TEXTS = {
    "x-train/cats/a": "the cat sat on the mat",
    "x-train/cats/b": "a cat and a kitten",
    "x-train/dogs/a": "dogs chase the cat",
    "x-test/cats/c": "the kitten sat",
    "x-test/dogs/b": "dogs bark",
}
LATER = {"dogs/z": "dogs chase dogs", "mice/y": "the mat"}


def write_svmlight(path, rows, seed=0, *, n_classes=3, d=40):
    """Write random rows in svmlight's format, a fifth of d columns each. Returns the path."""
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        for _ in range(rows):
            columns = np.flatnonzero(rng.random(d) < 0.2) + 1
            values = rng.random(len(columns)) + 0.1
            entries = (f"{c}:{v:.4f}" for c, v in zip(columns, values, strict=True))
            file.write(f"{rng.integers(n_classes)} {' '.join(entries)}\n")
    return path


def write_mat(path, X, y):
    """Write X and one number per row as a MATLAB file. Returns the path."""
    scipy.io.savemat(path, {"X": X, "Y": np.asarray(y, dtype=float)[:, None]})
    return str(path)


def write_named(path, rows, kind, first=0, *, split=True):
    """Write rows {name: value} as maps or lists. Returns the path with the options to read it.

    Label, name and split follow from the number of the row, which starts at `first`.
    """
    numbers = range(first, first + len(rows))
    table = {"label": [f"c{i % 3}" for i in numbers], "id": [f"{i}" for i in numbers]}
    if split:
        table["split"] = ["test" if i % 4 == 1 else "train" for i in numbers]
    if kind == "lists":
        table |= {"i": [list(row) for row in rows], "v": [list(row.values()) for row in rows]}
    if path.suffix == ".jsonl":
        table |= {"vector": rows} if kind == "maps" else {}
        lines = [{k: values[i] for k, values in table.items()} for i in range(len(rows))]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    else:
        if kind == "maps":
            maps = pa.map_(pa.string(), pa.float32())
            table["vector"] = pa.array([list(row.items()) for row in rows], maps)
        pq.write_table(pa.table(table), path, row_group_size=9)
    return f"{path}?features=vector" if kind == "maps" else f"{path}?indices=i&values=v"


def dense_tiles(tiles, axis):
    """The values of tiles side by side, as a dense array."""
    return np.concatenate([tile.load().toarray() for tile in tiles], axis=axis)
