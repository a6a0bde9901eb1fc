"""
The penalty: let folds choose it
================================

``gamma`` says how strongly the weights are penalized. Its unit is a mean of the columns' sums of
squares, so a value means the same whatever the scale of the data. A large penalty is
cheap and looks at features one by one. A small one follows the training samples closely. The best
value lies between.
"""

# %%
# Few samples, copies and noise
# -----------------------------
# 300 training samples of six classes. Six signals tell the classes apart, each has 20 noisy copies,
# and 300 columns are noise.

import numpy as np

rng = np.random.default_rng(1)
n, signals, copies = 2300, 6, 20
y = rng.integers(0, signals, n)
signal = (y[:, None] == np.arange(signals)) * np.linspace(
    3.0, 1.5, signals
) + rng.normal(size=(n, signals))
X = np.hstack(
    [
        np.repeat(signal, copies, axis=1)
        + 0.5 * rng.normal(size=(n, signals * copies)),
        rng.normal(size=(n, 300)),
    ]
)
train, test = np.arange(n) < 300, np.arange(n) >= 300

# %%
# Folds choose
# ------------
# :class:`bigfs.SparGECV` tries each value on folds of the training samples. It takes the largest
# penalty whose error is within one
# standard error of the least, because a large penalty is cheap.

import bigfs

gammas = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
searched = bigfs.SparGECV(gammas=gammas, cv=5, tol=0.02, n_features_to_select=12).fit(
    X[train], y[train]
)
print("chosen:", searched.gamma_)

# %%
# Was it a good choice?
# ---------------------
# The right picture uses the 2,000 test samples, which the folds never saw.

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

accuracy = []
for gamma in gammas:
    features = (
        bigfs.SparGE(gamma=gamma, tol=0.02, n_features_to_select=12)
        .fit(X[train], y[train])
        .selected_
    )
    accuracy.append(
        LogisticRegression(max_iter=1000)
        .fit(X[train][:, features], y[train])
        .score(X[test][:, features], y[test])
    )

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
losses = searched.losses_
left.errorbar(
    gammas,
    losses.mean(axis=1),
    losses.std(axis=1, ddof=1) / np.sqrt(losses.shape[1]),
    marker="o",
    capsize=3,
)
left.set(
    ylabel="unexplained share, held out", title="Five folds of the training samples"
)
right.plot(gammas, accuracy, marker="o")
right.set(ylabel="test accuracy", title="Test samples")
for ax in (left, right):
    ax.axvline(searched.gamma_, linestyle="--", color="gray", label="chosen")
    ax.set(xscale="log", xlabel="gamma")
    ax.legend()
plt.show()
