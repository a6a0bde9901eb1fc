"""A method's other names: on the command line, in a flow's parameters and in Python."""

import pytest

from bigfs import storage
from bigfs.flows.evaluation.selection import get_method
from bigfs.flows.job import Job
from bigfs.selectors.registry import METHODS, SYNONYMS
from bigfs.storage.runs.runs import Run
from tests.helpers.processes import write_corpus


def test_every_synonym_names_a_method():
    for name, method in SYNONYMS.items():
        assert name not in METHODS
        assert get_method(name) is METHODS[method]
        assert Job(source="x", method=name).method == method


@pytest.mark.parametrize(
    ("name", "method"),
    [("SparGE", "sparge-lda"), ("ANOVA", "anova"), ("SVMRFE", "svm-rfe"), ("MRMR", "mrmr")],
)
def test_the_name_of_a_class_is_a_synonym(name, method):
    assert get_method(name) is METHODS[method]
    assert Job(source="x", method=name).method == method


def test_a_run_bears_the_name_that_the_methods_list(bigfs, tmp_path):
    write_corpus(tmp_path / "corpus.svm", seed=3)
    storage.stage(tmp_path / "corpus.svm", tmp_path / "c.zarr")
    words = ("--features", 3, "--workers", 0)
    for name, out in (("information-gain", "a"), ("mutual-info", "b")):
        assert bigfs("select", "c.zarr", "--out", out, "--method", name, *words)[0] == 0
    runs = [Run.open(tmp_path / out) for out in ("a", "b")]
    assert {run.metadata["parameters"]["method"] for run in runs} == {"mutual-info"}
    assert runs[0].selected.tolist() == runs[1].selected.tolist()
