"""Selected columns as an AnnData file (.h5ad) of their own, by its published encoding.

X                                       the columns, best first (csr)
obs: _index, label, split               names, target and split of the samples
obsm["labels"], uns["label_names"]      label sets
var: _index, bigfs_score, bigfs_rank    the features
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.sources.hdf5 import need_h5py

MARK = "bigfs"  # an attribute of the root: bigfs replaces only what it wrote


def is_ours(file: Path) -> bool:
    """Return whether `write` wrote a file."""
    with contextlib.suppress(OSError), need_h5py(str(file)).File(file, "r") as root:
        return MARK in root.attrs
    return False


def write(part: Path, Z: Any, feature_names: Sequence[str], corpus: Any, scores: AnyArray) -> None:
    """Write columns with the samples' names, targets and splits.

    Parameters
    ----------
    part : Path
        The file to write.
    Z : csr_matrix of shape (n, m)
        The columns.
    feature_names : sequence of str
        Their names.
    corpus : CorpusView
        The corpus of the samples.
    scores : ndarray of shape (m,)
        Scores of the features.
    """
    with need_h5py(str(part)).File(part, "w") as root:
        root.attrs.update(
            {"encoding-type": "anndata", "encoding-version": "0.1.0", MARK: "transform"}
        )
        _write_csr(root, "X", Z)
        obs: dict[str, Any] = {}
        y = corpus.y
        if corpus.spec["target"] == "real":
            obs["label"] = y
        elif corpus.spec["target"] == "class":
            obs["label"] = (corpus.class_names, y)
        elif corpus.spec["target"] == "multilabel":
            _write_csr(_mapping(root, "obsm"), "labels", y.tocsr().astype(np.int8))
            _write_text(_mapping(root, "uns"), "label_names", corpus.class_names)
        if corpus.split is not None:
            splits, codes = np.unique(corpus.split, return_inverse=True)
            obs["split"] = (list(splits), codes)
        _write_frame(root, "obs", corpus.sample_names, obs)
        ranks = np.arange(1, len(feature_names) + 1)
        _write_frame(root, "var", feature_names, {"bigfs_score": scores, "bigfs_rank": ranks})


def _mapping(root: Any, name: str) -> Any:
    group = root.create_group(name)
    group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    return group


def _write_csr(parent: Any, name: str, Z: Any) -> None:
    group = parent.create_group(name)
    group.attrs.update(
        {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": Z.shape}
    )
    for part in ("data", "indices", "indptr"):
        group.create_dataset(part, data=getattr(Z, part), compression="gzip")


def _write_frame(root: Any, name: str, index: Any, columns: dict[str, Any]) -> None:
    """Write a data frame. A column is an array, or the names and codes of categories."""
    text = need_h5py("").string_dtype()
    group = root.create_group(name)
    group.attrs.update(
        {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
    )
    group.attrs.create("column-order", list(columns), dtype=text)
    _write_text(group, "_index", index)
    for key, values in columns.items():
        if isinstance(values, tuple):
            names, codes = values
            part = group.create_group(key)
            part.attrs.update(
                {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
            )
            _write_text(part, "categories", names)
            _write_array(part, "codes", np.asarray(codes, dtype=np.int32))
        else:
            _write_array(group, key, np.asarray(values))


def _write_text(group: Any, name: str, values: Any) -> None:
    texts = [str(value) for value in values]
    if any("\x00" in text for text in texts):
        raise SourceError("a name holds the character NUL, which an .h5ad file cannot: write .npz")
    group.create_dataset(name, data=texts, dtype=need_h5py("").string_dtype())
    group[name].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


def _write_array(group: Any, name: str, values: AnyArray) -> None:
    group.create_dataset(name, data=values)
    group[name].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
