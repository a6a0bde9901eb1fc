"""A corpus that was staged: its matrix, labels and names, read where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property, reduce
from operator import iadd
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigfs.cards import card, shape_text
from bigfs.matrix import ClassStats, Matrix, Stats
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format.manifest import Manifest, Segment
from bigfs.storage.format.tiles import ColumnTile, FeatureNames, RowTile, SampleNames
from bigfs.storage.format.verified import StoreRef
from bigfs.storage.roles import SampleRoles
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from bigfs.storage.sources.anndata import AnnData

SHOWN = 8  # names of classes in a card


class Corpus(SampleRoles):
    """Read a store, or some of its segments.

    `bigfs.storage.open` makes it. Its arrays are read when they are first asked for.

    Parameters
    ----------
    uri : str
        Path or URL of the store.
    manifest : Manifest
        Metadata of the store.
    segments : sequence of Segment
        The segments to read, in row order.

    See Also
    --------
    open : Open a store as a corpus.
    bigfs.Matrix : The samples of a corpus.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> corpus = storage.open(uri)
    >>> corpus.X.shape == (len(corpus.y), len(corpus.feature_names))
    True
    >>> corpus.splits
    ('train', 'test')
    """

    def __init__(self, uri: str, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self.uri, self.manifest, self.segments = uri, manifest, tuple(segments)
        self.store, self.is_named = StoreRef(uri, manifest.content), manifest.named[1]

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"<Corpus {self.uri}: {n} × {d}, {sum(s.nnz for s in self.segments)} non-zeros>"

    def _repr_html_(self) -> str:
        """Return a card for notebooks. It reads the names of the classes, and no sample."""
        (n, d), nnz = self.X.shape, sum(s.nnz for s in self.segments)
        names = self.class_names
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        return card(
            "Corpus",
            {
                "store": self.uri,
                "source": self.manifest.source["uri"],
                "shape": shape_text((n, d)),
                "non-zeros": nnz,
                "density": f"{nnz / max(n * d, 1):.3%}",
                "target": self.manifest.target or "none",
                "classes": f"{len(names):,}: {', '.join(names[:SHOWN])}{more}" if names else None,
                "rows": ", ".join(f"{size:,} {split}" for split, size in self.split_sizes.items())
                or None,
                "feature names": self.manifest.named[1],
                **self.roles,
            },
        )

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the corpus has, in row order."""
        return tuple(dict.fromkeys(s.split for s in self.segments if s.split))

    @property
    def split_sizes(self) -> dict[str, int]:
        """The number of samples of each split."""
        return {
            split: sum(s.rows for s in self.segments if s.split == split) for split in self.splits
        }

    def part(self, split: str) -> Corpus:
        """Take the samples of one split.

        Parameters
        ----------
        split : {"train", "test"}
            Name of the split.

        Returns
        -------
        Corpus
            The corpus of these samples, in the same store.

        Raises
        ------
        StoreError
            The corpus has no samples of this split.
        """
        self._require_split(split)
        chosen = [s for s in self.segments if s.split == split]
        return Corpus(self.uri, self.manifest, chosen)

    @cached_property
    def X(self) -> Matrix:
        """The samples, n × d, with both layouts and known statistics."""
        n, d = sum(s.rows for s in self.segments), self.manifest.shape[1]
        return Matrix(
            (n, d),
            rows=self._row_tiles(),
            columns=self._column_tiles(),
            stats=self._stats,
            class_stats=self._class_stats,
            feature_names=self.feature_names if self.is_named else None,
            meta=sp.csr_array((0, d), dtype=np.float32),
            batches=self.batches,
        )

    def _row_tiles(self) -> list[RowTile]:
        bounds = np.array(self.manifest.row_bounds)
        cuts, start = [], 0
        for s in self.segments:
            inside = bounds[(bounds >= s.start) & (bounds <= s.stop)].tolist()
            for a, b in zip(inside, inside[1:], strict=False):
                cuts.append((a, start, start + b - a, self.manifest.shape[1]))
                start += b - a
        return [
            RowTile(self.store, *cut, place=(i + 0.5) / len(cuts)) for i, cut in enumerate(cuts)
        ]

    def _column_tiles(self) -> list[ColumnTile]:
        names = tuple(s.name for s in self.segments)
        lengths = tuple(s.rows for s in self.segments)
        bounds = self.manifest.column_bounds
        return [
            ColumnTile(self.store, names, lengths, a, b, place=(i + 0.5) / (len(bounds) - 1))
            for i, (a, b) in enumerate(zip(bounds, bounds[1:], strict=False))
        ]

    def _stats(self) -> Stats:
        """Add up the statistics of the segments, in their order."""
        names = [s.name for s in self.segments]
        # one array at a time, in place, because the features may be many
        counts = reduce(
            iadd,
            (
                np.diff(self.store.read(f"uns/columns/{name}/indptr")).astype(np.int64, copy=False)
                for name in names
            ),
        )
        sums, squares = (
            reduce(iadd, (self.store.read(f"uns/statistics/{name}/{part}") for name in names))
            for part in ("sums", "squares")
        )
        return Stats(sums, squares, counts)

    def _class_stats(
        self, codes: AnyArray, start: int = 0, stop: int | None = None
    ) -> ClassStats | None:
        """Add up statistics per class of columns, if `codes` is y and every segment has some."""
        if self.manifest.target != "class" or not np.array_equal(codes, self.y):
            return None
        d, c = self.manifest.shape[1], len(self.class_names)
        stop = d if stop is None else stop
        shape = stop - start, c
        documents = manifests.checksums_of(self.uri, self.manifest.content).documents
        stats = ClassStats(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64))
        for path in (f"uns/statistics/{s.name}/classes" for s in self.segments):
            if f"{path}/zarr.json" not in documents:
                return None
            for name, total in zip(("sums", "squares", "counts"), stats[:3], strict=True):
                # a segment holds the classes that there were when it was written
                width = self.store.size(f"{path}/{name}") // d
                part = self.store.read(f"{path}/{name}", start * width, stop * width)
                total[:, :width] += part.reshape(-1, width)
        return stats

    @cached_property
    def y(self) -> Any:
        """Class codes, real targets or label sets, one per sample.

        Codes are int32, and −1 where a sample is unlabeled. Sets are a csr array of ones. Several
        real targets per sample are a matrix, n × c. NaN is no real target.
        """
        kind = self.manifest.target
        if kind == "class":
            codes = self._rows("obs/label/codes").astype(np.int32, copy=False)
            is_right = not len(codes) or -1 <= codes.min() <= codes.max() < len(self.class_names)
            self.store.require(bool(is_right), "obs/label/codes")
            return codes
        if kind == "real":
            return self._rows("obs/label")
        if kind in manifests.MATRICES:
            (path, _), n = manifests.MATRICES[kind], self.manifest.shape[0]
            parts = (self.store.read(f"{path}/{part}") for part in ("data", "indices", "indptr"))
            whole = sp.csr_array(tuple(parts), shape=(n, len(self.class_names)))
            sets = sp.vstack([whole[s.start : s.stop] for s in self.segments], format="csr")
            return sets if kind == "multilabel" else sets.toarray()
        return np.full(self.X.shape[0], -1, dtype=np.int32)

    @cached_property
    def class_names(self) -> list[str]:
        """The names of the classes by their codes, or of several real targets. Empty without."""
        kind = self.manifest.target
        if kind in (None, "real"):
            return []
        path = "obs/label/categories" if kind == "class" else "uns/class_names"
        return [str(name) for name in self.store.read(path)]

    @cached_property
    def split(self) -> AnyArray | None:
        """The split per sample, "train" or "test". None if the source has no split."""
        if not self.splits:
            return None
        return np.repeat([str(s.split) for s in self.segments], [s.rows for s in self.segments])

    @property
    def roles(self) -> dict[str, str]:
        """The column of the source that gives each "group", "batch", "sample_weight" or "time"."""
        return dict(self.manifest.source.get("roles", {}))

    def categories(self, role: str) -> list[str]:
        """Return the names of all groups or batches by their codes.

        Parameters
        ----------
        role : {"group", "batch"}
            What to name.

        Returns
        -------
        list of str
            The names. Empty if no column gives them.
        """
        return self.store.read(f"obs/{role}/categories").tolist() if role in self.roles else []

    def _codes(self, role: str) -> AnyArray | None:
        if role not in self.roles:
            return None
        return self._rows(f"obs/{role}/codes").astype(np.int32, copy=False)

    def _values(self, role: str) -> AnyArray | None:
        if role not in self.roles:
            return None
        values = self._rows(f"obs/{role}")
        return values if values.dtype.kind == "f" else values.view("datetime64[us]")

    @cached_property
    def sample_names(self) -> SampleNames:
        """The n sample names, read as they are asked for. Without names, the row numbers."""
        ranges = [(s.start, s.stop) for s in self.segments]
        return SampleNames(self.store, "obs/_index", ranges, self.manifest.named[0])

    @cached_property
    def feature_names(self) -> FeatureNames:
        """The d feature names, read as they are asked for. Without names, the column numbers."""
        return FeatureNames(self.store, self.manifest.shape[1], self.manifest.named[1])

    def _rows(self, path: str) -> AnyArray:
        parts = [self.store.read(path, s.start, s.stop) for s in self.segments]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _anndata(self, file: str | None) -> AnnData:
        from bigfs.storage.sources.anndata import AnnData

        return AnnData(str(file or self.manifest.source["uri"].partition("?")[0]))

    @property
    def spec(self) -> dict[str, Any]:
        """Description of the store as plain data.

        It holds the shape, the number of non-zeros, the target, the segments, the source, the
        settings, the key, the content hash and the version. "fingerprint", "sample_shape" and
        "planted" come from the source.
        """
        metadata = {k: v for k, v in asdict(self.manifest).items() if not k.endswith("bounds")}
        metadata["sample_shape"] = self.manifest.source["sample_shape"]
        metadata["planted"] = self.manifest.source["planted"]
        metadata["fingerprint"] = self.manifest.source["fingerprint"]
        return metadata
