"""The matrix of samples: held as tiles, worked on tile by tile, never loaded as a whole."""

from bigfs.matrix.centered import Centered
from bigfs.matrix.matrix import Matrix
from bigfs.matrix.statistics import ClassStats, Stats
from bigfs.matrix.tiles import Block

__all__ = ["Block", "Centered", "ClassStats", "Matrix", "Stats"]
