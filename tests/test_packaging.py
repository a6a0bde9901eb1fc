"""What a wheel and a citation hold, and what tab completion shows."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import bigfs
import storage
from storage import runs
from storage.format import manifest

ROOT = Path(__file__).parent.parent
PACKAGES = ("bigfs", "storage", "flows")


def setuptools_settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


@pytest.mark.parametrize("package", [bigfs, storage])
def test_dir_lists_every_public_name(package):
    assert set(package.__all__) <= set(dir(package))
    assert not [name for name in dir(package) if name.startswith("_") and not name.startswith("__")]


def test_dir_imports_no_room():
    code = (
        "import sys, bigfs, storage; dir(bigfs), dir(storage); print(*(n for n in sys.modules "
        "if n.startswith(('bigfs.', 'storage.'))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == []


def test_version_is_written_once():
    assert setuptools_settings()["dynamic"]["version"] == {"attr": "bigfs.__version__"}
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == bigfs.__version__
    assert f"## [{bigfs.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


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
