"""From a source to a store: read in pieces, spill, assemble both layouts, publish in one step.

A store is whole or absent. It is built in a hidden sibling under a lock and gets its name by one
rename; in an object store, which cannot rename, its manifest comes last and readers refuse it until then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.utils import parse_bytes
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from bigfs import blocks
from storage import assemble, layout, targets
from storage.errors import SourceError, StoreError
from storage.layout import Manifest, Segment, Writer
from storage.sources import find
from storage.sources.base import MatrixSource, Source, TextSource, fingerprint_of
from storage.spill import Spill, open_array, spill
from storage.vectorize import Vocabulary, Weighting, vectorize

Array = NDArray[Any]
TILE = 1 << 21  # non-zeros a tile: half a second to a second of work
TEXT_PIECE = 4 << 20  # bytes of text that a task counts
BASE = 352_000_000  # bytes that the libraries themselves take in a worker


class Plan(NamedTuple):
    """A source, how it is to be staged, and where."""

    source: Source
    weighting: Weighting
    settings: dict[str, Any]
    key: str
    uri: str


def plan(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None,
    *,
    format: str | None,
    min_df: int | float,
    sublinear_tf: bool,
    hashing: int | None,
    tile_rows: int | None,
    **options: Any,
) -> Plan:
    found = source if isinstance(source, Source) else find(str(source), format=format, **options)
    weighting = Weighting(min_df, sublinear_tf, hashing)
    settings: dict[str, Any] = {"tile_rows": tile_rows}
    if isinstance(found, TextSource):
        settings |= weighting.__dict__
    key = fingerprint_of(found.format, found.fingerprint(), layout.VERSION, sorted(settings.items()))
    stem = re.sub(r"[^\w.-]+", "-", Path(found.path).name.split(".")[0] or "corpus")
    return Plan(found, weighting, settings, key, layout.absolute(store or Path(".bigfs") / f"{stem}-{key[:12]}.zarr"))


def stage(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    min_df: int | float = 2,
    sublinear_tf: bool = True,
    hashing: int | None = None,
    tile_rows: int | None = None,
    memory_limit: int | str = "512MB",
    wait: float = -1,
    scratch: str | os.PathLike[str] | None = None,
    **options: Any,
) -> str:
    """Make the store of a source, unless it is there already; returns its URI.

    Parameters
    ----------
    source : a path (folder, archive or file), a name of the catalogue, or a `Source`.
    store : path or fsspec URL; default: ``.bigfs/<name>-<key>.zarr``, where the key is of the source
        and the settings, so that the same question finds the same store.
    format : of the source; default: guessed from its content.
    min_df, sublinear_tf : of text, as in scikit-learn's `TfidfVectorizer`; with a given split they
        are fitted on the training documents.
    hashing : number of hashed columns of text; None keeps a vocabulary.
    tile_rows : rows of a row tile; column tiles and chunks shrink alike. Default: 2²¹ non-zeros.
    memory_limit : bytes that one process may use, whatever the size of the source.
    wait : seconds to wait while another process stages the same store; −1: as long as it takes.
    scratch : folder on a disk that every worker sees; default: beside the store.
    options : of the format.

    Raises
    ------
    SourceError : the source is missing, broken, empty or holds a bad value.
    StoreError : the name is taken by something else, another process holds it, or the disk is full.
    """
    job = plan(
        source,
        store,
        format=format,
        min_df=min_df,
        sublinear_tf=sublinear_tf,
        hashing=hashing,
        tile_rows=tile_rows,
        **options,
    )
    if reusable(job):
        return job.uri
    limit = parse_bytes(memory_limit)
    blocks.require_memory(BASE + (64 << 20), "staging", limit)
    with building(job.uri, wait, scratch) as (target, spills):
        if not reusable(job):
            build(job, target, spills, limit)
    return job.uri


def staged(source: str | os.PathLike[str] | Source, store: str | os.PathLike[str] | None = None, **settings: Any) -> str | None:
    """The URI that `stage` would return at once, None if it has work to do."""
    defaults = {"format": None, "min_df": 2, "sublinear_tf": True, "hashing": None, "tile_rows": None}
    settings = {k: v for k, v in settings.items() if k not in ("memory_limit", "wait", "scratch")}
    job = plan(source, store, **{**defaults, **settings})
    return job.uri if reusable(job) else None


def reusable(job: Plan) -> bool:
    """Whether the store is there already; an error if its name is taken by another one."""
    if not layout.exists(job.uri):
        if "://" not in job.uri and os.path.exists(job.uri):
            raise StoreError(f"{job.uri} is there and is not a store: give another name or remove it")
        return False
    manifest = layout.manifest_of(job.uri)
    if manifest.key != job.key:
        raise StoreError(
            f"{job.uri} holds {manifest.source['uri']}, changed since or staged with other settings: give another name or remove it"
        )
    return True


# --- whole or absent ------------------------------------------------------------------------------


@contextlib.contextmanager
def building(uri: str, wait: float = -1, scratch: str | os.PathLike[str] | None = None) -> Iterator[tuple[str, Path]]:
    """Where to build the store `uri`, and a scratch folder; published if the block ends well.

    What an interrupted run left is cleared first; an error leaves nothing.
    """
    local = "://" not in uri
    home = Path(uri).parent if local else Path(scratch or ".bigfs").absolute()
    name = Path(uri).name if local else fingerprint_of(uri)
    work = (Path(scratch).absolute() if scratch else home) / f".{name}.staging"
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = home / f".{name}.lock"
        with FileLock(lock, timeout=wait):
            shutil.rmtree(work, ignore_errors=True)
            target = home / f".{name}.new" if local else uri
            old = home / f".{name}.old"  # a store that grew, in the instant of its exchange
            if local and old.exists() and not os.path.exists(uri):
                os.rename(old, uri)
            try:
                (work / "spills").mkdir(parents=True)
                if local:
                    shutil.rmtree(target, ignore_errors=True)
                yield str(target), work / "spills"
                if local and layout.exists(str(target)):
                    if os.path.exists(uri):
                        os.rename(uri, old)
                    os.rename(target, uri)
                    shutil.rmtree(old, ignore_errors=True)
            finally:
                shutil.rmtree(work, ignore_errors=True)
                if local:
                    shutil.rmtree(target, ignore_errors=True)
                lock.unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone, and locks a new one
    except Timeout:
        raise StoreError(f"another process is staging {uri}: wait for it, or give another name") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"the disk of {uri} is full: free some space or give another place") from error
        raise


# --- the stages -----------------------------------------------------------------------------------


def build(job: Plan, target: str, scratch: Path, limit: int) -> Manifest:
    """Stage a source into the empty place `target`, and publish it there."""
    source, room = job.source.unpacked(scratch), limit - BASE
    vocabulary = None
    if isinstance(source, TextSource):
        spills, vocabulary = vectorize(source, source.pieces(min(TEXT_PIECE, room // 32)), job.weighting, scratch)
        d = vocabulary.size
    else:
        assert isinstance(source, MatrixSource)
        spills = read(source, source.pieces(room // 20), scratch)
        d = source.n_features or max((s.width for s in spills), default=0)
    segments, spills = by_split(spills)
    n = sum(s.rows for s in spills)
    if not n or not d:
        raise SourceError(f"{source.path} holds no values: {n} samples, {d} features")
    if "://" in target:
        layout.remove(target)
    tile = TILE if job.settings["tile_rows"] is None else max(1, sum(s.nnz for s in spills) * job.settings["tile_rows"] // n)
    writer = Writer(target, chunk=min(layout.CHUNK, max(1 << 12, 1 << (tile - 1).bit_length())))
    chunks = max(1, min(room // 128, TILE) // writer.chunk)
    indptr = assemble.write_rows(writer, spills, (n, d), chunks)
    counts = write_segments(writer, segments, spills, d, chunks, scratch)
    found = targets.encode([s.y for s in spills], n, kind=source.target, class_names=source.class_names)
    names = sample_names(spills)
    write_samples(writer, found, segments, names)
    named = write_features(writer, source, vocabulary, d)
    return layout.publish(
        writer,
        Manifest(
            key=job.key,
            shape=(n, d),
            nnz=int(indptr[-1]),
            target=found.kind,
            segments=tuple(segments),
            row_bounds=row_bounds(indptr, segments, job.settings["tile_rows"]),
            column_bounds=bounds(counts, tile),
            named=(names is not None, named),
            source=describe(source, job),
            settings=job.settings,
        ),
    )


def read(source: MatrixSource, pieces: Sequence[Any], scratch: Path) -> list[Spill]:
    where = [str(scratch / f"rows-{i:06d}") for i in range(len(pieces))]
    return [s for parts in blocks.map_tiles(_read, pieces, source, each=[where], label="read") for s in parts]


def _read(piece: Any, where: str, source: MatrixSource) -> list[Spill]:
    rows = source.read(piece)
    if rows.X.nnz and not np.isfinite(rows.X.data).all():
        raise SourceError(f"{source.path} holds NaN or infinity: replace them before staging")
    if rows.split is None:
        return [spill(Path(where), rows.X, None, rows.y, rows.names)]
    spills = []
    for split in ("train", "test"):
        chosen = np.flatnonzero(rows.split == split)
        y = None if rows.y is None else [rows.y[i] for i in chosen] if isinstance(rows.y, list) else rows.y[chosen]
        names = None if rows.names is None else rows.names[chosen]
        if len(chosen):
            spills.append(spill(Path(f"{where}-{split}"), rows.X[chosen], split, y, names))
    return spills


def by_split(spills: Sequence[Spill]) -> tuple[list[Segment], list[Spill]]:
    """Blocks with the training rows first, and the segments they make."""
    halves = {"train", "test"} & {s.split for s in spills}
    splits = ["train", "test"] if halves else [None]
    segments: list[Segment] = []
    ordered: list[Spill] = []
    start = 0
    for split in splits:
        chosen = [s for s in spills if s.split == split or (split == "train" and s.split is None)]
        rows = sum(s.rows for s in chosen)
        if rows:
            segments.append(Segment(f"{len(segments)}", split, start, start + rows, sum(s.nnz for s in chosen)))
            ordered += chosen
            start += rows
    return segments, ordered


def write_segments(writer: Writer, segments: Sequence[Segment], spills: Sequence[Spill], d: int, chunks: int, scratch: Path) -> Array:
    """Every segment by columns, with its statistics. Returns the non-zeros of each column."""
    for path in ("uns", "uns/columns", "uns/statistics"):
        writer.group(path, "dict")
    counts, row, rest = np.zeros(d, dtype=np.int64), 0, list(spills)
    for segment in segments:
        mine = []
        while row < segment.stop:
            mine.append(rest.pop(0))
            row += mine[-1].rows
        counts += assemble.write_columns(writer, segment.name, mine, (segment.stop - segment.start, d), chunks, scratch)
    return counts


# --- samples and features -------------------------------------------------------------------------


def sample_names(spills: Sequence[Spill]) -> list[str] | None:
    if any(s.names is None for s in spills if s.rows):
        return None
    return [str(name) for s in spills for name in s.names]


def write_samples(writer: Writer, found: targets.Targets, segments: Sequence[Segment], names: Sequence[str] | None) -> None:
    """obs: sample names, label, split; obsm/labels where a sample has a set of labels."""
    n = segments[-1].stop
    columns = (["label"] if found.kind in ("class", "real") else []) + (["split"] if segments[0].split else [])
    writer.group("obs", "dataframe", "0.2.0", **{"_index": "_index", "column-order": columns})
    writer.create("obs/_index", n, str, layout.STRINGS, "string-array")
    for a in range(0, n, layout.STRINGS):  # numbers as names: never all of them at once
        b = min(a + layout.STRINGS, n)
        some = np.arange(a, b).astype(np.str_) if names is None else names[a:b]
        writer.checksums.update(layout.fill(writer.uri, "obs/_index", a, np.array(some, dtype=object)))
    if found.kind == "class":
        _write_categories(writer, "obs/label", found.y, found.class_names)
    elif found.kind == "real":
        writer.write("obs/label", found.y, assemble.PER_ROW)
    elif found.kind == "multilabel":
        writer.group("obsm", "dict")
        writer.group("obsm/labels", "csr_matrix", shape=list(found.y.shape))
        for part in ("data", "indices", "indptr"):
            writer.write(f"obsm/labels/{part}", getattr(found.y, part), assemble.PER_ROW)
        writer.write("uns/class_names", np.array(found.class_names, dtype=object))
    if segments[0].split:
        halves = [str(s.split) for s in segments]
        code = np.repeat([("train", "test").index(half) for half in halves], [s.stop - s.start for s in segments])
        _write_categories(writer, "obs/split", code, ["train", "test"])


def _write_categories(writer: Writer, path: str, codes: Array, categories: Sequence[str]) -> None:
    smallest = np.int8 if len(categories) < 128 else np.int16 if len(categories) < 1 << 15 else np.int32
    writer.group(path, "categorical", "0.2.0", ordered=False)
    writer.write(f"{path}/codes", codes.astype(smallest), assemble.PER_ROW)
    writer.write(f"{path}/categories", np.array(categories, dtype=object))


def write_features(writer: Writer, source: Source, vocabulary: Vocabulary | None, d: int) -> bool:
    """var: feature names, where there are any, and the idf of text. Whether there are names."""
    terms: Any = None if vocabulary is None or vocabulary.terms is None else Path(vocabulary.terms).read_text("utf-8").split("\n")[:-1]
    names = source.feature_names if terms is None else terms
    if names is None and vocabulary is None:
        return False
    writer.group("var", "dataframe", "0.2.0", **{"_index": "_index", "column-order": ["idf"] if vocabulary else []})
    writer.write("var/_index", np.arange(d).astype(np.str_) if names is None else np.asarray(names, dtype=object))
    if vocabulary is not None:
        writer.write("var/idf", np.array(open_array(vocabulary.idf, "idf")), assemble.PER_COLUMN)
    return names is not None


def describe(source: Source, job: Plan) -> dict[str, Any]:
    told = {
        "uri": source.path,
        "format": source.format,
        "fingerprint": job.source.fingerprint(),
        "sample_shape": None if source.sample_shape is None else list(source.sample_shape),
        "planted": None if source.planted is None else [int(i) for i in source.planted],
    }
    return told


# --- tiles ----------------------------------------------------------------------------------------


def row_bounds(indptr: Array, segments: Sequence[Segment], tile_rows: int | None) -> tuple[int, ...]:
    """Where row tiles begin and end; none crosses a segment."""
    cuts: list[int] = [0]
    for s in segments:
        if tile_rows:
            cuts += [*range(s.start + tile_rows, s.stop, tile_rows), s.stop]
        else:
            cuts += [s.start + cut for cut in bounds(np.diff(indptr[s.start : s.stop + 1]), TILE)[1:]]
    return tuple(cuts)


def bounds(counts: Array, tile: int) -> tuple[int, ...]:
    """Cut rows (columns) of these counts in runs of about `tile` non-zeros."""
    ends = np.cumsum(counts)
    cuts = np.searchsorted(ends, np.arange(tile, int(ends[-1]), tile)) + 1
    return tuple(int(c) for c in np.unique([0, *cuts, len(counts)]))
