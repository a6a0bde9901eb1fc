"""
Few labels: let the other samples help
======================================

Two labeled images per digit say little about which pixels matter. The 1,700 images without a label
say more: neighbors should look alike in the chosen pixels. ``embedding="sda"`` uses both. The
Fisher score can use the labels only.
"""

# %%
# Hide most labels
# ----------------
# A sample without a label has ``y = -1``.

import numpy as np
from sklearn.datasets import load_digits

X, digit = load_digits(return_X_y=True)


def few_labels(seed, per_class=2):
    """Labels of `per_class` random images per digit, and -1 for all others."""
    rng = np.random.default_rng(seed)
    y = np.full(len(digit), -1)
    for c in range(10):
        y[rng.choice(np.flatnonzero(digit == c), per_class, replace=False)] = c
    return y


# %%
# Choose pixels and classify the rest
# -----------------------------------
# A nearest-neighbor classifier sees the chosen pixels of the labeled images and labels all others.
# Ten draws of the labels
# show how much luck there is.

from sklearn.neighbors import KNeighborsClassifier

import bigfs

counts = [5, 10, 15, 20, 30]


def curve(selector, y):
    """Accuracy on the unlabeled images with the first m pixels of a fitted selector."""
    known = y >= 0
    accuracy = []
    for m in counts:
        pixels = selector.selected_[:m]
        model = KNeighborsClassifier(1).fit(X[known][:, pixels], y[known])
        accuracy.append(model.score(X[~known][:, pixels], digit[~known]))
    return accuracy


draws = {"SparGE-SDA": [], "Fisher score": []}
for seed in range(10):
    y = few_labels(seed)
    draws["SparGE-SDA"].append(
        curve(bigfs.SparGE(embedding="sda", n_features_to_select=30).fit(X, y), y)
    )
    known = y >= 0  # for a supervised method, -1 is a class of arrays
    draws["Fisher score"].append(
        curve(bigfs.Fisher(n_features_to_select=30).fit(X[known], y[known]), y)
    )

# %%
# The mean over ten draws
# -----------------------
# The band is one standard deviation over the draws.

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in draws.items():
    mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
    ax.plot(counts, mean, marker="o", label=name)
    ax.fill_between(counts, mean - spread, mean + spread, alpha=0.2)
ax.set(
    xlabel="pixels",
    ylabel="accuracy on unlabeled images",
    title="Digits, two labels per class",
)
ax.legend()
plt.show()
