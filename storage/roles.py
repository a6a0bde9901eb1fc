"""The facts of samples in a corpus besides the labels: groups, batches, weights, times, splits."""

from __future__ import annotations

from functools import cached_property

from bigfs.storage.errors import StoreError
from bigfs.types import AnyArray


class SampleRoles:
    """The samples of a corpus by roles and splits. A corpus of ours and one of anndata's read them
    otherwise."""

    uri: str

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the corpus has."""
        raise NotImplementedError

    def _codes(self, role: str) -> AnyArray | None:
        """Return the codes of the groups or batches, or None if no column gives them."""
        raise NotImplementedError

    def _values(self, role: str) -> AnyArray | None:
        """Return the weights or times, or None if no column gives them."""
        raise NotImplementedError

    @cached_property
    def groups(self) -> AnyArray | None:
        """The codes of the groups, which `categories` names. None if no column gives them."""
        return self._codes("group")

    @cached_property
    def batches(self) -> AnyArray | None:
        """The codes of the batches, which `categories` names. None if no column gives them."""
        return self._codes("batch")

    @cached_property
    def sample_weight(self) -> AnyArray | None:
        """The weights of the samples. None if no column gives them."""
        return self._values("sample_weight")

    @cached_property
    def times(self) -> AnyArray | None:
        """The times of the samples, as numbers or as dates in UTC. None if no column gives them."""
        return self._values("time")

    @property
    def has_test_half(self) -> bool:
        """Whether the corpus has both training and test samples.

        Without both, nothing is held out.
        """
        return {"train", "test"} <= set(self.splits)

    def _require_split(self, split: str) -> None:
        if split not in self.splits:
            raise StoreError(
                f"{self.uri} has no rows of split {split!r}; it has "
                f"{', '.join(self.splits) or 'no split'}"
            )
