"""Graphs of the samples: k nearest neighbors by tile, affinities, Laplacians."""

from bigfs.graph.affinities import Components as Components
from bigfs.graph.affinities import Weights as Weights
from bigfs.graph.affinities import affinity as affinity
from bigfs.graph.affinities import components as components
from bigfs.graph.affinities import laplacian as laplacian
from bigfs.graph.edges import Bridges as Bridges
from bigfs.graph.edges import Metric as Metric
from bigfs.graph.edges import Neighbors as Neighbors
from bigfs.graph.neighbors import knn as knn
from bigfs.graph.neighbors import stream_knn as stream_knn
from bigfs.graph.spanning_tree import find_bridges as find_bridges
from bigfs.graph.spanning_tree import with_bridges as with_bridges
