"""What a wheel and a citation hold, and what tab completion shows."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import bigfs
from bigfs import storage
from bigfs.advice import install_command
from bigfs.flows.cli.extras import PACKAGES as PACKAGES_OF
from bigfs.selectors.registry import MODULES
from bigfs.storage.format import manifest
from bigfs.storage.runs import runs
from tests.helpers.listing import names_in

ROOT = Path(__file__).parent.parent
PACKAGES = ("bigfs", "storage", "flows")


def setuptools_settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


@pytest.mark.parametrize("package", [bigfs, storage])
def test_dir_lists_every_public_name(package):
    assert set(package.__all__) <= set(dir(package))
    assert not [name for name in dir(package) if name.startswith("_") and not name.startswith("__")]


def test_type_checkers_see_the_names_of_the_registry():
    source = Path(bigfs.selectors.__file__).read_text()
    seen = {
        alias.name: node.module.removeprefix("bigfs.selectors.")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert {name: seen.get(name) for name in MODULES} == MODULES
    assert set(MODULES) <= set(bigfs.__all__) & set(bigfs.selectors.__all__)


def test_dir_imports_no_room_but_the_list_of_methods():
    code = (
        "import sys, bigfs; from bigfs import storage; dir(bigfs), dir(storage); "
        "print(*(n for n in sys.modules if n.startswith('bigfs.')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = {"bigfs.plugins", "bigfs.storage", "bigfs.selectors", "bigfs.selectors.registry"}
    assert set(answer.stdout.split()) == modules


def test_version_is_written_once():
    assert setuptools_settings()["dynamic"]["version"] == {"attr": "bigfs.__version__"}
    released = bigfs.__version__.split(".dev")[0]
    files = [f for folder in PACKAGES for f in (ROOT / folder).rglob("*.py")]
    files += [ROOT / name for name in ("docs/conf.py", "README.md", "CITATION.cff")]
    written = [f for f in (*files, *(ROOT / "deploy").rglob("*.yaml")) if released in f.read_text()]
    assert written == [ROOT / "bigfs" / "__init__.py"]
    assert f"## [{released}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("package", PACKAGES)
def test_package_ships_its_type_hints(package):
    assert (ROOT / package / "py.typed").read_bytes() == b""
    assert "py.typed" in setuptools_settings()["package-data"]["*"]


def test_citation_names_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    papers = citation["references"]
    assert len({paper["doi"] for paper in papers}) == 5
    for paper in papers:
        assert paper["title"]
        assert paper["journal"]
        assert 2015 <= paper["year"] <= 2018
        assert all(author["given-names"] and author["family-names"] for author in paper["authors"])


def test_changelog_gives_the_versions_of_both_formats():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest = changelog.split("| --- | --- | --- |\n")[1].splitlines()[0]
    assert newest.endswith(f"| {manifest.VERSION} | {runs.VERSION} |")


WITHOUT_FLOWS = """
import sys

sys.modules |= dict.fromkeys({packages!r})  # as if they were not installed
import numpy as np

import bigfs
from bigfs import storage
from bigfs.advice import install_command
from bigfs.flows.cli import main

X = np.eye(4)[[0, 0, 1, 1]]
print(bigfs.ANOVA(n_features_to_select=2).fit(X, [0, 0, 1, 1]).get_support(indices=True))
print(storage.open(storage.stage("synthetic:newswire?rows=40", "python.zarr")).X.shape[0])
for command in {commands!r}:
    sys.argv = ["bigfs", *command.split()]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


@pytest.mark.slow
def test_estimators_stores_and_commands_on_data_need_no_prefect(tmp_path):
    """Without the extra `report`, the other commands say in one line what to install."""
    commands = ["stage synthetic:newswire?rows=40 line.zarr --workers 0 --json", "methods"]
    refused = {
        "run": "line.zarr --out run",
        "compare": "line.zarr --out run --methods anova --sizes 5",
        "serve": "line.zarr",
        "select": "line.zarr --out run",
        "evaluate": "run",
    }
    commands += [f"{name} {rest}" for name, rest in refused.items()]
    code = WITHOUT_FLOWS.format(packages=sum(PACKAGES_OF.values(), ()), commands=commands)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = answer.stdout.splitlines()
    assert lines[:2] == ["[0 1]", "40"]
    assert lines[-len(refused) - 1 :] == ["0", *"1" * len(refused)]
    missing = ", ".join(PACKAGES_OF["report"])
    assert answer.stderr.splitlines() == [
        f"bigfs: bigfs {name} needs the extra report, of which {missing} is not installed: "
        + install_command("report")
        for name in refused
    ]
    assert names_in(tmp_path) == ["line.zarr", "python.zarr"]


def test_extra_of_the_flows_names_what_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {
        extra: {re.split(r"[\[<>=]", line)[0] for line in extras[extra]} for extra in PACKAGES_OF
    }
    assert names["report"] == set(PACKAGES_OF["report"])
    assert names["flows"] == names["report"] | {*PACKAGES_OF["flows"], "bokeh"}
    assert set(extras["report"]) <= set(extras["flows"])  # with the same bounds
    assert not names["flows"] & {re.split(r"[\[<>=]", line)[0] for line in project["dependencies"]}
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r'"\.\[(\w+,)*flows(,\w+)*\]"', makefile)


def test_oldest_libraries_are_the_lower_bounds_and_the_pins_keep_them():
    """`make oldest` tries a lower bound of every package that a user may install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("report", "flows", "jgsc", "hdf5", "s3", "export", "ml")
    groups = [project["dependencies"], *(project["optional-dependencies"][name] for name in extras)]
    requirements = [Requirement(line) for lines in groups for line in lines]
    bounds = {
        requirement.name: [each.version for each in requirement.specifier if each.operator == ">="]
        for requirement in requirements
    }
    assert not [name for name, versions in bounds.items() if len(versions) != 1]
    tried = subprocess.run(
        ["make", "--silent", "--no-print-directory", "lower-bounds"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert tried == [f"{name}=={versions[0]}" for name, versions in bounds.items()]
    pinned = (ROOT / "deploy" / "constraints.txt").read_text().lower().split()
    pins = dict(line.split("==") for line in pinned)
    for requirement in requirements:
        assert requirement.specifier.contains(pins[requirement.name]), requirement


def test_the_conda_recipe_requires_what_the_wheel_does():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "deploy" / "conda" / "recipe.yaml").read_text())
    names = {"dask": "dask-core"}  # conda's `dask` brings the dashboard
    wheel = [Requirement(line) for line in project["dependencies"]]
    assert recipe["requirements"]["run"] == [
        f"python {project['requires-python']}",
        *(f"{names.get(each.name, each.name)} {each.specifier}" for each in wheel),
    ]
    [command] = [f"{name} = {to}" for name, to in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == [command]
    assert recipe["about"]["summary"] == project["description"]


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_starts_what_the_repository_has(path):
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.M))
    targets = {name for names in targets for name in names.split()}
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        assert job["timeout-minutes"]
        lines = "\n".join(step.get("run", "") for step in job["steps"])
        assert set(re.findall(r"\bmake ([\w-]+)", lines)) <= targets
        assert all((ROOT / file).exists() for file in re.findall(r"(?<!\S)\.ci/[\w-]+", lines))


def test_the_workflows_test_every_supported_version_and_the_oldest_libraries():
    tests = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    tried = set(tests["unpinned"]["strategy"]["matrix"]["python"])
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    stated = set(re.findall(r":: Python :: (3\.\d+)", "\n".join(classifiers)))
    assert stated <= tried
    assert {"check", "pinned", "oldest"} <= set(tests)


def test_packages_are_those_of_the_folders():
    settings = setuptools_settings()
    found = {
        ".".join([name, *file.parent.relative_to(ROOT / folder).parts])
        for name, folder in settings["package-dir"].items()
        for file in (ROOT / folder).rglob("__init__.py")
    }
    assert settings["packages"] == sorted(found)


def test_prefect_and_a_folder_of_the_user_hide_no_package(tmp_path):
    """Prefect's process for hooks has a storage.py of its own first in its path."""
    for name in ("storage", "flows"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not of bigfs')")
    code = "import sys; sys.path.insert(0, '.'); import bigfs.flows.prefect_flows"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
