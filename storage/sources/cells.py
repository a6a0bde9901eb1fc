"""HDF5 of Cell Ranger and Loom files in the layout of AnnData: cells as rows, names in data frames.

    Cell Ranger 3   matrix: data, indices, indptr, shape, barcodes, features/{id, name, …}
    Cell Ranger 2   GENOME: data, indices, indptr, shape, barcodes, genes, gene_names
    Loom            matrix, layers/NAME, row_attrs/NAME, col_attrs/NAME

Both hold genes × cells, csc and dense, which are the rows of csr and of the transpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.sources.scratch_matrix import COMPRESSED

CELLS = ("CellID", "obs_names", "barcodes")  # Loom's attributes with the names of cells
GENES = ("Gene", "var_names", "Accession")  # and of genes, the first one that is there


class Group(dict[str, Any]):
    """A group of HDF5 in another layout."""

    def __init__(self, content: Mapping[str, Any], **attrs: Any) -> None:
        super().__init__(content)
        self.attrs = attrs


class Turned:
    """A dense array of HDF5 by its columns."""

    def __init__(self, array: Any) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape[::-1]
        self.attrs: dict[str, Any] = {}

    def __getitem__(self, rows: slice) -> Any:
        return np.asarray(self.array[:, rows]).T


def as_anndata(file: Any, genome: str | None, path: str) -> Any:
    """Return an open HDF5 file as AnnData lays it out. One of another kind stays as it is."""
    if {"matrix", "row_attrs", "col_attrs"} <= set(file):
        return _of_loom(file)
    groups = {name: file[name] for name in file if hasattr(file[name], "keys")}
    groups = {name: g for name, g in groups.items() if {"barcodes", *COMPRESSED} <= set(g)}
    if not groups:
        return file
    if len(groups) > 1 and genome not in groups:
        raise SourceError(
            f"{path} holds the genomes {', '.join(groups)}: name one of them by layer="
        )
    group = groups[genome] if genome in groups else next(iter(groups.values()))
    genes = group.get("features", group)
    genes = {name: genes[name] for name in genes if not name.startswith("_")}
    if "genes" in genes:
        genes = {"id": genes["genes"], "name": genes["gene_names"]}
    d, n = map(int, group["shape"][:])
    X = Group(group, **{"encoding-type": "csr_matrix", "shape": (n, d)})
    obs = Group({"barcodes": group["barcodes"]}, _index="barcodes")
    return _root(X, {genome: X} if genome in groups else {}, obs, Group(genes, _index="id"))


def _of_loom(file: Any) -> Group:
    layers = file.get("layers", {})
    layers = {name: Turned(layers[name]) for name in layers}
    obs, var = _frame(file["col_attrs"], CELLS), _frame(file["row_attrs"], GENES)
    return _root(Turned(file["matrix"]), layers, obs, var)


def _root(X: Any, layers: Mapping[Any, Any], obs: Group, var: Group) -> Group:
    paths = {f"layers/{name}": layer for name, layer in layers.items()}
    return Group({"X": X, "layers": Group(layers), "obs": obs, "var": var} | paths)


def _frame(attributes: Any, names: tuple[str, ...]) -> Group:
    """Return the attributes of one value each, as columns of which one may be the index."""
    columns = {name: attributes[name] for name in attributes if len(attributes[name].shape) == 1}
    return Group(columns, _index=next((name for name in names if name in columns), None))
