"""
Text: from nothing to a model
=============================

This example stages a corpus of 8,000 short documents, chooses 200 of its 20,000 terms, and trains a
classifier on them. The corpus is generated, so nothing is downloaded. A folder of your own
documents takes the same steps.
"""

# %%
# Stage the corpus
# ----------------
# :func:`storage.stage` reads a source once and writes it in chunks. Later steps read these chunks
# and never need the whole
# matrix in memory. Replace the name below by the path of a folder, an archive, or a file.

from pathlib import Path
from tempfile import mkdtemp

import storage

folder = Path(mkdtemp())
uri = storage.stage("synthetic:newswire", folder / "newswire.zarr")
corpus = storage.open(uri)
train, test = corpus.part("train"), corpus.part("test")
print(corpus)
print("classes:", ", ".join(corpus.class_names))

# %%
# Choose terms
# ------------
# ``embedding="lda"`` asks for the terms that explain the classes best. The features come best
# first, so the first 50 of them
# are a good choice of 50.

import bigfs

selector = bigfs.SparGE(embedding="lda", n_features_to_select=200).fit(train.X, train.y)
print("status:", selector.result_.status)
print("best terms:", ", ".join(train.feature_names[selector.selected_[:8]]))

# %%
# Train on the chosen terms
# -------------------------
# ``X.columns`` reads the named columns only. They are few, so the classifier works in memory. The
# test half took no part in
# the choice.

from sklearn.svm import LinearSVC


def accuracy(features):
    """Test accuracy of a linear SVM on some features."""
    model = LinearSVC(random_state=0).fit(train.X.columns(features), train.y)
    return model.score(test.X.columns(features), test.y)


anova = bigfs.ANOVA(n_features_to_select=200).fit(train.X, train.y)
counts = [10, 20, 50, 100, 200]
curves = {
    name: [accuracy(s.selected_[:m]) for m in counts]
    for name, s in [("SparGE", selector), ("ANOVA", anova)]
}

# %%
# Look at the curve
# -----------------
# SparGE leads while terms are few. At 200 terms ANOVA is a little ahead: in this corpus every
# informative term is informative
# by itself and none repeats another, which is the easy case for a score of one feature at a time.

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in curves.items():
    ax.plot(counts, values, marker="o", label=name)
ax.set(
    xscale="log",
    xticks=counts,
    xticklabels=counts,
    xlabel="terms",
    ylabel="test accuracy",
    title="Generated newswire",
)
ax.minorticks_off()
ax.legend()
plt.show()
