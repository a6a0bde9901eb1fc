"""The job of `bigfs run ARCHIVE --method anova --features 500` as a script with scikit-learn alone.

python benchmarks/sklearn_job.py 20news-bydate.tar.xz
"""

from __future__ import annotations

import sys
import tarfile
from collections import defaultdict

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import f_classif
from sklearn.svm import LinearSVC

texts, groups = defaultdict(list), defaultdict(list)
with tarfile.open(sys.argv[1]) as archive:
    for member in archive:
        if content := archive.extractfile(member):
            half, group, _ = member.name.split("/")[-3:]
            texts[half].append(content.read().decode("latin-1"))
            groups[half].append(group)
train, test = "20news-bydate-train", "20news-bydate-test"
vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
X, X_test = vectorizer.fit_transform(texts[train]), vectorizer.transform(texts[test])
order = np.argsort(-np.nan_to_num(f_classif(X, groups[train])[0]), kind="stable")
for k in (50, 100, 250, 500, X.shape[1]):
    columns = np.sort(order[:k])
    svm = LinearSVC().fit(X[:, columns], groups[train])
    print(f"{k:6,} terms: accuracy {svm.score(X_test[:, columns], groups[test]):.4f}")
