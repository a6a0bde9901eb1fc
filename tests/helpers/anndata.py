"""AnnData files to read, without the library."""

import numpy as np


def write_anndata(root, X, kind, text):
    """Write an AnnData file by its published encoding.

    `text(group, name, values)` writes an array of strings as the library of `root` does.
    """
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    if kind == "array":
        root["X"] = X.toarray()
        root["X"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    else:
        group = root.create_group("X")
        S = X.asformat(kind[:3])
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(S, name)
        group.attrs.update(
            {"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(X.shape)}
        )
    for frame, length in (("obs", X.shape[0]), ("var", X.shape[1])):
        group = root.create_group(frame)
        group.attrs.update(
            {
                "encoding-type": "dataframe",
                "encoding-version": "0.2.0",
                "_index": "_index",
                "column-order": [],
            }
        )
        text(group, "_index", [f"{frame}{i}" for i in range(length)])
    cell = root["obs"].create_group("cell")
    cell.attrs.update(
        {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
    )
    text(cell, "categories", ["B", "T"])
    cell["codes"] = np.array([-1, *(np.arange(X.shape[0] - 1) % 2)], dtype=np.int8)
    root["obs"]["label"] = np.arange(X.shape[0]) % 3


def zarr_text(group, name, values):
    group.create_array(name, shape=(len(values),), dtype=str)[:] = np.array(values)
