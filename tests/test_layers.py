"""Imports run one way: flows → storage → bigfs, and strictly downward inside each package."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the bottom up. A module imports only what is on a layer below its own. A folder counts as one
# module. Where the parts of a folder lie on different layers, its parts are named one by one.
LAYERS: dict[str, list[set[str]]] = {
    "bigfs": [
        {"types", "cards", "advice", "plugins", "settings"},
        {"validation", "constraints"},
        {"result", "linalg.prox", "rounding"},
        {"engine"},
        {"matrix"},
        {
            "linalg.active_columns",
            "linalg.conjugate_gradients",
            "linalg.descent",
            "linalg.dual_svm",
            "linalg.lanczos",
            "linalg.loess",
            "linalg.sample_kernel",
            "linalg.sparse_gram",
        },
        {"linalg.shifted_cg", "linalg.ridge", "linalg.svm", "graph"},
        {"embedding", "cutting_plane", "coding"},
        {"lasso"},
        {"evaluation"},
        {"selectors"},
        {"plot"},
        {"__main__"},  # the command line by `python -m bigfs`, which names flows as text
    ],
    "storage": [
        {"errors", "lazy"},
        {"fingerprint", "locks"},
        {"atomic"},
        {"versions"},
        {"format", "scaling", "messages", "words"},
        {"downloads", "runs"},
        {"sources"},
        {"write_back", "prune"},
        {"roles"},
        {"staging", "corpus"},
        {"anndata_view"},
        {"opening"},
        {"appending", "graphs", "integrity"},
        {"looking"},
    ],
    "flows": [
        {"messages", "reuse", "cli.signals", "cli.extras"},
        {"evaluation", "use.files", "report.summary"},
        {"use", "report", "tls"},
        {"options"},
        {"job"},
        {"staging", "plan"},
        {"steps", "forecast"},
        {"run"},
        {"comparison", "main_job"},
        {"prefect_flows"},
        {"cli"},
    ],
}
ABOVE = {"bigfs": {"storage", "flows"}, "storage": {"flows"}, "flows": set()}

# The files that may import a library. Zarr: a store, a graph beside it, and the stores that anndata
# writes.
# Prefect: the flows, what they show, and the settings that say whether there is a server.
ENTRY_POINTS = {
    "dask": {"bigfs/engine"},
    "distributed": {"bigfs/engine"},
    "zarr": {
        *("storage/format", "storage/graphs.py"),
        *("storage/sources/anndata", "storage/write_back.py"),
    },
    "prefect": {
        f"flows/{name}.py" for name in ("prefect_flows", "report/artifacts", "cli/servers")
    },
    "spams": {"bigfs/coding"},
}


def folder_of(name: str) -> str:
    """The name by the folders: the folder `storage` is imported as `bigfs.storage`."""
    return re.sub(r"^bigfs\.(storage|flows)\b", r"\1", name)


@cache
def imports(path: Path) -> set[str]:
    """The dotted names that a file imports, also inside its functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {folder_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}:{node.lineno} is a relative import: write the package's name"
            )
            names |= {folder_of(f"{node.module}.{alias.name}") for alias in node.names}
    return names


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer_of(package: str, parts: list[str]) -> tuple[str, int] | None:
    """The name in LAYERS of a module, given by its path in the package, and its layer's number."""
    for height, names in enumerate(LAYERS[package]):
        for name in names:
            if parts[: name.count(".") + 1] == name.split("."):
                return name, height
    return None


@pytest.mark.parametrize("path", [p for package in LAYERS for p in sources(package)], ids=relative)
def test_imports_run_downward(path):
    package, *parts = path.relative_to(ROOT).with_suffix("").parts
    parts = [part for part in parts if part != "__init__"]
    below = layer_of(package, parts)
    # public names from several modules, or none
    package_init = path.name == "__init__.py" and (not parts or below is None)
    assert below or package_init, f"{relative(path)} has no layer: add it to LAYERS"
    for name in imports(path):
        top, *rest = name.split(".")
        assert top not in ABOVE[package], f"{relative(path)} imports {name}, which is above it"
        if top == package and rest and below:
            other = layer_of(package, rest)
            assert other is not None, f"{relative(path)} imports {name}, which has no layer"
            same = other[0] == below[0]
            assert same or other[1] < below[1], (
                f"{relative(path)} imports {name}, which is not below it"
            )


def test_what_a_test_changes_is_a_setting():
    """No test overwrites a constant, but for two of Dask and Typer."""
    overwrites = (
        r'setattr\((?:[^"()]*, *\s)?"(?:[\w.]+\.)?([A-Z][A-Z_0-9]+)"|\w\.([A-Z][A-Z_0-9]+) = '
    )
    found = {
        "".join(names)
        for path in (ROOT / "tests").rglob("*.py")
        for names in re.findall(overwrites, path.read_text(encoding="utf-8"), re.M)
    }
    assert found == {"MEMORY_LIMIT", "MAX_WIDTH"}


def test_every_layer_names_modules_that_exist():
    for package, layers in LAYERS.items():
        for name in set().union(*layers):
            base = (ROOT / package).joinpath(*name.split("."))
            assert base.is_dir() or base.with_suffix(".py").is_file(), (
                f"{package}.{name} does not exist: remove it from LAYERS"
            )


@pytest.mark.parametrize(("library", "entries"), ENTRY_POINTS.items())
def test_each_library_has_its_entry_points(library, entries):
    for package in LAYERS:
        for path in sources(package):
            if any(name.split(".")[0] == library for name in imports(path)):
                assert any(relative(path).startswith(entry) for entry in entries), (
                    f"{relative(path)} imports {library}"
                )


def test_a_worker_that_reads_tiles_loads_no_format():
    code = (
        "import sys, bigfs.storage.corpus; print(*{'pandas', 'pyarrow', 'sklearn', "
        "'matplotlib'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_map_of_the_modules_is_that_of_the_files(page):
    """The map of the architecture names every module, and no page names another."""
    named: dict[str, set[str]] = {package: set() for package in LAYERS}
    package = None
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")[1:3]]
        if len(cells) < 2:
            package = None  # the table ends
        elif cells[0]:
            package = cells[0] if cells[0] in named else None
        if package is not None:
            named[package] |= set(re.findall(r"\w+(?:\.py|/)", line.split("|")[2]))
    for package, names in named.items():
        modules = {
            f"{path.name}/" if path.is_dir() else path.name
            for path in (ROOT / package).iterdir()
            if (path / "__init__.py").exists()
            or (path.suffix == ".py" and not path.name.startswith("__"))
        }
        assert names
        assert names <= modules
        assert page == "CONTRIBUTING.md" or names == modules
