"""A selection written into the AnnData file (.h5ad) that it was made from.

    var["bigfs_selected"]   whether the feature is selected
    var["bigfs_score"]      its score
    var["bigfs_rank"]       its rank among the selected ones, from 1 on, else NaN
    uns["bigfs"]            method, parameters and status

It is written by the published encoding, without anndata. The file is copied and exchanged, so it is
whole at any moment. Nothing else in it changes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bigfs.types import AnyArray, IntArray
from storage import atomic
from storage.errors import SourceError
from storage.sources.hdf5 import need_h5py, open_hdf5

PREFIX = "bigfs_"


def require_features(file: str | Path, names: Sequence[str] | None, d: int) -> None:
    """Refuse a file that does not have the features of a corpus, before any work.

    Parameters
    ----------
    file : str or Path
        The AnnData file.
    names : sequence of str or None
        The names of the features. None checks only their number.
    d : int
        Number of features.

    Raises
    ------
    SourceError
        The file is missing, is no .h5ad of a current version, or has other features.
    """
    path = Path(file)
    if not path.is_file():
        raise SourceError(f"{path} is no file: --into takes an AnnData file (.h5ad)")
    h5py = need_h5py(str(path))
    if not h5py.is_hdf5(path):
        raise SourceError(f"{path} is no .h5ad file: --into takes an AnnData file")
    with open_hdf5(str(path)) as root:
        var = root.get("var")
        if not isinstance(var, h5py.Group) or "_index" not in var.attrs:
            raise SourceError(
                f"{path} has no var of a current AnnData version: write it again with anndata"
            )
        index = var[var.attrs["_index"]].asstr()[:]
    if len(index) != d or (names is not None and list(index) != [str(name) for name in names]):
        raise SourceError(
            f"{path} has {len(index)} features, and they are not the {d} of the corpus in the same "
            f"order: give the file that the corpus was staged from"
        )


def describe_selector(selector: Any) -> dict[str, Any]:
    """Return the method, the parameters and the status of a fitted selector, for `write_var`."""
    result = getattr(selector, "result_", None)
    parameters = selector.get_params(deep=False)
    return {
        "method": type(selector).__name__,
        "n_features": len(selector.selected_),
        "parameters": json.loads(json.dumps(parameters, default=str)),
        "status": "" if result is None else str(result.status),
        "version": version("bigfs"),
    }


def write_var(
    file: str | Path,
    scores: AnyArray,
    selected: IntArray,
    about: dict[str, Any],
    *,
    highly_variable: bool = False,
) -> None:
    """Write a selection into `var` and `uns` of an AnnData file. An earlier one is replaced.

    Parameters
    ----------
    file : str or Path
        The AnnData file, which `require_features` accepts.
    scores : ndarray of shape (d,)
        Score of each feature.
    selected : ndarray of int of shape (m,)
        The selected features, best first.
    about : dict
        Texts, numbers and dictionaries for ``uns["bigfs"]``.
    highly_variable : bool, default=False
        Whether to write the selection to ``var["highly_variable"]`` too, which scanpy's tools take.

    Raises
    ------
    RunError
        The disk is full, or the folder can't be written.
    """
    path, d = Path(file).resolve(), len(scores)  # a link stays a link
    is_selected, rank = np.zeros(d, dtype=bool), np.full(d, np.nan)
    is_selected[selected] = True
    rank[selected] = np.arange(1, len(selected) + 1)
    columns: dict[str, AnyArray] = {
        f"{PREFIX}selected": is_selected,
        f"{PREFIX}score": np.asarray(scores, dtype=np.float64),
        f"{PREFIX}rank": rank,
    }
    if highly_variable:
        columns["highly_variable"] = is_selected
    with atomic.lock(path), atomic.write(path) as part:
        atomic.delete_parts(path.parent, path.name)
        shutil.copy2(path, part)
        with need_h5py(str(path)).File(part, "r+") as root:
            for name, values in columns.items():
                _put(root["var"], name, values, "array")
            _append_order(root["var"], list(columns))
            uns = root.require_group("uns")
            if "encoding-type" not in uns.attrs:
                uns.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
            _put_about(uns, about)


def _put(group: Any, name: str, value: Any, encoding: str) -> None:
    if name in group:
        del group[name]
    group[name] = value
    group[name].attrs.update({"encoding-type": encoding, "encoding-version": "0.2.0"})


def _append_order(var: Any, names: list[str]) -> None:
    """Append columns to the list of the columns of a data frame."""
    h5py = need_h5py("")
    listed = var.attrs.get("column-order", [])
    before = [text.decode() if isinstance(text, bytes) else str(text) for text in listed]
    order = [*before, *(name for name in names if name not in before)]
    var.attrs.create("column-order", order, dtype=h5py.string_dtype())


def _put_about(uns: Any, about: dict[str, Any]) -> None:
    if "bigfs" in uns:
        del uns["bigfs"]
    group = uns.create_group("bigfs")
    group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    for name, value in about.items():
        if isinstance(value, int | float):
            _put(group, name, value, "numeric-scalar")
        else:
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            _put(group, name, text, "string")
