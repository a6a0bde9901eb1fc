"""The documentation keeps its promises: commands are documented, pages are reachable, links lead
somewhere.
"""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest
import typer

import bigfs
from bigfs import storage
from bigfs.flows.cli.app import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    p
    for p in DOCS.rglob("*.md")
    if not {"_build", "auto_examples", "generated"} & set(p.relative_to(DOCS).parts)
)
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.S | re.M)


def toctree(page):
    """The pages that the toctrees of a page name."""
    entries = [
        line.strip()
        for block in blocks(page.read_text(), r"\{toctree\}")
        for line in block.splitlines()
    ]
    return [page.parent / f"{entry}.md" for entry in entries if entry and not entry.startswith(":")]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_parameter_has_help(name):
    command = COMMANDS[name]
    assert command.help
    undocumented = [
        p.name for p in command.params if p.name not in ("help", "as_json") and not p.help
    ]
    assert not undocumented


def test_command_line_reference_holds_every_option():
    sys.path.insert(0, str(DOCS))
    try:
        from command_line import lines_of
    finally:
        sys.path.remove(str(DOCS))
    for name, command in COMMANDS.items():
        text = "\n".join(lines_of(name, command))
        assert all(
            option in text for p in command.params for option in p.opts if option.startswith("--")
        ), name


def test_every_page_is_reachable_from_the_index():
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or "auto_examples" in page.parts:
            continue
        assert page.exists(), page
        reached.add(page)
        waiting += toctree(page)
    assert reached == set(PAGES)


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "benchmarks/RESULTS.md", *PAGES],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target and "auto_examples" not in target:
            assert (page.parent / target).exists(), target


NAMING = [
    ROOT / "SECURITY.md",
    *(p for p in (ROOT / "deploy").rglob("*") if p.is_file()),
    *(p for name in ("bigfs", "storage", "flows") for p in (ROOT / name).rglob("*.py")),
]


def test_pages_that_files_name_are_there():
    for file in NAMING:
        for page in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text()):
            assert (ROOT / page).is_file(), f"{file} names {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_parse(page):
    for block in blocks(page.read_text(), "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_programs_fit_beside_both_columns(page):
    """A block on a screen of 1280 pixels shows 88 characters of a line. A URL is not cut."""
    text = page.read_text()
    lines = [line for block in blocks(text, "python") for line in block.splitlines()]
    shell = [line for block in blocks(text, "(?:bash|console)?") for line in block.splitlines()]
    lines += [line for line in shell if re.match(r"(\$ )?bigfs ", line) and "'" not in line]
    assert not [line for line in lines if len(line) > 88]


def test_reference_holds_every_public_name():
    reference = "".join(
        (DOCS / "reference" / name).read_text()
        for name in ("selectors.md", "corpora.md", "other.md")
    )
    listed = set(re.findall(r"^   ([\w.]+)$", reference, flags=re.M))
    pictures = {f"plot.{name}" for name in bigfs.plot.__all__}
    assert {*bigfs.__all__, *storage.__all__, *pictures} <= listed


def test_gallery_has_examples_with_a_title_and_a_picture():
    examples = sorted((ROOT / "examples").glob("*.py"))
    assert len(examples) >= 6
    for example in examples:
        text = example.read_text()
        assert re.match(r'"""\n.+\n=+\n', text), example.name
        assert "plt.show()" in text, example.name
        compile(text, example, "exec")


def test_every_measured_constant_exists():
    rows = re.findall(r"^\| `([\w.]+)` \|", (DOCS / "measured" / "constants.md").read_text(), re.M)
    assert len(rows) >= 20
    for name in rows:
        module, *attributes = re.match(r"([a-z_.]+)\.([A-Z]\w+)(?:\.(\w+))?$", name).groups()
        value = importlib.import_module(module)
        for attribute in filter(None, attributes):
            value = getattr(value, attribute)
        assert isinstance(getattr(value, "value", value), int | float), name


def test_every_constant_that_the_code_calls_measured_has_a_row():
    page = (DOCS / "measured" / "constants.md").read_text()
    stated = (
        r"^(?:# .*\n)*# .*\(measured\).*\n(?:# .*\n)*([A-Z_]+)\b.* = |^([A-Z_]+) = .*\(measured\)"
    )
    for folder in ("bigfs", "storage", "flows"):
        for path in (ROOT / folder).rglob("*.py"):
            for names in re.findall(stated, path.read_text(), re.M):
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                assert f"`{module}.{''.join(names)}`" in page


SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
UNITS = {"MiB": 2**20, "ns": 1e-9, "µs": 1e-6, "%": 0.01}


def test_the_page_has_the_values_of_the_constants():
    page = (DOCS / "measured" / "constants.md").read_text()
    power_of_ten = r"10(?=[⁻⁰¹²³⁴-⁹])|([\d.,]+)(?:·10)?"
    rows = re.findall(
        rf"^\| `([\w.]+)`[^|]*\| (?:{power_of_ten})([⁻⁰¹²³⁴-⁹]*) ?([^\s,|]*)", page, re.M
    )
    assert len(rows) >= 30
    for name, digits, power, unit in rows:
        module, *attributes = re.match(r"([a-z_.]+)\.([A-Z]\w+)(?:\.(\w+))?$", name).groups()
        value = importlib.import_module(module)
        for attribute in filter(None, attributes):
            value = getattr(value, attribute)
        shown = float(digits.rstrip(",").replace(",", "") or 1) * UNITS.get(unit, 1)
        shown *= 10.0 ** int(power.translate(SUPERSCRIPTS) or 0)
        assert getattr(value, "value", value) == pytest.approx(shown), name
