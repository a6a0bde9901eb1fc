"""The cutting plane of SparGE: its loop, the restricted master, the gathered columns, the
elimination.
"""
