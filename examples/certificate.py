"""
The certificate: how far from the optimum
=========================================

Choosing the best m of d features is a hard problem. SparGE solves a convex relaxation of it, and
every step of the solver gives a lower and an upper bound. The gap between them says how far the
answer can be from the optimum.
"""

# %%
# Solve to a small gap
# --------------------
# ``tol`` is the relative gap at which the solver stops. The data are scikit-learn's images of
# digits.

from sklearn.datasets import load_digits

import bigfs

X, y = load_digits(return_X_y=True)
selector = bigfs.SparGE(embedding="lda", n_features_to_select=30, tol=1e-3).fit(X, y)
print(selector.result_.status)

# %%
# Two numbers, two meanings
# -------------------------
# The *gap* belongs to the relaxation. The *objective gap* belongs to the m features that you get.
# It says how far their
# objective can be above that of the best m features. The relaxation bounds every choice of m
# features from below, so nobody has
# to know the best one.

gap = selector.result_.history[-1]["gap"]
print(f"gap of the relaxation: {gap:.3%}")
print(
    f"objective gap of the 30 chosen pixels: {selector.result_.stats['objective_gap']:.2%}"
)

# %%
# The bounds, cut by cut
# ----------------------

import matplotlib.pyplot as plt

_, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bigfs.plot.bounds(selector, ax=left)
bigfs.plot.gap(selector, tol=1e-3, ax=right)
plt.show()
