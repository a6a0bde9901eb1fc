"""Generated corpora: text and images."""
