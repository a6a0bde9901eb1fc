"""Open a store of ours, or one that anndata wrote."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from bigfs.storage import versions
from bigfs.storage.corpus import Corpus
from bigfs.storage.errors import StoreError
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format import verified as verified_reads

if TYPE_CHECKING:
    from bigfs.storage.anndata_view import AnnDataCorpus

CorpusView: TypeAlias = "Corpus | AnnDataCorpus"


def open(uri: str | os.PathLike[str]) -> CorpusView:
    """Open a store.

    A Zarr store that anndata wrote, in a folder or a bucket, is used where it lies, by rows. Every
    pass of a method reads it from there, so it suits the methods of one pass.

    Parameters
    ----------
    uri : str or path-like
        Path or fsspec URL of the store. Options of AnnData may follow, as in
        ``cells.zarr?label=cell_type`` or ``s3://bucket/cells.zarr#label=cell_type``: those of
        `stage`, and ``weight=lognorm`` with a ``target_sum=``.

    Returns
    -------
    Corpus or AnnDataCorpus
        The corpus, a `Corpus` if bigfs staged it. Nothing but its manifest is read yet.

    Raises
    ------
    StoreError
        Nothing is there, the store is unfinished or of a newer version, or anndata wrote it and it
        cannot be used as it is.
    CorruptStoreError
        The manifest is not what was written.

    See Also
    --------
    stage : Make a store of a source.
    info : Describe a store as plain data.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> corpus = storage.open(uri)
    >>> corpus.X.shape[0], len(corpus.class_names)
    (100, 12)
    """
    uri = manifests.normalize_uri(uri)
    if not manifests.is_there(uri):
        from bigfs.storage import anndata_view

        if (corpus := anndata_view.open_in_place(uri)) is not None:
            return corpus
    while True:
        manifest = manifests.manifest_of(uri)
        try:
            verified_reads.root(uri, manifest.content)
        except StoreError as error:
            if not error.may_pass:
                raise
        else:
            return Corpus(uri, manifest, manifest.segments)


@contextlib.contextmanager
def hold_store(uri: str) -> Iterator[CorpusView]:
    """Open a store that stays as it is for the block, also if it grows meanwhile."""
    while True:
        corpus = open(uri)
        if not isinstance(corpus, Corpus) or "://" in corpus.uri:  # such a one does not grow
            yield corpus
            return
        with versions.hold(corpus.uri, corpus.manifest.content):
            # it may have grown before it was held
            if manifests.manifest_of(corpus.uri).content == corpus.manifest.content:
                yield corpus
                return


def require_staged(corpus: CorpusView) -> Corpus:
    """Return a corpus that lies in a store of ours."""
    if not isinstance(corpus, Corpus):
        raise StoreError(
            f"{corpus.uri} is an AnnData store, and this step needs a staged "
            f"store: bigfs stage {corpus.uri} STORE"
        )
    return corpus
