"""Methods and formats of other packages, which their entry points name."""

import subprocess
import sys
import textwrap

import pytest

METHOD = """
from bigfs.selectors.registry import Method
METHOD = Method("scores:First", "the first features", targets=(), package="my_package")
NUMBER = 1
"""
SCORES = """
import numpy as np
from bigfs.selectors.base.estimator import Cost, Selector
class First(Selector):
    \"\"\"The first features.\"\"\"
    _cost, _supervised = Cost("0", "d"), False
    def _fit(self, X, y):
        self.scores_ = -np.arange(X.shape[1], dtype=float)
"""
SOURCE = """
from bigfs.storage.sources.svmlight.source import Svmlight
class Mine(Svmlight):
    format = "mine"
    @classmethod
    def sniff(cls, path, head):
        return path.suffix == ".mine"
"""
POINTS = """
[bigfs.methods]
first = my_package:METHOD
anova = my_package:METHOD
broken = my_package.missing:METHOD
crashing = my_package.crashing:METHOD
number = my_package:NUMBER
[bigfs.sources]
mine = my_package.source:Mine
"""


@pytest.fixture
def package(tmp_path):
    """An installed package, in a folder of the path."""
    folder = tmp_path / "site" / "my_package"
    info = tmp_path / "site" / "my_package-1.0.dist-info"
    for made in (folder, info):
        made.mkdir(parents=True)
    crashing = "raise RuntimeError('of its own')"
    files = {"__init__": METHOD, "scores": SCORES, "source": SOURCE, "crashing": crashing}
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return tmp_path


def run(package, code):
    code = f"import sys; sys.path.insert(0, 'site')\n{textwrap.dedent(code)}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=package, capture_output=True, text=True, timeout=300
    )


def test_a_package_adds_a_method_and_a_format(package):
    (package / "rows.mine").write_text("1 1:1 3:2\n0 2:1\n1 1:3\n0 2:2 3:1\n")
    done = run(
        package,
        """
        import numpy as np
        from bigfs.selectors.registry import METHODS
        from bigfs.flows.evaluation import selection
        from bigfs import storage
        uri = storage.stage("rows.mine", "c.zarr")
        assert storage.open(uri).spec["source"]["format"] == "mine"
        selector = selection.make_selector("first", 2, {})
        X = storage.open(uri).X
        print(*selector.fit(X).selected_, METHODS["anova"].estimator)
        """,
    )
    assert done.stdout.split() == ["0", "1", "scores.classes:ANOVA"], done.stderr
    assert "my-package adds 'anova' to bigfs.methods, a taken name" in done.stderr
    for name, said in (
        ("broken", "cannot be loaded: ModuleNotFoundError"),
        ("crashing", "cannot be loaded: RuntimeError: of its own"),
        ("number", "is of the wrong kind: 1"),
    ):
        assert f"my-package adds {name!r} to bigfs.methods, which {said}" in done.stderr
