"""The selected columns of a store as a file for other programs: .npz, .h5ad or .parquet.

Each holds the columns in the order of their rank, with the names of features and samples, the
target and the split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import storage
from bigfs.evaluation.splits import target_kind
from bigfs.flows.use.files import (
    archive_members,
    is_parquet,
    label_sets,
    label_type,
    require_ours,
    with_suffix,
    write_parquet,
)
from bigfs.settings import Setting
from bigfs.storage import atomic, write_back
from bigfs.storage.runs.runs import Run

NPZ_MEMBERS = {"data.npy", "indices.npy", "indptr.npy", "shape.npy", "format.npy"}
ROWS = Setting(4096)  # of a Parquet file at a time: they are dense
ABOUT = "transform"


def transform(run: str | Path, store: str, out: str | Path) -> Path:
    """Write the selected columns of a store, in the order of their rank."""
    file = with_suffix(out, tuple(WRITERS), ".npz")
    opened, corpus = Run.open(run), storage.open(store)
    is_ours, write = WRITERS[file.suffix.lower()]
    require_ours(file, is_ours)
    names, index = require_features(opened, corpus), opened.selected
    write(file, sp.csr_matrix(corpus.X.columns(index)), names, corpus, opened.scores[index])
    return file


def require_features(run: Run, corpus: Any) -> list[str]:
    """Return the names of the features that a run selected, best first, if a corpus has them."""
    index = run.selected
    names = [row["name"] for row in run.read_table("selected.csv")]
    features = corpus.feature_names
    if index.max() >= len(features) or list(features[index]) != names:
        raise ValueError(
            f"{corpus.uri} does not have the features that {run.final} selected: stage it with "
            f"the same vocabulary"
        )
    return names


def _write_npz(file: Path, Z: Any, names: Sequence[str], corpus: Any, scores: Any) -> None:
    """Write the members of `scipy.sparse.save_npz`, and the names and the target with them."""
    y = corpus.y
    members: dict[str, Any] = {
        "feature_names": np.array(names, dtype=np.str_),
        "sample_names": np.array(corpus.sample_names, dtype=np.str_),
        "y": y.toarray().astype(np.int8) if sp.issparse(y) else y,
        "class_names": np.array(corpus.class_names, dtype=np.str_),
    }
    if corpus.split is not None:
        members["split"] = np.array(corpus.split, dtype=np.str_)
    matrix = {"indices": Z.indices, "indptr": Z.indptr, "shape": Z.shape, "data": Z.data}
    with atomic.write(file) as part, part.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, format=b"csr", **matrix, **members)


def _write_h5ad(file: Path, Z: Any, names: Sequence[str], corpus: Any, scores: Any) -> None:
    with atomic.write(file) as part:
        write_back.write_columns(part, Z, names, corpus, scores)


def _write_parquet(file: Path, Z: Any, names: Sequence[str], corpus: Any, scores: Any) -> None:
    """Write a column per feature, after the sample's name, label and split."""
    import pyarrow as pa

    label = label_type(corpus.spec["target"])
    fields = [("bigfs_sample", pa.string()), ("bigfs_label", label), ("bigfs_split", pa.string())]
    fields += [(name, pa.float32()) for name in names]
    counts = Counter(name for name, _ in fields)
    if repeated := sorted(name for name, count in counts.items() if count > 1):
        raise ValueError(f"two columns would be named {repeated[0]}: write .npz or .h5ad")

    def batches() -> Iterator[list[Any]]:
        for start in range(0, Z.shape[0], ROWS.value):
            rows = slice(start, start + ROWS.value)
            dense = Z[rows].toarray().astype(np.float32)
            split = corpus.split[rows] if corpus.split is not None else [None] * len(dense)
            about = [list(corpus.sample_names[rows]), _labels(corpus, rows), list(split)]
            yield [*about, *dense.T]

    write_parquet(file, fields, batches(), ABOUT)


def _labels(corpus: Any, rows: slice) -> list[Any]:
    """Return the names of the classes, the real values or the lists of labels of some rows."""
    y, names = corpus.y[rows], corpus.class_names
    kind = target_kind(y)
    if kind == "multioutput":
        return y.tolist()
    if kind == "real":
        return [None if np.isnan(value) else float(value) for value in y]
    if kind == "class":
        return [None if code < 0 else names[code] for code in y]
    return label_sets(y, names)


WRITERS: dict[str, Any] = {  # by the ending: what tells a file of ours, and what writes one
    ".npz": (lambda file: archive_members(file) >= NPZ_MEMBERS, _write_npz),
    ".h5ad": (write_back.is_ours, _write_h5ad),
    ".parquet": (partial(is_parquet, about=ABOUT), _write_parquet),
}
