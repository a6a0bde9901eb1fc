"""
Choosing together beats choosing one by one
===========================================

A score that looks at one feature at a time cannot see that two features say the same. It takes
both. SparGE chooses the features together, so a copy of a chosen feature is worth little to it.
"""

# %%
# Data with copies
# ----------------
# Six classes. Six signals tell them apart, and each signal has eight noisy copies. The first
# signals are the strong ones.
# There are 200 columns of noise besides.

import numpy as np

rng = np.random.default_rng(0)
n, signals, copies = 1200, 6, 8
y = rng.integers(0, signals, n)
strength = np.linspace(3.0, 1.5, signals)
signal = (y[:, None] == np.arange(signals)) * strength + rng.normal(size=(n, signals))
X = np.hstack(
    [
        np.repeat(signal, copies, axis=1)
        + 0.3 * rng.normal(size=(n, signals * copies)),
        rng.normal(size=(n, 200)),
    ]
)
group = np.repeat(np.arange(signals), copies)
train, test = np.arange(n) < 800, np.arange(n) >= 800

# %%
# Six features, two ways
# ----------------------

import bigfs

chosen = {}
for name, selector in [
    ("ANOVA", bigfs.ANOVA(n_features_to_select=24)),
    ("SparGE", bigfs.SparGE(embedding="lda", n_features_to_select=24)),
]:
    chosen[name] = selector.fit(X[train], y[train]).selected_
    first = chosen[name][:6]
    print(
        f"{name}: its first six come from the signals "
        f"{sorted(set(group[first[first < signals * copies]].tolist()))}"
    )

# %%
# What it costs
# -------------
# ANOVA spends its first features on copies of the strongest signals. SparGE takes one feature of
# each signal first, and only
# then averages the noise away with further copies.

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

counts = [2, 4, 6, 8, 12, 16, 24]
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, order in chosen.items():
    accuracy = [
        LogisticRegression()
        .fit(X[train][:, order[:m]], y[train])
        .score(X[test][:, order[:m]], y[test])
        for m in counts
    ]
    left.plot(counts, accuracy, marker="o", label=name)
left.set(xlabel="features", ylabel="test accuracy", title="Accuracy")
left.legend()
for row, (name, order) in enumerate(chosen.items()):
    share = [
        np.mean(group[order[:12]] == g) if g < signals else 0 for g in range(signals)
    ]
    right.bar(
        np.arange(signals) + 0.4 * row - 0.2,
        12 * np.array(share),
        width=0.4,
        label=name,
    )
right.set(
    xlabel="signal",
    ylabel="features among the first 12",
    title="Where the features come from",
)
right.legend()
plt.show()
