"""The cutting plane of SparGE.

The modules are the loop, the restricted master and its solver, the gathered columns, and the
elimination.
"""
