"""The cutting plane of SparGE.

The modules are the loop, the restricted master and its solvers, the gathered columns, and the
elimination.
"""
