"""Real data sets by name: which files of the folder of data hold them, and how they are read.

A name that is not listed here is that of a MATLAB file with `X` and `Y`.
"""

from __future__ import annotations

import csv
import gzip
import io
import tarfile
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp
import zarr
from PIL import Image
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer


class Dataset(NamedTuple):
    """A data set in memory."""

    X: np.ndarray  # n × d, float64
    y: np.ndarray  # (n,): 0 … c − 1


Read = tuple[Any, Any]  # the samples and the classes, as the file has them
Reader = Callable[..., Read]  # of the paths


def matlab(path: Path, X: str = "X", y: str = "Y") -> Read:
    """Return two variables of a MATLAB file."""
    file = scipy.io.loadmat(path)
    return file[X], file[y]


def fea_gnd(*paths: Path) -> Read:
    """Return the samples of all the files, which call them `fea` and their classes `gnd`."""
    X, y = zip(*(matlab(path, "fea", "gnd") for path in paths), strict=True)
    return np.vstack(X), np.vstack(y)


def surf(path: Path) -> Read:
    return matlab(path, "fts", "labels")


def usps(path: Path) -> Read:
    """Return all digits of USPS. The last column has the classes."""
    both = scipy.io.loadmat(path)["usps_all"]
    return both[:, :-1], both[:, -1]


def usps_test(path: Path) -> Read:
    """Return the test part of USPS."""
    X, y = matlab(path, "Test_DAT", "testlabels")
    return X.T, y


def umist(path: Path) -> Read:
    """Return the faces as rows. Each row of the file's `Y` has a 1 for the person."""
    X, y = matlab(path)
    return X.T, y.argmax(axis=1)


def scenes(path: Path) -> Read:
    """Return the three descriptors of Scene-15 side by side."""
    X, y = matlab(path)
    return np.hstack([np.asarray(part, dtype=float) for part in X[0]]), y


def pie(path: Path) -> Read:
    """Return PIE's faces column by column, by the person and the number of the picture."""
    found: dict[tuple[int, int], np.ndarray] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if content := archive.extractfile(member):
                person, name = Path(member.name).parts[-2:]
                image = np.asarray(Image.open(io.BytesIO(content.read())))
                found[int(person), int(Path(name).stem)] = image.ravel("F")
    order = sorted(found)
    return np.array([found[key] for key in order]), np.array([person for person, _ in order])


def blood_cells(path: Path) -> Read:
    """Return the cells of scanpy's PBMC 68k, as they come, and the labels of their sort."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the archive holds some metadata twice
        store = zarr.storage.ZipStore(path, mode="r")
        group: Any = zarr.open_group(store, mode="r", use_consolidated=False)
    return group["X"][:], group["obs/bulk_labels/codes"][:]


def cell_lines(counts: Path, metadata: Path) -> Read:
    """Return ln(1 + count per 10,000) of the genes of a mixture of cell lines, and the lines."""
    genes, (head, *cells) = (
        list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))
        for path in (counts, metadata)
    )
    X = np.array([row[1:] for row in genes[1:]], dtype=float).T
    labels = [row[1 + head.index("cell_line")] for row in cells]
    return np.log1p(1e4 * X / X.sum(axis=1, keepdims=True)), labels


READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    **{
        name: (matlab, (f"papers/{file}.mat",))
        for name, file in {
            "ALLAML": "ALLAML",
            "BinAlpha": "binalpha_uni",
            "CNAE-9": "CNAE-9",
            "CS": "caltech101_silhouettes_16_uni",
            "GLIOMA": "GLIOMA",
            "Prostate-GE": "Prostate-GE",
            "Segment": "segment_uni",
            "Srbct": "srbct",
        }.items()
    },
    "Isolet 7797": (
        fea_gnd,
        (*(f"papers/Isolet{part}.mat" for part in range(1, 5)), "papers/isolet5.mat"),
    ),
    "MNIST 4000": (fea_gnd, ("papers/mnist_4000.mat",)),
    "PBMC": (blood_cells, ("formats/10x_pbmc68k_reduced.zarr.zip",)),
    "PIE": (pie, ("papers/PIE_11554_jpg.tar.bz2",)),
    "SURF": (surf, ("papers/Caltech10_SURF_L10.mat",)),
    "Scene-15": (scenes, ("papers/Scene-15.mat",)),
    "USPS": (usps, ("papers/usps_all_9298.mat",)),
    "USPS 2007": (usps_test, ("papers/USPS_7291_2007.mat",)),
    "Umist": (umist, ("papers/umist.mat",)),
    "cell lines": (
        cell_lines,
        ("formats/sc_dropseq.count.csv.gz", "formats/sc_dropseq.metadata.csv.gz"),
    ),
}


def files(name: str) -> tuple[str, ...]:
    """Return the files of a data set, relative to the folder of the data."""
    if name in TEXTS:
        return (TEXTS[name],)
    return READERS[name][1] if name in READERS else (f"{name}.mat",)


class Corpus(NamedTuple):
    X: sp.csr_array
    y: np.ndarray
    X_test: sp.csr_array
    y_test: np.ndarray


def documents(archive: Path) -> list[tuple[str, str, str]]:
    """Half, group and text of each document of 20news-bydate.tar.xz."""
    with tarfile.open(archive) as tar:
        return [
            (*member.name.split("/")[-3:-1], content.read().decode("latin-1"))
            for member in tar
            if (content := tar.extractfile(member))
        ]


@lru_cache(maxsize=1)
def newsgroups(archive: Path) -> Corpus:
    """20 Newsgroups by date, from 20news-bydate.tar.xz."""
    texts, groups = defaultdict(list), defaultdict(list)
    for half, group, text in documents(archive):
        texts[half].append(text)
        groups[half].append(group)
    train, test = "20news-bydate-train", "20news-bydate-test"
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    X = sp.csr_array(vectorizer.fit_transform(texts[train]))
    X_test = sp.csr_array(vectorizer.transform(texts[test]))
    names = np.unique(groups[train])
    y, y_test = (np.searchsorted(names, groups[half]) for half in (train, test))
    return Corpus(X, y, X_test, y_test)


class Texts(NamedTuple):
    """Counts of words, with the split that the set comes with."""

    X: sp.csr_array
    y: np.ndarray
    test: np.ndarray  # (n,), bool
    names: np.ndarray  # of the classes


def reuters(file: Path) -> Texts:
    """Return Reuters-21578 as its file has it."""
    arrays = scipy.io.loadmat(file)
    X = sp.csr_array(arrays["fea"]).astype(np.float64)
    test = np.zeros(X.shape[0], dtype=bool)
    test[arrays["testIdx"].ravel() - 1] = True
    names, y = np.unique(arrays["gnd"].ravel(), return_inverse=True)
    return Texts(X, y, test, names)


def news(archive: Path, counter: CountVectorizer) -> Texts:
    """Return 20 Newsgroups by date."""
    halves, groups, texts = zip(*documents(archive), strict=True)
    names, y = np.unique(groups, return_inverse=True)
    X = sp.csr_array(counter.fit_transform(texts))
    return Texts(X, y, np.char.endswith(halves, "test"), names)


COUNTS: dict[str, dict[str, Any]] = {  # which words of 20 Newsgroups are counted
    "News": {  # the most frequent ones
        "stop_words": "english",
        "token_pattern": "[a-z]{2,}",
        "max_features": 26_214,
        "dtype": np.float64,
    },
    "News, all words": {"min_df": 2},
}
TEXTS = {
    "Reuters": "papers/Reuters21578.mat",
    **dict.fromkeys(COUNTS, "20news-bydate.tar.xz"),
}


@lru_cache(maxsize=1)
def texts(folder: Path, name: str) -> Texts:
    """Return a large text corpus: Reuters and News of JGSC, or all words of the latter."""
    if name in COUNTS:
        return news(folder / TEXTS[name], CountVectorizer(**COUNTS[name]))
    return reuters(folder / TEXTS[name])


@lru_cache(maxsize=4)
def load(folder: Path, name: str) -> Dataset:
    """Return a data set, its values as they are."""
    reader = READERS[name][0] if name in READERS else matlab
    X, y = reader(*(folder / file for file in files(name)))
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    return Dataset(X, np.unique(np.asarray(y).ravel(), return_inverse=True)[1])
