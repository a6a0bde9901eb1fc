"""The optional packages, of the extras `report` and `flows`."""

from __future__ import annotations

from importlib.util import find_spec

from bigfs.advice import install_command

PACKAGES = {"report": ("jinja2", "matplotlib"), "flows": ("prefect",)}


def require_extra(extra: str, command: str) -> None:
    """Refuse a command whose packages are not installed, before any work."""
    if missing := [name for name in PACKAGES[extra] if find_spec(name) is None]:
        raise ValueError(
            f"{command} needs the extra {extra}, of which {', '.join(missing)} is not installed: "
            + install_command(extra)
        )
