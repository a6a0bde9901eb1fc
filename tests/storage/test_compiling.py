"""The kernels of text are compiled before they are needed, each by one worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import sys
from pathlib import Path
import storage
from storage.staging.text import compiling
from storage.staging.text.weighting import Weighting

folder, source = Path(sys.argv[1]), sys.argv[2]
kernels = lambda: {file.name.split("-")[0] for file in folder.rglob("*.nbi")}
variants = lambda: sorted(file.name for file in folder.rglob("*.nbc"))
compiling.count_word(Weighting())
counting = kernels()
compiling.transpose_word(Weighting())
print(sorted(counting & {"kernels.scatter", "vocabulary_kernels.merge"}), len(kernels()))
before = variants()
storage.stage(source, folder / "store.zarr")
print(len(before), sorted(set(variants()) - set(before)))
"""


def test_staging_compiles_no_kernel_after_those_of_one_word(tmp_path):
    source = tmp_path / "documents.jsonl"
    texts = [f"été word{i % 7} other{i % 5} words of document {i}" for i in range(40)]
    source.write_text(
        "".join(
            json.dumps({"text": text, "label": "ab"[i % 2], "split": ["train", "test"][i // 30]})
            + "\n"
            for i, text in enumerate(texts)
        )
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(source)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = ran.stdout.splitlines()
    assert first.startswith("[] "), first  # the two calls share out the kernels
    compiled, later = second.split(" ", 1)
    assert int(compiled) >= 20
    assert later == "[]"
