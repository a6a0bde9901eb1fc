"""The cutting plane of SparGE: the loop, the restricted master, gathered columns, elimination."""
