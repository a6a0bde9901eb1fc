"""The names of a store's features, read as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from bigfs.types import AnyArray
from storage.format.tiles import StoreRef


class FeatureNames(Sequence[str]):
    """The d feature names, read as they are asked for, or the column numbers without names."""

    def __init__(self, store: StoreRef, size: int, named: bool) -> None:
        self.store, self.size, self.named = store, size, named

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | AnyArray | Sequence[int]) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            if not -self.size <= index < self.size:
                raise IndexError(f"feature {index} is out of range: there are {self.size}")
            return str(self[np.array([int(index) % self.size])][0])
        index = np.arange(self.size)[index] if isinstance(index, slice) else np.asarray(index)
        index = np.flatnonzero(index) if index.dtype == bool else index
        if not self.named:
            return index.astype(np.str_).astype(object)
        chunk = self.store.chunk("var/_index")
        names = np.empty(len(index), dtype=object)
        for c in np.unique(index // chunk):
            here = np.flatnonzero(index // chunk == c)
            block = self.store.read(
                "var/_index", int(c) * chunk, min((int(c) + 1) * chunk, self.size)
            )
            names[here] = block[index[here] - c * chunk].astype(object)
        return names

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.asarray(self[:], dtype=dtype)
