"""The approximate graph of cosine neighbors: by a sample of the rows and sketches of the rest."""
