"""A selection written into the AnnData file (.h5ad) or folder (.zarr) that it was made from, and
selected columns as an AnnData file of their own, by the published encoding, without anndata.

    var["bigfs_selected"]   whether the feature is selected
    var["bigfs_score"]      its score
    var["bigfs_rank"]       its rank among the selected ones, from 1 on, else NaN
    uns["bigfs"]            method, parameters and status

and on request `var["highly_variable"]`, with all columns of scanpy where genes were chosen so.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr

from bigfs.storage import atomic, locks
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import identity_of, note_written, original_of
from bigfs.storage.format import manifest
from bigfs.storage.sources.anndata import AnnData, files_of
from bigfs.storage.sources.files import head
from bigfs.storage.sources.hdf5 import need_h5py
from bigfs.types import AnyArray, IntArray

PREFIX = "bigfs_"
WRITTEN = ("var", "uns")  # the elements that a selection is written into
MARK = "bigfs"  # an attribute of the root: bigfs replaces only what it wrote


def require_anndata(file: str | Path) -> None:
    """Refuse a path that is no AnnData file or folder."""
    path = Path(file)
    if manifest.is_there(str(path)):
        raise SourceError(
            f"{path} is a store that bigfs staged, whose checksums hold as it is: give the AnnData "
            f"file (.h5ad) or folder (.zarr) that it was staged from"
        )
    if not path.exists():
        raise SourceError(f"{path} does not exist: give an AnnData file (.h5ad) or folder (.zarr)")
    if not AnnData.sniff(path, head(path)):
        raise SourceError(f"{path} is no AnnData file (.h5ad) or folder (.zarr)")


def require_features(file: str | Path, names: Sequence[str] | None, d: int) -> None:
    """Refuse a file without the d features of a corpus, by their names or else their number."""
    require_anndata(file)
    if not AnnData(str(file)).has_features(names, d):
        raise SourceError(
            f"the features of {file} are not the {d} of the corpus in the same order: give the "
            f"file that the corpus was staged from"
        )


def write_selector(
    selector: Any,
    file: str,
    names: Sequence[str] | None,
    d: int,
    *,
    highly_variable: bool = False,
) -> str:
    """Write the choice of a fitted selector, as `Corpus.write_var` describes it."""
    if selector.n_features_in_ != d:
        raise ValueError(
            f"the selector was fitted on {selector.n_features_in_} features, and the corpus has "
            f"{d}: fit it on this corpus"
        )
    require_features(file, names, d)
    result = getattr(selector, "result_", None)
    about = {
        "method": type(selector).__name__,
        "n_features": len(selector.selected_),
        "parameters": json.loads(json.dumps(selector.get_params(deep=False), default=str)),
        "status": "" if result is None else str(result.status),
        "version": version("bigfs"),
    }
    columns = getattr(selector, "columns_", None)
    write_var(file, selector.scores_, selector.selected_, about, columns, highly_variable)
    return file


def write_var(
    file: str | Path,
    scores: AnyArray,
    selected: IntArray,
    about: dict[str, Any],
    genes: dict[str, AnyArray] | None = None,
    highly_variable: bool = False,
) -> None:
    """Write a selection into `var` and `uns` of an AnnData file. An earlier one is replaced.

    A file is copied and exchanged. Of a folder only `var`, `uns` and the root's metadata are
    copied, and the rest is linked. So either is whole at any moment.
    """
    path = Path(file).resolve()  # a link stays a link
    columns, uns = _described(scores, selected, about, genes, highly_variable)
    with locks.lock(path):
        before = original_of(identity_of(files_of(path)))
        with atomic.explain_write_errors(path), atomic.workplace(path) as work:
            new = work / "new"
            if path.is_dir():
                _write_folder(path, new, columns, uns)
            else:
                shutil.copy2(path, new)
                with need_h5py(str(path)).File(new, "r+") as root:
                    _write_selection(root, columns, uns)
            atomic.publish(new, path, work)
        note_written(before, identity_of(files_of(path)))


def _described(
    scores: AnyArray,
    selected: IntArray,
    about: dict[str, Any],
    genes: dict[str, AnyArray] | None,
    highly_variable: bool,
) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the columns of `var`, and what `uns` holds."""
    d = len(scores)
    is_selected, rank = np.zeros(d, dtype=bool), np.full(d, np.nan)
    is_selected[selected] = True
    rank[selected] = np.arange(1, len(selected) + 1)
    columns: dict[str, AnyArray] = {
        f"{PREFIX}selected": is_selected,
        f"{PREFIX}score": np.asarray(scores, dtype=np.float64),
        f"{PREFIX}rank": rank,
    }
    uns: dict[str, Any] = {"bigfs": about}
    if highly_variable:
        columns |= genes or {"highly_variable": is_selected}
        if genes:
            uns["hvg"] = {"flavor": about["parameters"].get("flavor", "seurat")}
    return columns, uns


def _write_folder(path: Path, new: Path, columns: dict[str, AnyArray], uns: dict[str, Any]) -> None:
    def link_or_copy(file: str, target: str) -> None:
        element, *inside = Path(file).relative_to(path).parts
        if not inside or element in WRITTEN:
            shutil.copy2(file, target)
        else:
            atomic.link_or_copy(file, target)

    shutil.copytree(path, new, symlinks=True, copy_function=link_or_copy)
    root = zarr.open_group(new, mode="r+", use_consolidated=False)
    _write_selection(root, columns, uns)
    if zarr.open_group(path, mode="r").metadata.consolidated_metadata is not None:
        with warnings.catch_warnings(action="ignore"):  # format 3 does not specify it yet
            zarr.consolidate_metadata(new)


def _write_selection(root: Any, columns: dict[str, AnyArray], described: dict[str, Any]) -> None:
    """Write columns of `var` and descriptions in `uns` into a file of h5py or a group of Zarr."""
    var = root["var"]
    for name, values in columns.items():
        write_element(var, name, values)
    listed = var.attrs.get("column-order", [])
    before = [text.decode() if isinstance(text, bytes) else str(text) for text in listed]
    _write_order(var, [*before, *(name for name in columns if name not in before)])
    uns = root.require_group("uns")
    if "encoding-type" not in uns.attrs:
        _encode(uns, "dict", "0.1.0")
    for name, facts in described.items():
        plain = {
            key: value
            if isinstance(value, str | int | float)
            else json.dumps(value, sort_keys=True)
            for key, value in facts.items()
        }
        write_element(uns, name, plain)


# --- a file of selected columns -------------------------------------------------------------------


def is_ours(file: Path) -> bool:
    """Return whether `write_columns` wrote a file."""
    with contextlib.suppress(OSError), need_h5py(str(file)).File(file, "r") as root:
        return MARK in root.attrs
    return False


def write_columns(
    part: Path, Z: Any, feature_names: Sequence[str], corpus: Any, scores: AnyArray
) -> None:
    """Write Z, n × m in csr, best column first, with what a corpus knows, as an .h5ad file."""
    with need_h5py(str(part)).File(part, "w") as root:
        _encode(root, "anndata", "0.1.0")
        root.attrs[MARK] = "transform"
        write_element(root, "X", Z)
        obs: dict[str, Any] = {}
        y = corpus.y
        if corpus.spec["target"] == "real":
            obs["label"] = y
        elif corpus.spec["target"] == "class":
            obs["label"] = (corpus.class_names, y)
        elif corpus.spec["target"] == "multilabel":
            write_element(root, "obsm", {"labels": y.tocsr().astype(np.int8)})
        elif corpus.spec["target"] == "multioutput":
            write_element(root, "obsm", {"targets": y})
        if y.ndim == 2:
            write_element(root, "uns", {"label_names": list(corpus.class_names)})
        if corpus.split is not None:
            splits, codes = np.unique(corpus.split, return_inverse=True)
            obs["split"] = (splits, codes)
        _write_frame(root, "obs", corpus.sample_names, obs)
        ranks = np.arange(1, len(feature_names) + 1)
        _write_frame(root, "var", feature_names, {"bigfs_score": scores, "bigfs_rank": ranks})


def write_choice(
    part: Path,
    feature_names: Sequence[str],
    scores: AnyArray,
    selected: IntArray,
    about: dict[str, Any],
    genes: dict[str, AnyArray] | None = None,
) -> None:
    """Write all d features as `var` of an .h5ad file without samples."""
    columns, uns = _described(scores, selected, about, genes, True)
    with need_h5py(str(part)).File(part, "w") as root:
        _encode(root, "anndata", "0.1.0")
        root.attrs[MARK] = "export"
        _write_frame(root, "obs", [], {})
        _write_frame(root, "var", feature_names, {})
        _write_selection(root, columns, uns)


def _write_frame(root: Any, name: str, index: Sequence[str], columns: dict[str, Any]) -> None:
    """Write a data frame."""
    group = root.create_group(name)
    _encode(group, "dataframe", "0.2.0", _index="_index")
    _write_order(group, list(columns))
    for column, values in {"_index": list(index), **columns}.items():
        write_element(group, column, values)


# --- the encoding ---------------------------------------------------------------------------------


def write_element(group: Any, name: str, value: Any) -> None:
    """Write an element into a group of h5py or Zarr, in place of an earlier one.

    It is a text, a number, an array, a dictionary, or, by h5py only, a list of texts, a csr matrix,
    or the names and the codes of categories.
    """
    if name in group:
        del group[name]
    if isinstance(value, dict):
        _encode(group.create_group(name), "dict", "0.1.0")
        for key, inner in value.items():
            write_element(group[name], key, inner)
    elif sp.issparse(value):
        _encode(group.create_group(name), "csr_matrix", "0.1.0", shape=value.shape)
        for part in ("data", "indices", "indptr"):
            group[name].create_dataset(part, data=getattr(value, part), compression="gzip")
    elif isinstance(value, tuple):
        names, codes = value
        _encode(group.create_group(name), "categorical", "0.2.0", ordered=False)
        write_element(group[name], "categories", list(names))
        write_element(group[name], "codes", np.asarray(codes, dtype=np.int32))
    elif isinstance(value, list):
        texts = [str(text) for text in value]
        if any("\x00" in text for text in texts):
            raise SourceError(
                "a name holds the character NUL, which an .h5ad file cannot: write .npz"
            )
        group.create_dataset(name, data=texts, dtype=need_h5py("").string_dtype())
        _encode(group[name], "string-array", "0.2.0")
    else:
        if not isinstance(group, zarr.Group):
            group[name] = value
        elif isinstance(value, str):
            group.create_array(name, shape=(), dtype=str)[...] = value
        else:
            group.create_array(name, data=np.asarray(value))
        scalar = "string" if isinstance(value, str) else "numeric-scalar"
        _encode(group[name], "array" if np.ndim(value) else scalar, "0.2.0")


def _encode(element: Any, kind: str, version: str, **attributes: Any) -> None:
    element.attrs.update({"encoding-type": kind, "encoding-version": version, **attributes})


def _write_order(frame: Any, names: list[str]) -> None:
    """Write the list of the columns of a data frame."""
    if isinstance(frame, zarr.Group):
        frame.attrs["column-order"] = names
    else:
        frame.attrs.create("column-order", names, dtype=need_h5py("").string_dtype())
