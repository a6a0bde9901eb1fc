"""What several benchmarks use: 20 Newsgroups as scikit-learn reads it, and tables as they go into
RESULTS.md.
"""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import TfidfVectorizer


class Corpus(NamedTuple):
    X: sp.csr_array
    y: np.ndarray
    X_test: sp.csr_array
    y_test: np.ndarray


def newsgroups(archive: Path) -> Corpus:
    """20 Newsgroups by date, from 20news-bydate.tar.xz."""
    documents, groups = defaultdict(list), defaultdict(list)
    with tarfile.open(archive) as tar:
        for member in tar:
            if content := tar.extractfile(member):
                half, group, _ = member.name.split("/")[-3:]
                documents[half].append(content.read().decode("latin-1"))
                groups[half].append(group)
    train, test = "20news-bydate-train", "20news-bydate-test"
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    X, X_test = (
        sp.csr_array(vectorizer.fit_transform(documents[train])),
        sp.csr_array(vectorizer.transform(documents[test])),
    )
    names = np.unique(groups[train])
    return Corpus(
        X, np.searchsorted(names, groups[train]), X_test, np.searchsorted(names, groups[test])
    )


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    shown = Table(title=title, title_justify="left", box=box.MARKDOWN)
    for i, name in enumerate(head):
        shown.add_column(name, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*map(str, row))
    Console(width=240).print(shown)
