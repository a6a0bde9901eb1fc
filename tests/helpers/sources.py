"""Reading sources as workers do, for the tests of the formats."""

import gzip
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs.engine import MemoryLimitError
from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import samples

SIZES = [1, 200, 10**9]  # bytes a piece: one row or so, a few, all


def rows_of(source, scratch, size=10**9):
    """All rows of a source read piece by piece, as a worker would: dense X, y, split, names."""
    ready = source.prepare(scratch)
    parts = [pickle.loads(pickle.dumps(ready)).read(piece) for piece in ready.pieces(size)]  # noqa: S301, as a worker gets it
    parts = [part for part in parts if part.X.shape[0]]  # no line begins in a very small piece
    width = ready.n_features or max(part.X.shape[1] for part in parts)
    for part in parts:
        assert part.X.has_canonical_format
        part.X.resize(part.X.shape[0], width)
    X = np.vstack([part.X.toarray() for part in parts])
    return X, *(told_of(parts, role) for role in ("label", "split", "name"))


def told_of(parts, role):
    """What parts of a source tell of their samples: texts ("": missing) or numbers (NaN)."""
    if role not in parts[0].samples:
        return None
    values = [v for part in parts for v in part.samples[role].to_pylist()]
    missing = "" if any(isinstance(v, str) for v in values) else np.nan
    return np.array([missing if v is None else v for v in values])


class Document(NamedTuple):
    text: str
    label: object
    split: object
    name: object


def documents_of(source, scratch, size=10**9):
    ready = source.prepare(scratch)
    parts = [
        part._replace(texts=list(part.texts))
        for piece in ready.pieces(size)
        for part in pickle.loads(pickle.dumps(ready)).read(piece)  # noqa: S301, the same
    ]
    if not parts:
        return []
    places = [(len(part.texts), part.place) for part in parts]
    columns = samples.join([part.samples for part in parts], places)
    texts = [text for part in parts for text in part.texts]
    told = [columns.get(role) for role in ("label", "split", "name")]
    told = [[None] * len(texts) if values is None else values.to_pylist() for values in told]
    return [Document(*document) for document in zip(texts, *told, strict=True)]


def consumed(path, scratch, size=10**9, **options):
    """Everything a source gives, read and thrown away."""
    ready = sources.find(path, **options).prepare(scratch)
    for piece in ready.pieces(size):
        part = ready.read(piece)
        if not hasattr(part, "X"):
            for documents in part:
                list(documents.texts)


def refused(path, match, scratch, size=10**9, **options):
    """Reading it is a SourceError of one line that names the file."""
    with pytest.raises(SourceError, match=match) as caught:
        consumed(path, scratch, size, **options)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def whole_or_refused(read, *args, **options):
    """What `read` gives, or "refused"; any error but one of our own, of one line, goes through."""
    try:
        return read(*args, **options)
    except (SourceError, MemoryLimitError) as error:
        return "refused" if "\n" not in str(error) else "refused at length"


def save_matrix(kind, path, X):
    if kind == "npy":
        np.save(path, X.toarray())
    elif kind in ("csr", "csc", "coo"):
        sp.save_npz(path, X.asformat(kind), compressed=kind != "csc")
    elif kind == "dense.npz":
        np.savez_compressed(path, X=X.toarray(), y=np.arange(X.shape[0]) % 3)
    elif kind == "mat":
        scipy.io.savemat(path, {"X": X, "Y": np.arange(X.shape[0])[:, None] % 3})
    elif kind == "dense.mat":
        scipy.io.savemat(path, {"fea": X.toarray(), "gnd": np.arange(X.shape[0])[:, None] % 3})
    elif kind == "mtx":
        scipy.io.mmwrite(path, X)
    elif kind == "dense.mtx":
        scipy.io.mmwrite(path, X.toarray())
    elif kind == "mtx.gz":
        scipy.io.mmwrite(path.with_suffix(""), X)
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


MATRICES = {
    "npy": ("X.npy", "npy"),
    "csr": ("X.npz", "npz"),
    "csc": ("X.npz", "npz"),
    "coo": ("X.npz", "npz"),
    "dense.npz": ("X.npz", "npz"),
    "mat": ("X.mat", "mat"),
    "dense.mat": ("X.mat", "mat"),
    "mtx": ("X.mtx", "mtx"),
    "dense.mtx": ("X.mtx", "mtx"),
    "mtx.gz": ("X.mtx.gz", "mtx"),
}
