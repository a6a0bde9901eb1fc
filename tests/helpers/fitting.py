"""Data to fit, fitting for a few steps, and checkpoints in memory."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from bigfs.result import NotConvergedWarning, observe


def unbalanced():
    """Data on which accuracy and balanced accuracy choose differently."""
    rng = np.random.default_rng(17)
    y = (rng.random(150) < 0.15).astype(int)
    X = rng.normal(size=(150, 30))
    X[:, 0] += 2 * y * (rng.random(150) < 0.6)
    X[:, 1] -= 1.5 * (1 - y) * (rng.random(150) < 0.5)
    X[:, 2:8] *= 1 + 2 * y[:, None] * (rng.random((150, 6)) < 0.5)
    heavy = rng.exponential(1, size=(150, 6)) * (rng.random((150, 6)) < 0.3)
    X[:, 8:14] += y[:, None] * heavy
    return X, y


def fit_few_steps(selector, X, y=None):
    """Fit where a number of steps is asked for and not a tolerance: no warning at the limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return selector.fit(X, y)


class MemoryCheckpoint:
    """A checkpoint in memory. It raises KeyboardInterrupt after `die_after` saves, as if killed."""

    def __init__(self, die_after=None):
        self.saved, self.saves_left = {}, die_after

    def load(self, name):
        return self.saved.get(name)

    def save(self, name, state, history):
        copies = (np.array(part) if isinstance(part, np.ndarray) else part for part in state)
        self.saved[name] = (tuple(copies), list(history))
        if self.saves_left is not None:
            self.saves_left -= 1
            if self.saves_left == 0:
                raise KeyboardInterrupt


def fit_and_resume(selector, X, y=None, *, die_after):
    """Return a clone fitted at once, and one that goes on from where a killed fit ended.

    The killed fit and the one that goes on make together as many steps as the fit at once.
    """
    checkpoint = MemoryCheckpoint(die_after=die_after)
    steps = []

    def fitted(checkpoint=None):
        with observe(lambda *_: steps.append(1), checkpoint):
            return clone(selector).fit(X, y)

    whole = fitted()
    needed = len(steps)
    with pytest.raises(KeyboardInterrupt):
        fitted(checkpoint)
    checkpoint.saves_left = None
    resumed = fitted(checkpoint)
    assert len(steps) == 2 * needed
    return whole, resumed
