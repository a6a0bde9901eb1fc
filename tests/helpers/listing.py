"""What a folder holds."""

import os


def names_in(folder="."):
    """Sorted names of all in a folder, without lock files, which stay."""
    return sorted(name for name in os.listdir(folder) if not is_lock(name))


def is_lock(name):
    return name.startswith(".") and name.endswith(".lock")
