"""What README and the pages say of the program is so: commands, options, methods, names, keywords,
defaults, and the lists of formats, metrics, statuses and extras.
"""

import ast
import importlib
import inspect
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer

import bigfs
from bigfs import storage
from bigfs.embedding.spectral import DEFAULT_WIDTH
from bigfs.engine.budget import IDLE
from bigfs.engine.watchdog import STANDSTILL_SECONDS
from bigfs.evaluation.metrics import METRICS
from bigfs.evaluation.splits import MOST_TRAINING
from bigfs.flows.cli.app import app
from bigfs.flows.evaluation.controls import DRAWS
from bigfs.flows.options import ClusterOptions, SourceOptions
from bigfs.flows.run import FIRST_WAIT
from bigfs.graph.approximate.sample import N_MEASURED
from bigfs.result import Status
from bigfs.selectors import METHODS
from bigfs.selectors.registry import canonical_name
from bigfs.storage.format.manifest import CHUNK
from bigfs.storage.sources import FORMATS
from bigfs.storage.sources.tables.kinds import FEW, MOST
from bigfs.storage.staging.build import DEFAULT_LIMIT, MATRIX_BASE, TEXT_BASE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = {"_build", "auto_examples", "generated"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in DOCS.rglob("*.md") if not MADE & set(p.relative_to(DOCS).parts)),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # it is a group
OPTIONS = {
    name: {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    | {"--help", "-h", "--help-all"}
    for name, command in COMMANDS.items()
}
# of the programs that pages start beside bigfs, and of the modules of benchmarks
FOREIGN = re.compile(
    r"^\W*(?:\w+=\S+ )*(?:prefect|dask|pip|docker|podman|python|git|make|kubectl)\b"
)
CODE = {".py", ".yaml", ".json", ".sbatch"}
LONG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def relative(path):
    return str(path.relative_to(ROOT))


def of_each_page(test):
    return pytest.mark.parametrize("page", PAGES, ids=relative)(test)


def fences(text):
    """Each fenced block with its language."""
    return re.findall(r"^ *```([^\n]*)\n(.*?)^ *```", text, flags=re.S | re.M)


def inline(text):
    """Each piece of code inside a line, without the fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M))


def commands_of(text):
    """The words of each line that starts bigfs, in blocks and inside lines."""
    lines = [line for _, block in fences(text) for line in block.replace("\\\n", " ").splitlines()]
    for line in (*lines, *inline(text)):
        if found := re.match(r"(?:\$ |[A-Z_]+=\S+ )*bigfs ([a-z]+\b.*)", line.strip()):
            yield shlex.split(found[1].replace("…", ""), comments=True)


@of_each_page
def test_every_command_and_each_of_its_options_exists(page):
    for command, *words in commands_of(page.read_text()):
        assert command in COMMANDS, command
        given = {re.split("[=/]", word)[0] for word in words if re.match("--?[a-z]", word)}
        assert given <= OPTIONS[command], (command, given - OPTIONS[command])


@of_each_page
def test_every_option_exists(page):
    text = page.read_text()
    lines = [line for _, block in fences(text) for line in block.splitlines()]
    known = set().union(*OPTIONS.values(), ["--version", "--install-completion"])
    codes = [*lines, *inline(text)]
    foreign = {o for code in codes if FOREIGN.match(code) for o in LONG.findall(code)}
    for code in codes:
        assert set(LONG.findall(code)) <= known | foreign, code


@of_each_page
def test_every_method_exists(page):
    for _, *words in commands_of(page.read_text()):
        for option, value in zip(words, words[1:], strict=False):
            if option in ("--method", "-m", "--methods", "--against"):
                for name in value.split(","):
                    assert canonical_name(name) in METHODS, name


def python_of(path):
    """The Python of a page's blocks, or of an example."""
    if path.suffix == ".py":
        return [path.read_text()]
    return [block for language, block in fences(path.read_text()) if language.strip() == "python"]


def reference():
    """The names that the reference lists, each with its full path."""
    names = set()
    for page in (DOCS / "reference").glob("*.md"):
        module = "bigfs"
        for line in page.read_text().splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"   ([A-Za-z][\w.]*)$", line):
                names.add(f"{module}.{found[1]}")
            elif line.startswith("`"):
                last = ""
                for name in re.findall(r"`([\w.]+)`", line):
                    last = name if not name.startswith(".") else last.rpartition(".")[0] + name
                    names.add(last)
    return names


REFERENCE = reference()
PUBLIC = {
    *REFERENCE,
    *(f"bigfs.{name}" for name in (*bigfs.__all__, "__version__", "plot", "storage")),
}


def names_of(tree):
    """The full names that a program takes of bigfs: what it imports, and attributes of modules."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "bigfs":
                    modules[alias.asname or "bigfs"] = alias.name if alias.asname else "bigfs"
                    yield alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bigfs":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if inspect.ismodule(resolve(full)):
                    modules[alias.asname or alias.name] = full
                yield full
    modules.setdefault("bigfs", "bigfs")
    modules.setdefault("storage", "bigfs.storage")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            first, _, rest = text.partition(".")
            if first in modules and re.fullmatch(r"[\w.]+", text):
                yield f"{modules[first]}.{rest}"


def resolve(name):
    """The object of a full name, or None."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            if not hasattr(value, part):
                return None
            value = getattr(value, part)
        return value
    return None


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=relative)
def test_programs_take_public_names_only(path):
    """Public is what the reference lists. A plug-in's file takes what its recipe names."""
    for block in python_of(path):
        for name in names_of(ast.parse(block)):
            parents = {name.rsplit(".", n)[0] for n in range(name.count(".") + 1)}
            assert parents & PUBLIC or any(p.startswith(f"{name}.") for p in PUBLIC), name


# what Prefect is told of, by name
EVENTS = {"bigfs.selection.changed", "bigfs.run.DIRECTORY", "bigfs.source"}


@of_each_page
def test_every_dotted_name_exists(page):
    for code in inline(page.read_text()):
        if re.fullmatch(r"(bigfs|benchmarks|tests)(\.(?!py\b)\w+)+(\(\))?", code):
            assert code in EVENTS or resolve(code.removesuffix("()")) is not None, code


def public_callable(name):
    """The class or function that a page means by a name."""
    name = name.removeprefix("bigfs.")
    if name.startswith("storage."):
        return getattr(storage, name.removeprefix("storage."), None)
    return getattr(bigfs, name, None) if name in bigfs.__all__ else None


@of_each_page
def test_every_keyword_exists(page):
    for code in (*python_of(page), *inline(page.read_text())):
        try:
            tree = ast.parse(code)
        except SyntaxError:
            continue  # code in a line is not always Python
        for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
            target = public_callable(ast.unparse(call.func))
            if target is not None and callable(target):
                takes = inspect.signature(target).parameters
                if not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
                    unknown = {k.arg for k in call.keywords if k.arg} - set(takes)
                    assert not unknown, (code, unknown)


def defaults():
    """The defaults of each parameter's name, over the public classes and functions."""
    values = {}
    for name in [n for n in bigfs.__all__ if callable(getattr(bigfs, n))]:
        for key, parameter in inspect.signature(getattr(bigfs, name)).parameters.items():
            if parameter.default is not parameter.empty:
                values.setdefault(key, []).append(parameter.default)
    return values


DEFAULTS = defaults()


@of_each_page
def test_every_default_is_the_one_of_the_program(page):
    """`name=value`, the default, and so on, of some public class."""
    text = page.read_text()
    stated = [
        *re.findall(r"`(?:\w+\()?(\w+)=([^`=]+?)\)?`,? \(?(?:is )?the default\b", text),
        *re.findall(r"[Tt]he default(?: is)?,? `(?:\w+\()?(\w+)=([^`=]+?)\)?`", text),
    ]
    for name, value in stated:
        if name in DEFAULTS:
            assert ast.literal_eval(value) in DEFAULTS[name], (name, value)


STATED = [  # a page, what it says of a value, and the value
    ("faq", "`--memory-limit` ({:.0f} GB by default)", ClusterOptions().memory_limit[:-2]),
    ("faq", "The libraries take up to {:.0f} MB of it", IDLE / 1e6),
    ("guide/clusters", "at least the {:.0f} MB that its libraries", IDLE / 1e6),
    ("guide/clusters", "nothing runs for {:.0f} s", STANDSTILL_SECONDS.value),
    ("guide/evaluate", "| none; {:.0f} |", DRAWS),
    ("guide/evaluate", "are more than {:.0f} million, a part", MOST_TRAINING.value / 1e6),
    ("guide/graphs", "{:.0f} sampled rows set", N_MEASURED),
    ("guide/graphs", "The default width is {:.0f}", DEFAULT_WIDTH),
    ("guide/scheduled", "after about {:.0f}, 10, 20 and 40 s", FIRST_WAIT.value),
    ("guide/sources", "texts of at most {:.0f} values", FEW),
    ("guide/sources", "and at most {:,.0f} |", MOST),
    ("guide/store", "cluster, or {:.0f} MB", DEFAULT_LIMIT[:-2]),
    ("guide/store", "{:.0f} MB of it are for", MATRIX_BASE / 1e6),
    ("guide/store", "({:.0f} MB for text)", TEXT_BASE / 1e6),
    ("guide/store", "A chunk holds {:,.0f} values", CHUNK),
    ("methods/smr", "or after {:.0f} rounds", bigfs.SMR().max_iter),
    ("methods/sparge", "so the default is {:.0f}.", bigfs.SparGE().gamma),
    ("methods/srlsr", "The default p is {}.", bigfs.SRLSR().p),
]


@pytest.mark.parametrize(("page", "sentence", "value"), STATED)
def test_values_in_sentences_are_those_of_the_program(page, sentence, value):
    assert sentence.format(float(value)) in (DOCS / f"{page}.md").read_text()


# names of other programs, and of files that only pages have
OTHERS = """
    ADDRESS BIGFS_TEST_BASE CANCEL_NEW DIRECTORY DaskTaskRunner FAMILY FutureWarning KubeCluster
    DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT NUMBA_CACHE_DIR NEWS_LINK ParallelPostFit
    SuccessExitStatus UnivariateFeatureSelector buildah false_discovery_control kneighbors_graph
    munge on_failure parallel_config podman rank_genes_groups save_to_disk scancel scrontab
    tie_correct working_dir y_blocks Restart Thumbs pipx Signature USING WHERE basic churn churned
    dose relation bigquery embedded filtered filtered_feature_bc_matrix pets spam spark GSE1
    homepage hook _000
"""


@pytest.fixture(scope="module")
def words():
    """The words of the program, its examples and its deployments, and the names of files."""
    folders = ("bigfs", "storage", "flows", "examples", "deploy")
    paths = [ROOT / "pyproject.toml", ROOT / "Makefile", *(ROOT / "benchmarks").rglob("*.py")]
    paths += [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in CODE]
    names = [*(ROOT / "tests").rglob("*"), *ROOT.glob("*")]
    texts = [OTHERS, *(p.read_text() for p in paths), *(p.name for p in names)]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@of_each_page
def test_every_name_in_code_is_one_of_the_program(page, words):
    if {"measured", "papers"} & set(page.parts):
        return
    text = re.sub(r"\{\w+\}`[^`]*`", "", page.read_text())
    names = {name for code in inline(text) for name in re.findall(r"[A-Za-z_]\w{3,}", code)}
    assert names - words == set()


def rows_of(page, header):
    """The cells of each row of the table whose first row begins so."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(header))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


SOURCES = DOCS / "guide" / "sources.md"


def test_options_of_text_and_matrices_have_the_defaults_of_the_program():
    checked = 0
    for names, value, *_ in rows_of(SOURCES, "| option | default | meaning |"):
        values = re.split(r", (?!\d+\))", value)
        for name, shown in zip(re.findall(r"`(\w+)`", names), values, strict=True):
            shown = {"none": "None", "true": "True", "word": "'word'"}.get(shown, shown)
            assert SourceOptions.model_fields[name].default == ast.literal_eval(shown), name
            checked += 1
    assert checked == 10


def test_the_table_of_formats_has_every_format():
    listed = {
        name
        for cells in rows_of(SOURCES, "| source | format | read |")
        for name in re.findall(r"`([\w-]+)`", cells[1])
    }
    assert listed == set(FORMATS) - {"synthetic"}


def test_the_guide_names_every_metric():
    [cells] = [
        cells
        for cells in rows_of(DOCS / "guide/evaluate.md", "| option | what it chooses | default |")
        if cells[0].startswith("`--metric")
    ]
    listed = set(re.findall(r"`(\w+)`", cells[1]))
    assert listed == set().union(*METRICS.values())


def test_the_glossary_has_every_status():
    [entry] = re.findall(r"^status\n(.*?)\n\n", (DOCS / "glossary.md").read_text(), re.S | re.M)
    assert set(re.findall(r"`([A-Z_]+)`", entry)) == {status.name for status in Status}


def test_getting_started_has_every_extra_of_a_user():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    rows = rows_of(DOCS / "getting-started.md", "| extra | adds | needed for |")
    assert {cells[0].strip("`") for cells in rows} == set(extras) - {"benchmarks", "docs", "dev"}


def test_the_choice_of_a_method_names_each_by_its_class():
    for _, classes, names, _ in rows_of(DOCS / "choose.md", "| your data | take |"):
        of_names = {
            METHODS[name].estimator.split(":")[1] for name in re.findall(r"`([\w-]+)`", names)
        }
        assert {
            re.match(r"\w+", code)[0] for code in re.findall(r"`(\w[^`]*)`", classes)
        } == of_names


PLAIN = re.compile(r"^ *```.*?^ *```", flags=re.S | re.M)


@of_each_page
def test_measured_figures_stand_on_pages_of_generators_alone(page):
    """Elsewhere a figure is one that a block of the page prints, which a test compares."""
    if {"measured", "papers"} & set(page.parts):
        return
    text = page.read_text()
    plain = PLAIN.sub("", text)
    assert not re.search(r"\d ± \d|\b(?:took|reach(?:ed|es)) (?:about )?\d", plain)
    printed = "".join(block for _, block in fences(text))
    assert [
        figure for figure in re.findall(r"\d+\.\d+(?= ?%)", plain) if figure not in printed
    ] == []
