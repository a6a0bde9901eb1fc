"""One of each format as version 1 wrote it: stores, a graph, and a run with its model.

`python -m tests.helpers.formats` writes them anew, once a version of a format has changed.
"""

import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import bigfs
from bigfs import storage
from tests.helpers.stores import LATER, TEXTS

KEPT = Path(__file__).parents[1] / "data" / "formats-1.tar.xz"
SAMPLES = (
    "x,label,donor,lane,w,day\n"
    "1,a,d2,1,0.5,2024-03-01\n2,b,d1,2,1,2024-02-01\n3,a,d2,1,0,2024-03-01T12:30\n"
)
ROLES = {"group": "donor", "batch": "lane", "sample_weight": "w", "time": "day"}


def write_formats():
    """Write one of each format into the current folder."""
    for folder, texts in (("texts", TEXTS), ("later", LATER)):
        for name, text in texts.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    Path("samples.csv").write_text(SAMPLES)
    uri = storage.stage("texts", "text.zarr", min_df=1, tile_rows=2)
    storage.append("later", uri, split="test")
    storage.graph(storage.open(uri), 2)
    storage.stage("samples.csv", "samples.zarr", columns="x", **ROLES)
    bigfs.run("text.zarr", "anova", 4, out="run", engine={"workers": 0})
    for name in ("texts", "later"):
        shutil.rmtree(name)
    Path("samples.csv").unlink()


def unpack_formats(folder):
    """Unpack what version 1 wrote."""
    with tarfile.open(KEPT) as archive:
        archive.extractall(folder, filter="data")


def main():
    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        write_formats()
        shutil.make_archive(str(KEPT).removesuffix(".tar.xz"), "xztar", home)
    sys.stdout.write(f"{KEPT}\n")


if __name__ == "__main__":
    main()
