"""Features that must be chosen, features that must not be, and features that say nothing.

    S = K ∪ argmax_{|A| = m − |K|} Σ_{j∈A} s_j,      A ⊆ {1, …, d} \\ (K ∪ F)

K is kept and F is forbidden. A constant feature takes no part either, and is chosen last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigfs.types import AnyArray, FloatArray, IntArray

NAMES_AT_ONCE = 1 << 16  # of a store, which reads them as they are asked for


NONE = np.empty(0, dtype=np.int64)


class Constraints(NamedTuple):
    """The kept, the forbidden and the other constant features, each in increasing order."""

    kept: IntArray
    forbidden: IntArray
    constant: IntArray = NONE

    @property
    def absent(self) -> IntArray:
        """The features that take no part in a fit, in increasing order."""
        return np.union1d(self.forbidden, self.constant)

    def with_constant(self, constant: IntArray) -> Constraints:
        """Return the same with these constant features, but for kept and forbidden ones."""
        decided = np.concatenate([self.kept, self.forbidden])
        return self._replace(constant=np.setdiff1d(constant, decided))

    def within(self, features: IntArray) -> Constraints:
        """Return the same for some features alone, as positions among these."""
        return Constraints(*(np.flatnonzero(np.isin(features, part)) for part in self))

    def order(self, scores: FloatArray) -> IntArray:
        """Return the features without forbidden ones: the kept ones, the others by score, and the
        constant ones. Equal scores are ordered by index, and NaN is the least score."""
        rank = np.ones(len(scores), dtype=np.int8)
        rank[self.kept], rank[self.constant], rank[self.forbidden] = 0, 2, 3
        return np.lexsort((-scores, rank))[: len(scores) - len(self.forbidden)]

    def best(self, scores: FloatArray, m: int) -> IntArray:
        """Return the first m of `order`."""
        return self.order(scores)[:m]

    def require(self, m: int, d: int) -> int:
        """Return m, or refuse it as the number of features to choose from d."""
        if m < len(self.kept):
            raise ValueError(
                f"keep holds {len(self.kept)} features, but only {m} are to be selected: "
                f"raise n_features_to_select, or keep fewer"
            )
        if m > d - len(self.forbidden):
            raise ValueError(
                f"{m} of {d} features are to be selected, but forbid leaves only "
                f"{d - len(self.forbidden)}: lower n_features_to_select, or forbid fewer"
            )
        return m


NO_CONSTRAINTS = Constraints(NONE, NONE)


def resolve(keep: Any, forbid: Any, d: int, names: Any) -> Constraints:
    if keep is None and forbid is None:
        return NO_CONSTRAINTS
    kept, forbidden = (
        indices_of(given, what, d, names) for given, what in ((keep, "keep"), (forbid, "forbid"))
    )
    both = np.intersect1d(kept, forbidden)
    if len(both):
        j = both[0]
        example = f"number {j}" if names is None else repr(str(np.asarray(names[[j]])[0]))
        raise ValueError(
            f"keep and forbid share {len(both)} features, such as {example}: take them out of one"
        )
    return Constraints(kept, forbidden)


def indices_of(given: Any, what: str, d: int, names: Any) -> IntArray:
    """Return the indices of the given features, increasing."""
    values = np.asarray([] if given is None else given)
    if values.ndim != 1:
        raise ValueError(f"{what} must be a list of indices or names; got {given!r}")
    if not len(values):
        return NONE
    if values.dtype.kind in "iu":
        if values.min() < 0 or values.max() >= d:
            wrong = values[(values < 0) | (values >= d)][0]
            raise ValueError(f"{what} must hold indices from 0 to {d - 1}; got {wrong}")
        return np.unique(values).astype(np.int64)
    if not all(isinstance(value, str) for value in values.tolist()):
        raise ValueError(
            f"{what} must hold indices alone or names alone; got {values.tolist()[:5]}"
        )
    if names is None:
        raise ValueError(f"{what} holds names, but the features have none: give indices")
    return _find(list(dict.fromkeys(values.tolist())), what, d, names)


def _find(wanted: list[str], what: str, d: int, names: Any) -> IntArray:
    """Return the indices of the features with these names, increasing."""
    found: dict[str, list[int]] = {name: [] for name in wanted}
    for first in range(0, d, NAMES_AT_ONCE):
        index = np.arange(first, min(first + NAMES_AT_ONCE, d))
        part: AnyArray = np.asarray(names[index], dtype=object)
        for j in np.flatnonzero([name in found for name in part]):
            found[part[j]].append(first + int(j))
    missing = [name for name, index in found.items() if not index]
    if missing:
        more = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise ValueError(f"{what}: no feature is named {missing[0]!r}{more}")
    for name, numbers in found.items():
        if len(numbers) > 1:
            raise ValueError(
                f"{what}: {len(numbers)} features are named {name!r}: give indices, "
                f"such as {numbers[0]}"
            )
    return np.sort([numbers[0] for numbers in found.values()]).astype(np.int64)
