"""Imports run one way: flows → storage → bigfs, and strictly downward inside bigfs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    {"validation"},
    {"result", "prox", "blocks"},
    {"matrix"},
    {"graph", "ridge", "dictionary", "shifted", "master", "elimination", "gathered"},
    {"hypergraph"},
    {"spectral"},
    {"response", "cutting_plane"},
    {"selectors", "splits"},
    {"evaluate"},
]
ONE_DOOR = {"zarr": "storage", "prefect": "flows", "spams": "bigfs/dictionary.py"}


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def sources(package: str) -> list[Path]:
    return [p for p in sorted((ROOT / package).rglob("*.py")) if p.name != "cli.py"]


def room(name: str) -> int | None:
    return next((i for i, rooms in enumerate(LAYERS) if name in rooms), None)


@pytest.mark.parametrize("path", sources("bigfs"), ids=str)
def test_bigfs_imports_run_downward(path):
    own = path.relative_to(ROOT / "bigfs").with_suffix("").parts[0]
    if own == "__init__":
        return
    assert room(own) is not None, f"{path.name} has no layer: add it to LAYERS"
    for name in imports(path):
        parts = name.split(".")
        assert parts[0] not in {"storage", "flows"}
        if parts[0] == "bigfs" and len(parts) > 1 and parts[1] != own:
            assert room(parts[1]) is not None, name
            assert room(parts[1]) < room(own), f"{own} imports {name}, which is not below it"


def test_storage_does_not_know_flows():
    for path in sources("storage"):
        assert not any(name.split(".")[0] == "flows" for name in imports(path)), path


@pytest.mark.parametrize(("library", "door"), ONE_DOOR.items())
def test_each_library_enters_by_one_door(library, door):
    for package in ("bigfs", "storage", "flows"):
        for path in sources(package):
            if any(name.split(".")[0] == library for name in imports(path)):
                assert str(path.relative_to(ROOT)).startswith(door), f"{path} imports {library}"


def test_a_worker_that_reads_tiles_loads_no_format():
    heavy = "import sys, storage.corpus; print(*{'pandas', 'pyarrow', 'sklearn', 'matplotlib'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", heavy], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
