"""The logger named bigfs: silent until somebody listens, and then a line per step and per stage."""

import logging
import subprocess
import sys

import pytest

from bigfs import SparGE, storage
from tests.helpers import stages
from tests.helpers.stores import write_svmlight


def test_steps_and_stages_are_logged(tmp_path, caplog, text):
    X, y = text
    with caplog.at_level(logging.DEBUG, logger="bigfs"):
        selector = SparGE(n_features_to_select=3).fit(X, y)
        source = write_svmlight(tmp_path / "a.svm", 60)
        record = stages.stage(str(source), str(tmp_path / "a.zarr"))
        storage.stage(source, tmp_path / "a.zarr")
    said = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    steps = len(selector.result_.history)
    lines = [m for name, level, m in said if name == "bigfs.result" and level == "DEBUG"]
    assert len(lines) == steps
    assert (
        "bigfs.result",
        "INFO",
        f"SparGE: {selector.result_.status} after {steps} steps",
    ) in said
    corpus = storage.open(record["store"])
    shape = f"{corpus.uri}: 60 × {corpus.X.shape[1]}, {corpus.X.nnz} non-zeros"
    assert ("bigfs.storage", "INFO", shape) in said
    assert ("bigfs.storage", "INFO", f"{corpus.uri}: the store is there already") in said
    assert any(name == "bigfs.flows" and m.startswith("stage: ") for name, _, m in said)


@pytest.mark.slow
def test_nothing_is_printed_until_somebody_listens():
    code = (
        "import logging, sys; import numpy as np, bigfs;"
        "selector = bigfs.SparGE(n_features_to_select=1);"
        "selector.fit(np.eye(6), [0, 1] * 3); print('listen', file=sys.stderr);"
        "logging.basicConfig(level='DEBUG'); selector.fit(np.eye(6), [0, 1] * 3)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    before, after = answer.stderr.split("listen\n")
    assert (before, "bigfs.result" in after) == ("", True)
