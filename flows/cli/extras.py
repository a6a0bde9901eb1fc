"""What `pip install bigfs` leaves out: the packages of the extra `flows`."""

from __future__ import annotations

from importlib.util import find_spec

from bigfs.advice import install_command

# what runs, their reports and the server import
PACKAGES = ("prefect", "jinja2", "matplotlib")


def require_flows(command: str) -> None:
    """Refuse a command whose packages are not installed, before any work."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ValueError(
            f"{command} needs the extra flows, of which {', '.join(missing)} is not installed: "
            + install_command("flows")
        )
