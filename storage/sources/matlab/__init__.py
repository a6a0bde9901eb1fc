"""MATLAB files, which a process of its own reads."""
