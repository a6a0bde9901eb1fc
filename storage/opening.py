"""Open a store: one of ours, or one that anndata wrote."""

from __future__ import annotations

import os

from storage.corpus import Corpus
from storage.format import manifest as manifests
from storage.format import verified as verified_reads


def open(uri: str | os.PathLike[str]) -> Corpus:
    """The corpus of a store; one that anndata wrote is used where it lies, by rows
    (`storage.anndata_view`).

    Raises
    ------
    StoreError : nothing there, unfinished, of a newer version, or anndata's and not to be used as
        it is.
    Damaged : its manifest is not what was written.
    """
    uri = manifests.absolute(uri)
    if os.path.isdir(uri) and not manifests.exists(uri):
        from storage import anndata_view

        if anndata_view.is_anndata(uri):
            return anndata_view.InPlace(uri)
    manifest = manifests.manifest_of(uri)
    verified_reads.root(uri, manifest.content)
    return Corpus(uri, manifest, manifest.segments)
