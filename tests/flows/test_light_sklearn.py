"""scikit-learn without scipy.stats and pandas, in the processes of the command."""

import subprocess
import sys

import pytest

from tests.helpers.processes import write_corpus

RUN = """
import sys
import flows.light_sklearn
from flows.run import prepare, run
from flows.job import Job
from flows.options import Engine

run(prepare(Job(source="corpus.jsonl", features=5, out="r", engine=Engine(workers=0))))
print([name for name in ("pandas", "scipy.stats") if name in sys.modules])
"""

LATER = """
import sys
import flows.light_sklearn
from sklearn.feature_selection import _univariate_selection
from sklearn.model_selection import _search

print(_search.rankdata([3, 1, 2]).tolist())
print(_univariate_selection.stats.norm.cdf(0.0))
import pandas, scipy.stats
print(scipy.stats.rankdata is sys.modules["scipy.stats"].rankdata, pandas.__name__)
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
X = pandas.DataFrame({"a": [0.0, 1.0] * 10, "b": [1.0, 2.0] * 10})
print(GridSearchCV(LinearSVC(), {"C": [1, 2]}).fit(X, [0, 1] * 10).best_score_)
"""

INSIDE = """
import sys
from flows.light_sklearn import late_imports

with late_imports():
    from scipy.stats import gmean
    print("scipy.stats._stats_py" in sys.modules, gmean([1.0, 4.0]))
    from scipy.stats import rankdata
print(type(rankdata).__name__, sys.modules["scipy.stats"].gmean([1.0, 4.0]))
"""


def python(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.slow
def test_a_run_needs_neither(tmp_path):
    write_corpus(tmp_path / "corpus.jsonl", seed=1)
    assert python(RUN, tmp_path)[-1] == "[]"


def test_both_are_there_when_they_are_needed(tmp_path):
    assert python(LATER, tmp_path) == ["[3.0, 1.0, 2.0]", "0.5", "True pandas", "1.0"]


def test_a_name_can_be_used_while_imports_are_late(tmp_path):
    assert python(INSIDE, tmp_path) == ["False 2.0", "function 2.0"]
