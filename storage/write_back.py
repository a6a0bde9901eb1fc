"""A selection written into the AnnData file (.h5ad) or folder (.zarr) that it was made from.

    var["bigfs_selected"]   whether the feature is selected
    var["bigfs_score"]      its score
    var["bigfs_rank"]       its rank among the selected ones, from 1 on, else NaN
    uns["bigfs"]            method, parameters and status

It is written by the published encoding, without anndata. A file is copied and exchanged. Of a
folder only `var`, `uns` and the root's metadata are copied, and the rest is linked. So either is
whole at any moment. Nothing else in it changes.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bigfs.types import AnyArray, IntArray
from storage import atomic
from storage.errors import SourceError
from storage.format import manifest
from storage.sources.anndata import AnnData
from storage.sources.hdf5 import need_h5py

PREFIX = "bigfs_"
WRITTEN = ("var", "uns")  # the elements that a selection is written into


def require_features(file: str | Path, names: Sequence[str] | None, d: int) -> None:
    """Refuse a file that does not have the features of a corpus, before any work.

    Parameters
    ----------
    file : str or Path
        The AnnData file or folder.
    names : sequence of str or None
        The names of the features. None checks only their number.
    d : int
        Number of features.

    Raises
    ------
    SourceError
        The file is missing, is no AnnData of a current version, or has other features.
    """
    path = Path(file)
    if manifest.exists(str(path)):
        raise SourceError(
            f"{path} is a store that bigfs staged, whose checksums hold as it is: give the AnnData "
            f"file (.h5ad) or folder (.zarr) that it was staged from"
        )
    if not path.exists():
        raise SourceError(f"{path} does not exist: give an AnnData file (.h5ad) or folder (.zarr)")
    head = b""
    if path.is_file():
        with path.open("rb") as stream:
            head = stream.read(8)
    if not AnnData.sniff(path, head):
        raise SourceError(f"{path} is no AnnData file (.h5ad) or folder (.zarr)")
    index = AnnData(str(path)).read_feature_names()
    if len(index) != d or (names is not None and list(index) != [str(name) for name in names]):
        raise SourceError(
            f"{path} has {len(index)} features, and they are not the {d} of the corpus in the same "
            f"order: give the file that the corpus was staged from"
        )


def write_selector(
    selector: Any,
    file: str,
    names: Sequence[str] | None,
    d: int,
    *,
    highly_variable: bool = False,
) -> str:
    """Write the choice of a fitted selector, as `storage.corpus.Corpus.write_var` describes it.

    The corpus has d features and their names, or None.
    """
    if selector.n_features_in_ != d:
        raise ValueError(
            f"the selector was fitted on {selector.n_features_in_} features, and the corpus has "
            f"{d}: fit it on this corpus"
        )
    require_features(file, names, d)
    about = describe_selector(selector)
    write_var(file, selector.scores_, selector.selected_, about, highly_variable=highly_variable)
    return file


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
        The AnnData file or folder, which `require_features` accepts.
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
    with atomic.lock(path):
        if path.is_dir():
            _write_folder(path, columns, about)
        else:
            _write_file(path, columns, about)


def _write_file(path: Path, columns: dict[str, AnyArray], about: dict[str, Any]) -> None:
    with atomic.write(path) as part:
        atomic.delete_parts(path.parent, path.name)
        shutil.copy2(path, part)
        with need_h5py(str(path)).File(part, "r+") as root:
            _write_selection(root, columns, about)


def _write_folder(path: Path, columns: dict[str, AnyArray], about: dict[str, Any]) -> None:
    atomic.sweep(path)
    with atomic.explain_write_errors(path), atomic.workplace(path) as work:
        new = work / "new"
        shutil.copytree(path, new, symlinks=True, copy_function=_linking(path))
        root = zarr.open_group(new, mode="r+", use_consolidated=False)
        _write_selection(root, columns, about)
        if zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None:
            with warnings.catch_warnings(action="ignore"):  # format 3 does not specify it yet
                zarr.consolidate_metadata(new)
        atomic.publish(new, path, work)


def _linking(path: Path) -> Any:
    """Return a function that links a file of a folder, or copies it if it may be written."""

    def link(file: str, target: str) -> None:
        element, *inside = Path(file).relative_to(path).parts
        if not inside or element in WRITTEN:
            shutil.copy2(file, target)
        else:
            os.link(file, target)

    return link


def _write_selection(root: Any, columns: dict[str, AnyArray], about: dict[str, Any]) -> None:
    """Write columns of `var` and the description into a file of h5py or a group of Zarr."""
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
    if not isinstance(group, zarr.Group):
        group[name] = value
    elif isinstance(value, str):
        group.create_array(name, shape=(), dtype=str)[...] = value
    else:
        group.create_array(name, data=np.asarray(value))
    group[name].attrs.update({"encoding-type": encoding, "encoding-version": "0.2.0"})


def _append_order(var: Any, names: list[str]) -> None:
    """Append columns to the list of the columns of a data frame."""
    listed = var.attrs.get("column-order", [])
    before = [text.decode() if isinstance(text, bytes) else str(text) for text in listed]
    order = [*before, *(name for name in names if name not in before)]
    if isinstance(var, zarr.Group):
        var.attrs["column-order"] = order
    else:
        var.attrs.create("column-order", order, dtype=need_h5py("").string_dtype())


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
