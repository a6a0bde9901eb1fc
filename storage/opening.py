"""Open a store of ours, or one that anndata wrote."""

from __future__ import annotations

import os

from storage.corpus import Corpus, CorpusView
from storage.format import manifest as manifests
from storage.format import verified as verified_reads


def open(uri: str | os.PathLike[str]) -> CorpusView:
    """Open a store.

    A store that anndata wrote is used where it lies, by rows.

    Parameters
    ----------
    uri : str or path-like
        Path or fsspec URL of the store.

    Returns
    -------
    CorpusView
        The corpus, a `Corpus` if bigfs staged it. Nothing but its manifest is read yet.

    Raises
    ------
    StoreError
        Nothing is there, the store is unfinished or of a newer version, or anndata wrote it and it
        cannot be used as it is.
    Damaged
        The manifest is not what was written.

    See Also
    --------
    stage : Make a store of a source.
    info : Describe a store as plain data.

    Examples
    --------
    >>> import tempfile
    >>> import storage
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = storage.stage("synthetic:newswire?rows=100", f"{folder.name}/newswire.zarr")
    >>> corpus = storage.open(uri)
    >>> corpus.X.shape[0], len(corpus.class_names)
    (100, 12)
    >>> folder.cleanup()
    """
    uri = manifests.normalize_uri(uri)
    if not manifests.exists(uri) and os.path.isdir(uri):
        from storage import anndata_view

        if anndata_view.is_anndata(uri):
            return anndata_view.AnnDataCorpus(uri)
    manifest = manifests.manifest_of(uri)
    verified_reads.root(uri, manifest.content)
    return Corpus(uri, manifest, manifest.segments)
