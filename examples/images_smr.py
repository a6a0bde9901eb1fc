"""
Images: which pixels tell the digits apart
==========================================

SMR treats a sample as a matrix and not as a long vector. Each class gets a regression whose weights
are a low-rank matrix, and one penalty over all classes decides which pixels keep weight.
"""

# %%
# Fit
# ---
# ``sample_shape`` says how a row of ``X`` is an image. ``k`` is the rank of each class's weight
# matrix.

from sklearn.datasets import load_digits

import bigfs

X, y = load_digits(return_X_y=True)
X = X / 16
model = bigfs.SMR(
    sample_shape=(8, 8),
    k=2,
    alpha=10.0,
    max_iter=100,
    tol=1e-4,
    n_features_to_select=20,
).fit(X, y)
print(model.result_.status, "after", model.n_iter_, "rounds")

# %%
# Look at the pixels
# ------------------
# ``score_map_`` has the shape of an image. The crosses mark the 20 chosen pixels. The Fisher score
# is drawn next to it: it scores
# each pixel alone, so neighboring pixels that say the same all score high.

import matplotlib.pyplot as plt
import numpy as np

fisher = bigfs.Fisher(n_features_to_select=20).fit(X, y)
fig, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
pictures = [
    ("mean image", X.mean(axis=0), None),
    ("SMR", model.score_map_.ravel(), model),
    ("Fisher score", fisher.scores_, fisher),
]
for ax, (title, values, selector) in zip(axes, pictures, strict=True):
    ax.imshow(np.where(np.isfinite(values), values, 0).reshape(8, 8), cmap="viridis")
    if selector is not None:
        rows, columns = np.nonzero(selector.get_support().reshape(8, 8))
        ax.scatter(columns, rows, marker="x", color="white")
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# Are the pixels redundant?
# -------------------------
# The mean absolute correlation between two chosen pixels is a simple measure.

for name, selector in [("SMR", model), ("Fisher score", fisher)]:
    C = np.abs(np.corrcoef(X[:, selector.get_support()].T))
    print(f"{name}: {C[np.triu_indices_from(C, 1)].mean():.3f}")
