"""`check` verifies everything that a store holds. `info` describes a store as plain data."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import fsspec
import numpy as np

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.storage.corpus import Corpus
from bigfs.storage.format.documents import compare_documents
from bigfs.storage.format.manifest import VERSION
from bigfs.storage.opening import open as open_corpus
from bigfs.storage.opening import require_staged
from bigfs.storage.scaling import IS_STANDARDIZED
from bigfs.storage.sources.base import shorten, shorten_names
from bigfs.storage.sources.tables.kinds import left_out as left_out_columns

MOST_CLASSES = 8  # of which a summary tells the samples


class CheckResult(NamedTuple):
    """Hold what `check` found.

    Parameters
    ----------
    uri : str
        Path or URL of the store.
    documents : int
        Number of stored documents that were compared.
    problems : list of str
        One line per fault. Empty if the store is whole.

    See Also
    --------
    check : Compare a store with what was written.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> report = storage.check(uri)
    >>> report.problems
    []
    """

    uri: str
    documents: int
    problems: list[str]


@engine.session()
def check(uri: str | os.PathLike[str]) -> CheckResult:
    """Read a whole store and compare it with what was written.

    Every document is compared with its checksum, the indices of both layouts with their bounds, and
    the two layouts with one another by the statistics of their columns.

    Parameters
    ----------
    uri : str or path-like
        Path or fsspec URL of the store.

    Returns
    -------
    CheckResult
        The number of documents, and one line per fault.

    Raises
    ------
    StoreError
        Nothing is there, or the store is unfinished or of a newer version.
    CorruptStoreError
        The manifest or the checksums are damaged, so nothing can be compared.

    See Also
    --------
    info : Describe a store without reading its values.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> storage.check(uri).problems
    []
    """
    corpus = require_staged(open_corpus(uri))
    documents, problems = compare_documents(corpus.store)
    if not problems:
        for tiles in (corpus.X.row_tiles, corpus.X.column_tiles):
            problems += [
                line for line in engine.map_tiles(_check_tile, tiles, label="check tiles") if line
            ]
    if not problems:
        problems = _check_layouts(corpus)
    return CheckResult(corpus.uri, documents, problems)


def _check_tile(tile: Any) -> str | None:
    """Return the fault of a tile, if it has one."""
    block = tile.load()  # which checks the bounds of its indices
    name = f"{block.format} tile [{tile.start}, {tile.stop})"
    if not block.has_canonical_format:
        return f"{name}: indices not increasing"
    if not np.isfinite(block.data).all() or not block.data.all():
        return f"{name}: a stored zero, NaN or infinity"
    return None


def _check_layouts(corpus: Corpus) -> list[str]:
    rows = Matrix(corpus.X.shape, rows=corpus.X.row_tiles).stats
    sums, squares, counts = corpus.X.stats
    scales = np.sqrt(counts * squares), squares, counts  # no less than the sum of absolute values
    names = ("sums", "sums of squares", "numbers of non-zeros")
    for name, one, other, scale in zip(names, rows, (sums, squares, counts), scales, strict=True):
        if not (np.abs(one - other) <= 1e-9 * scale).all():  # no comparison holds for NaN
            return [
                f"the {name} of the columns differ between the layout by rows and the statistics"
            ]
    return []


def info(uri: str | os.PathLike[str]) -> dict[str, Any]:
    """Describe a store as plain data.

    Parameters
    ----------
    uri : str or path-like
        Path or fsspec URL of the store.

    Returns
    -------
    dict
        Samples, features, non-zeros, density, target, samples per class and per split, columns
        with roles, bytes per layout, tiles, source with its options, settings, content hash and
        version.

    Raises
    ------
    StoreError
        Nothing is there, or the store is unfinished or of a newer version.
    CorruptStoreError
        The manifest is not what was written.

    See Also
    --------
    check : Compare a store with what was written.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> about = storage.info(uri)
    >>> about["samples"], about["target"]
    (100, 'class')
    """
    corpus = require_staged(open_corpus(uri))
    (n, d), manifest = corpus.X.shape, corpus.manifest
    return {
        "uri": corpus.uri,
        "samples": n,
        "features": d,
        "nnz": manifest.nnz,
        "density": manifest.nnz / (n * d),
        "target": manifest.target,
        **_samples(corpus),
        "roles": corpus.roles,
        "segments": len(manifest.segments),
        "bytes": _sizes(corpus.uri),
        "tiles": {"rows": len(corpus.X.row_tiles), "columns": len(corpus.X.column_tiles)},
        "source": manifest.source["uri"],
        "format": manifest.source["format"],
        "options": manifest.source.get("options", {}),
        "settings": manifest.settings,
        "content": manifest.content,
        "version": VERSION,
    }


def _samples(corpus: Corpus) -> dict[str, Any]:
    """Return how many samples each class and each split has, and how many have no class."""
    n = corpus.X.shape[0]
    classes, unlabeled = {}, 0 if corpus.manifest.target else n
    if corpus.manifest.target == "class":
        counts = class_sizes(corpus.y, len(corpus.class_names))
        classes = dict(zip(corpus.class_names, counts.tolist(), strict=True))
        unlabeled = n - int(counts.sum())
    return {"classes": classes, "unlabeled": unlabeled, "splits": corpus.split_sizes}


def summarize(uri: str) -> str:
    """Return in one line what was read into a store."""
    corpus = require_staged(open_corpus(uri))
    about, (n, d) = _samples(corpus), corpus.X.shape
    kind, classes = corpus.manifest.target, about["classes"]
    labels = {None: "no labels", "real": "real targets"}.get(kind, "sets of labels")
    if kind == "multioutput":
        labels = f"{len(corpus.class_names)} real targets per sample"
    if kind == "class":
        order = sorted(classes, key=classes.__getitem__, reverse=True)[:MOST_CLASSES]
        some = ", ".join(f"{shorten(name, 30)} {classes[name]:,}" for name in order)
        more = f" and {len(classes) - len(order):,} more" if len(order) < len(classes) else ""
        labels = f"{len(classes):,} classes ({some}{more})"
    left_out = corpus.manifest.source.get("left_out", [])
    decided = corpus.manifest.source.get("decided", {})
    if decided.get("target") == "real":
        labels += " (target=class takes the numbers as classes)"
    return "; ".join(
        [
            f"{corpus.manifest.source['format']}, {n:,} samples × {d:,} features",
            labels + (f", {about['unlabeled']:,} unlabeled" if kind and about["unlabeled"] else ""),
            ", ".join(f"{split} {rows:,}" for split, rows in about["splits"].items()) or "no split",
            *([f"left out {shorten_names(left_out, 3)}"] if left_out else []),
            *filter(None, [left_out_columns(decided.get("unused", {}))]),
            *([IS_STANDARDIZED] if "scale" in decided else []),
        ]
    )


def _sizes(uri: str) -> dict[str, int]:
    """Return the bytes on disk by rows, by columns, and of the rest."""
    fs, base = fsspec.core.url_to_fs(uri)
    sizes = {"by rows": 0, "by columns": 0, "names, labels and statistics": 0}
    parts = {"X": "by rows", "uns/columns": "by columns"}
    for path, size in fs.du(base, total=False).items():
        inside = path.removeprefix(base).lstrip("/")
        part = next((part for name, part in parts.items() if inside.startswith(f"{name}/")), None)
        sizes[part or "names, labels and statistics"] += size
    return sizes
