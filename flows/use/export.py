"""Export the model of a run to scikit-learn, in skops' format. Loading it runs no code."""

from __future__ import annotations

import zipfile
from pathlib import Path

from bigfs.advice import install_command
from bigfs.flows.use.files import archive_members, require_ours, with_suffix
from bigfs.storage import atomic
from bigfs.storage.runs.runs import Run


def export(run: str | Path, out: str | Path) -> Path:
    """Write the model of a run as a scikit-learn pipeline in skops' format."""
    try:
        from skops import io
    except ImportError as error:
        raise ValueError(
            f"exporting needs skops, which is not installed: {install_command('export')}"
        ) from error
    file = with_suffix(out, (".skops",), ".skops")
    require_ours(file, lambda file: "schema.json" in archive_members(file))
    pipeline = Run.open(run).model().to_sklearn()
    with atomic.write(file) as part:
        io.dump(pipeline, part, compression=zipfile.ZIP_DEFLATED)
    return file
