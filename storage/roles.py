"""The facts of samples in a corpus besides the labels: groups, batches, weights, times, splits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from bigfs.storage.errors import StoreError
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.storage.sources.anndata import AnnData


class SampleRoles:
    """Samples by roles and splits, which a corpus of ours and one of anndata's read otherwise."""

    uri: str
    sample_names: Any
    feature_names: Any
    is_named: bool  # whether the features have names

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

    def _anndata(self, file: str | None) -> AnnData:
        """Return an AnnData file, or the one of the corpus."""
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

    def obsp(self, name: str, file: str | None = None) -> sp.csr_array:
        """Read a graph of the samples from the AnnData file of this corpus.

        The samples are found by their names, so the graph has the order of the corpus.

        Parameters
        ----------
        name : str
            Name of the graph in `obsp`, such as "connectivities".
        file : str or None, default=None
            The .h5ad file, or the .zarr folder. None takes the one that the corpus was staged from.

        Returns
        -------
        csr_array of shape (n, n)
            The weights, in memory: 12 bytes an edge. The methods on a graph take it as `graph`.

        Raises
        ------
        SourceError
            There is no such graph, it holds distances, or it has other samples than the corpus.
        MemoryLimitError
            The graph does not fit in memory.

        Examples
        --------
        >>> from bigfs import storage
        >>> from bigfs import SparGE
        >>> corpus = storage.open("cells.zarr")  # doctest: +SKIP
        >>> graph = corpus.obsp("connectivities")  # doctest: +SKIP
        >>> SparGE(embedding="lpp", graph=graph).fit(corpus.X)  # doctest: +SKIP
        """
        return self._anndata(file).obsp(name, self.sample_names.tolist())

    def write_var(
        self, selector: Any, file: str | None = None, *, highly_variable: bool = False
    ) -> str:
        """Write the choice of a fitted selector into the AnnData file of this corpus.

        The file gets ``var["bigfs_selected"]``, ``var["bigfs_score"]``, ``var["bigfs_rank"]`` and
        ``uns["bigfs"]``. Nothing else in it changes.

        Parameters
        ----------
        selector : Selector
            A selector that was fitted on `X`, or on a part of its rows.
        file : str or None, default=None
            The .h5ad file, or the .zarr folder that anndata wrote. None takes the one that the
            corpus was staged from.
        highly_variable : bool, default=False
            Whether to write ``var["highly_variable"]`` too, which the tools of scanpy take. Of
            `HighlyVariable` these are all columns that scanpy writes.

        Returns
        -------
        str
            The file.

        Raises
        ------
        SourceError
            The file is missing, is no AnnData of a current version, or has other features.
        ValueError
            The selector was fitted on another number of features.
        """
        from bigfs.storage.write_back import write_selector

        names, d = self.feature_names[:] if self.is_named else None, len(self.feature_names)
        path = self._anndata(file).path
        return write_selector(selector, path, names, d, highly_variable=highly_variable)

    def _require_split(self, split: str) -> None:
        if split not in self.splits:
            raise StoreError(
                f"{self.uri} has no rows of split {split!r}; it has "
                f"{', '.join(self.splits) or 'no split'}"
            )
