"""Add samples to a store: the columns stay, and each split gets one more segment.

The grown store is built next to the old one from hard links to its files, or from copies where the
disk has none. `ChecksumRecorder` deletes
a link before it writes a file of that name. So the old store stays whole until the exchange.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.storage import atomic, versions
from bigfs.storage.corpus import Corpus
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.format import manifest
from bigfs.storage.format.documents import require_whole
from bigfs.storage.format.manifest import ROW_CHUNK, STRING_CHUNK
from bigfs.storage.format.writer import Writer, is_remains, publish
from bigfs.storage.opening import open as open_corpus
from bigfs.storage.opening import require_staged
from bigfs.storage.scaling import scaling_of
from bigfs.storage.sources import checks, find
from bigfs.storage.sources.base import MatrixSource, Source, TextSource
from bigfs.storage.sources.samples import CATEGORIES, Target
from bigfs.storage.staging import build, tables, transpose
from bigfs.storage.staging.named import Columns, Names, name_lines, number, read_blocks
from bigfs.storage.staging.scale_blocks import rewrite
from bigfs.storage.staging.scratch import BY_ROW, RowBlock, delete, row_bounds, save
from bigfs.storage.staging.text.hashing import name_buckets
from bigfs.storage.staging.text.vectorize import weigh_by
from bigfs.storage.staging.text.weighting import Weighting
from bigfs.types import AnyArray

# one value per sample, and the checksums
REWRITTEN = (
    *("obs/", "obsm/", "uns/class_names/"),
    *(f"{manifest.CHECKSUMS}/", f"{manifest.CHUNK_CHECKSUMS}/"),
)


@engine.session()
def append(
    source: Any,
    store: str | os.PathLike[str],
    *,
    format: str | None = None,
    split: str | None = None,
    memory_limit: int | str | None = None,
    wait: float = -1,
    **options: Any,
) -> str:
    """Add the samples of a source to a store on a local disk.

    The columns of the store stay as they are. Text is counted with the vocabulary and the idf of
    the store, and unknown terms are left out. So are names that the store lacks, where the rows or
    the columns of a matrix have names. Columns are found by their names then, in any order. One
    that the source lacks is zero, but refused where both have fixed columns, such as tables. Of
    hashed columns those that were empty get their names. An unknown class gets the next code. A
    source that the store was staged from, or that was appended before, is not appended again. A
    folder must hold new samples only: one that has grown since is another source, and its old
    samples would be added once more.

    Parameters
    ----------
    source : str, path-like, Source or object
        Source, as in `stage`.
    store : str or path-like
        Path of the store.
    format : str or None, default=None
        Format of the source. None guesses it from the content.
    split : {"train", "test"} or None, default=None
        Split of samples without one. None takes "train". Where the store has no splits, "test"
        makes its samples the training samples.
    memory_limit : int, str or None, default=None
        Memory of one process, as in `stage`.
    wait : float, default=-1
        Seconds to wait while another process works on the store. -1 waits as long as it takes.
    **options : object
        Options of the format.

    Returns
    -------
    str
        URI of the store.

    Raises
    ------
    MemoryLimitError
        `memory_limit` is less than the libraries take.
    SourceError
        The source is missing or broken, has more columns than the store where they have no names,
        lacks a column, or has another kind of target.
    StoreError
        The store is not there, or not on a local disk.
    CorruptStoreError
        The store is not what was written.

    See Also
    --------
    stage : Make a store.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from bigfs import storage
    >>> folder = tempfile.TemporaryDirectory()
    >>> X, labels = np.eye(3), {"y": ["a", "b", "b"], "names": ["rain", "snow", "sun"]}
    >>> uri = storage.stage(X, f"{folder.name}/rows.zarr", **labels)
    >>> _ = storage.append(2 * X, uri, **labels)
    >>> storage.open(uri).X.shape[0]
    6
    >>> folder.cleanup()
    """
    uri = manifest.normalize_uri(store)
    if "://" in uri:
        raise StoreError(
            f"{uri} is not on a local disk, and only a local store can grow: stage a new one"
        )
    if split not in (None, "train", "test"):
        raise StoreError(f"split must be train or test; got {split!r}")
    about = manifest.manifest_of(uri)
    if isinstance(source, Source):
        source = source.absolute()
    else:
        source = find(source, format=format, **options)
    if isinstance(source, MatrixSource) and source.may_have_names:
        source = source.replace(hashing=about.settings.get("hashing"))
    if isinstance(source, TextSource) and "min_df" in about.settings:
        source = Weighting.from_settings(about.settings).with_memory(source)
    memory_limit = build.working_memory("appending", source, memory_limit)
    with (
        contextlib.ExitStack() as until_published,
        atomic.building(uri, manifest.is_there, wait) as (target, scratch),
    ):
        corpus = require_staged(open_corpus(uri))
        if source.reads_once:
            with engine.limit_memory(memory_limit):
                source = source.spool(build.source_folder(scratch))
        fingerprint = source.fingerprint()
        known = corpus.manifest.source
        require_whole(corpus.store)
        if fingerprint not in (known["fingerprint"], *known.get("appended", [])):
            _grow(corpus, source, fingerprint, split, target, scratch, memory_limit)
            until_published.enter_context(versions.keep(uri, corpus.manifest.content))
    return uri


def _grow(
    corpus: Corpus,
    source: Source,
    fingerprint: str,
    split: str | None,
    target: str,
    scratch: Path,
    memory_limit: int,
) -> None:
    old = corpus.manifest
    with engine.limit_memory(memory_limit):
        adopted = source.as_decided(old.source.get("decided", {}))
        if isinstance(adopted, MatrixSource):
            adopted = columns_of(corpus).adopt(adopted)
        ready = adopted.prepare(build.source_folder(scratch)).replace(memory_limit=memory_limit)
    if (given := set(source.obs_columns)) != (known := set(corpus.roles)):
        raise SourceError(
            f"{source.path} is given with {_options(given)}, but the store has {_options(known)}: "
            f"name a column for each of these, and for no other"
        )
    blocks = _read_blocks(ready, corpus, scratch, memory_limit)
    shutil.rmtree(build.source_folder(scratch))
    if corpus.splits or split == "test" or any(s.split == "test" for s in blocks if s.rows):
        blocks = [s if s.split else s._replace(split=split or "train") for s in blocks]
        halves = (s if s.split else replace(s, split="train") for s in old.segments)
        old = replace(old, segments=tuple(halves))
    else:
        blocks = [s._replace(split=None) for s in blocks]
    names = _bucket_names(corpus, blocks, scratch)
    if (units := scaling_of(corpus)) is not None:
        blocks = rewrite(blocks, units, scratch, source.path)
    segments, blocks = build.order_by_split(blocks, old.segments)
    if not segments:
        raise SourceError(f"{source.path} holds no samples to append")
    every = (*old.segments, *segments)
    n, d = checks.require_shape(segments[-1].stop, old.shape[1], f"{corpus.uri} with {source.path}")
    samples_target = _merged_target(corpus, source, blocks)
    with engine.limit_memory(memory_limit):
        stored = {role: _stored_obs(corpus, role) for role in corpus.roles}
        obs = tables.obs_of(blocks, stored, source.path, stored)
    writer = _clone(corpus, target, ["var/_index/"] if names else [])
    if names:
        writer.stream("var/_index", d, str, tables.term_lines(names))
    chunks = build.chunks_for(writer, memory_limit)
    transpose.write_rows(writer, blocks, (n, d), chunks, (old.shape[0], old.nnz))
    delete(blocks, *BY_ROW)
    tables.write_samples(
        writer,
        samples_target,
        every,
        lambda: chain(_stored_targets(corpus, samples_target), tables.y_of(blocks, samples_target)),
        _sample_names(corpus, blocks, n),
        obs,
    )
    build.write_segments(writer, segments, blocks, d, samples_target, chunks)
    build.require_same(source, fingerprint)
    grown = replace(
        old,
        key=fingerprint_of(old.key, fingerprint),
        shape=(n, d),
        nnz=old.nnz + sum(s.nnz for s in blocks),
        segments=every,
        row_bounds=(*old.row_bounds, *row_bounds(segments, blocks, old.settings["tile_rows"])[1:]),
        source={
            "staged": old.key,
            **old.source,
            "appended": [*old.source.get("appended", []), fingerprint],
        },
    )
    publish(writer, grown)


def _read_blocks(
    source: Source, corpus: Corpus, scratch: Path, memory_limit: int
) -> list[RowBlock]:
    """Read the source into blocks on scratch with the columns of the store."""
    settings, d = corpus.manifest.settings, corpus.manifest.shape[1]
    new, old = (
        "text" if is_text else "a matrix"
        for is_text in (isinstance(source, TextSource), "min_df" in settings)
    )
    if new != old:
        raise SourceError(f"{source.path} is {new}, but the store was staged from {old}")
    if isinstance(source, MatrixSource):
        pieces = build.pieces_of(source, memory_limit)
        columns = columns_of(corpus)
        numbered = columns.number(source, scratch)
        if columns.hashing:
            blocks = read_blocks(source, pieces, scratch)
            return number(blocks, Names(columns.hashing, "", is_hashed=True))
        blocks = read_blocks(numbered, pieces, scratch)
        widest = max((s.width for s in blocks), default=0)
        if widest > d:
            raise SourceError(
                f"{source.path} has {widest} columns and the store has {d}: stage all samples again"
            )
        names = corpus.feature_names if corpus.manifest.named[1] else None
        tables.note_rounded(blocks, names, None, source.path)
        return blocks
    assert isinstance(source, TextSource)
    weighting = Weighting.from_settings(settings)
    pieces = build.pieces_of(source, memory_limit)
    terms = None
    if not weighting.hashing:
        terms = name_lines(corpus.feature_names)
    return weigh_by(source, pieces, weighting, corpus.store.read("var/idf"), terms, scratch)


def columns_of(corpus: Corpus) -> Columns:
    """Return the columns of a store of a matrix."""
    about = corpus.manifest
    lines = partial(name_lines, corpus.feature_names) if about.named[1] else None
    by_name, hashing = bool(about.source.get("by_name")), about.settings.get("hashing")
    return Columns(corpus.uri, about.shape[1], lines, by_name, hashing)


def _bucket_names(corpus: Corpus, blocks: Sequence[RowBlock], scratch: Path) -> str | None:
    """Write the names of hashed columns: the names in the store, or the new ones where empty."""
    if not (hashing := corpus.manifest.settings.get("hashing")):
        return None
    path, names, known = str(scratch / "stored"), scratch / "buckets.terms", list[AnyArray]()
    nnz = corpus.X.stats.nnz
    with open(f"{path}.firsts", "wb") as out:
        for first in range(0, hashing, STRING_CHUNK):
            stored = corpus.feature_names[first : first + STRING_CHUNK]
            numbers = np.arange(first, first + len(stored))
            is_known = (stored != numbers.astype(np.str_)) | (nnz[numbers] > 0)
            out.writelines(name_lines(stored[is_known]))
            known.append(numbers[is_known])
    save(path, hashed=np.concatenate(known))
    name_buckets(blocks, hashing, names, [path])
    return str(names)


def _merged_target(corpus: Corpus, source: Source, blocks: Sequence[RowBlock]) -> Target:
    """Return the target of the new samples in the codes of the store."""
    kind = corpus.manifest.target
    # whole numbers may be real targets, but 1.5 is no class
    new = tables.decide_target(blocks, source, kind if kind != "class" else None)
    if new.kind is None and any(s.told.has_labels for s in blocks):  # and no sample has one
        new = Target(kind)
    if new.kind != kind:
        raise SourceError(
            f"{source.path} has {new.kind or 'no'} labels and the store has {kind or 'none'}"
        )
    code = {name: i for i, name in enumerate(corpus.class_names)}
    if kind == "multioutput" and set(code) != set(new.class_names or code):
        raise SourceError(
            f"{source.path} has the real targets {', '.join(new.class_names)} and the store has "
            f"{', '.join(code)}: give the same ones"
        )
    for name in new.class_names:
        code.setdefault(name, len(code))
    codes = {text: code[new.class_names[i]] for text, i in new.codes.items()}
    return new._replace(codes=codes, class_names=list(code))


def _stored_targets(corpus: Corpus, target: Target) -> Iterator[Any]:
    """Yield the targets that the store holds already, in parts."""
    n, store = corpus.manifest.shape[0], corpus.store
    for a in range(0, n, ROW_CHUNK):
        b = min(a + ROW_CHUNK, n)
        if target.kind in manifest.MATRICES:
            path, _ = manifest.MATRICES[target.kind]
            indptr = store.read(f"{path}/indptr", a, b + 1)
            cut = int(indptr[0]), int(indptr[-1])
            data, indices = (store.read(f"{path}/{part}", *cut) for part in ("data", "indices"))
            rows = data, indices, indptr - indptr[0]
            yield sp.csr_array(rows, shape=(b - a, len(target.class_names)))
        else:
            yield store.read("obs/label/codes" if target.kind == "class" else "obs/label", a, b)


def _stored_obs(corpus: Corpus, role: str) -> tables.ObsColumn:
    """Return a column of the store that has a role."""
    n, store = corpus.manifest.shape[0], corpus.store
    is_categorical = role in CATEGORIES
    path = f"obs/{role}/codes" if is_categorical else f"obs/{role}"
    return tables.ObsColumn(
        lambda: (store.read(path, a, min(a + ROW_CHUNK, n)) for a in range(0, n, ROW_CHUNK)),
        store.read(path, 0, 1).dtype,
        corpus.categories(role) if is_categorical else None,
    )


def _options(roles: set[str]) -> str:
    return ", ".join(f"{role}=" for role in sorted(roles)) or "no group=, batch= or other role"


def _sample_names(corpus: Corpus, blocks: Sequence[RowBlock], n: int) -> tables.Parts | None:
    """Return the names of all samples in parts, or None if the store has none."""
    if not corpus.manifest.named[0]:
        return None
    before, store = corpus.manifest.shape[0], corpus.store
    new = tables.names_of(blocks, before) or (lambda: tables.row_numbers(before, n))
    return lambda: chain(
        (
            store.read("obs/_index", a, min(a + STRING_CHUNK, before))
            for a in range(0, before, STRING_CHUNK)
        ),
        new(),
    )


def _clone(corpus: Corpus, target: str, more: Sequence[str] = ()) -> Writer:
    """Fill the new store with hard links to the files of the old one that stay as they are."""
    store, checksums = corpus.store, manifest.checksums_of(corpus.uri, corpus.manifest.content)
    documents = set(checksums.keys())
    files = {
        path.relative_to(corpus.uri).as_posix()
        for path in Path(corpus.uri).rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    files -= {*documents, manifest.MANIFEST, f"{manifest.CHECKSUMS}/c/0"}
    foreign = min((name for name in files if not is_remains(name, documents)), default=None)
    if foreign:
        raise StoreError(
            f"{corpus.uri} holds {foreign}, which bigfs did not write: move it out "
            f"of the store before you append"
        )
    anew = (*REWRITTEN, *more)
    writer = Writer(target, chunk=store.chunk("X/data"))
    writer.checksums.update(checksums.documents)
    for path, shards in checksums.shards.items():
        writer.shards[path] = shards.size
        crcs = store.read(manifest.CHUNK_CHECKSUMS, shards.first, shards.first + shards.chunks)
        for i, key in enumerate(shards.keys(path)):
            some = crcs[i * shards.size : (i + 1) * shards.size]
            writer.checksums[key] = some.tobytes().hex()
    for key in documents:
        if key.startswith(anew):
            del writer.checksums[key]
        else:
            Path(target, key).parent.mkdir(parents=True, exist_ok=True)
            atomic.link_or_copy(Path(corpus.uri, key), Path(target, key))
    for path in checksums.shards:
        if f"{path}/".startswith(anew):
            del writer.shards[path]
    return writer
