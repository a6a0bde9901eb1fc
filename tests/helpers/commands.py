"""The command line in this process: `bigfs` runs a command, `fails` says what its one line of error
must hold.
"""

import logging
import sys
import warnings

import pytest

from bigfs.flows import cli


@pytest.fixture
def bigfs(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder; gives exit status, standard output and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # put back at the end

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["bigfs", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        logging.disable(logging.NOTSET)  # an interrupted command ends its log with its process
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


def fails(answer, *words):
    """One plain line that holds the words, and a status that is not zero."""
    status, _, err = answer
    lines = [line for line in err.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("bigfs: ")]
    assert status != 0
    assert len(said) == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word in said[0]
