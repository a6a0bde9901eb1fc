"""The method of a run that names none follows the target of its corpus."""

import json
from pathlib import Path

import pytest

from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails

WORDS = ("alpha beta", "gamma delta", "alpha gamma", "delta beta")


def write(labels):
    lines = [{"text": WORDS[i % 4], **({} if labels is None else labels(i))} for i in range(40)]
    Path("c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("labels", "method", "said"),
    [
        (lambda i: {"label": "ab"[i % 2]}, "sparge-lda", ""),
        (
            lambda i: {"label": ["ab"[i % 2], "c"][: 1 + i % 2]},
            "sparge-cca",
            "several labels per sample, so the method is sparge-cca",
        ),
        (
            None,
            "sparge-pca",
            "no labels, so the method is sparge-pca: for another one name the column of the labels",
        ),
    ],
)
def test_a_run_that_names_no_method_has_that_of_its_target(bigfs, labels, method, said):
    write(labels)
    words = ("run", "c.jsonl", "-n", 2, "--workers", 0)
    status, out, err = bigfs(*words)
    assert status == 0, err
    [folder] = [path for path in Path("runs").iterdir() if path.name[0] != "."]
    assert folder.name.startswith("c.jsonl-2-")
    assert Run.open(folder).metadata["parameters"]["method"] == method
    assert f"{method}: " in out
    assert said in err
    assert "has this result already" in bigfs(*words)[2]
    assert bigfs("run", "c.jsonl", "-n", 2, "-m", "variance", "--workers", 0, "-o", "v")[0] == 0
    fails(bigfs(*words, "-o", "v"), "v holds another result")  # which nobody asked to replace
