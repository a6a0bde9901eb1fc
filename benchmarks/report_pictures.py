"""Pictures of a run's report (desktop, dark, phone) and of a selector's card in a notebook.

    PYTHONPATH=. python benchmarks/report_pictures.py docs/pictures

The run is that of `make run`. The pages are drawn by headless Chromium, and the pictures hold 128
colors, so that they stay small.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flow_pictures import Page, chromium
from PIL import Image

import bigfs
import storage
from flows import stages

COLORS = 128
REST = 1.0  # seconds after which a page has come to rest
# name, width, height (in pixels of the page), theme
REPORTS = (
    ("report-desktop", 1100, 950, "light"),
    ("report-dark", 1100, 950, "dark"),
    ("report-phone", 390, 1020, "light"),
)
CARDS = (("card", 620, "light"), ("card-dark", 620, "dark"))
# what JupyterLab puts around the output of a cell
NOTEBOOK = """<!doctype html><meta charset="utf-8"><style>body {{ margin: 12px;
font: 14px system-ui, "DejaVu Sans", sans-serif; background: {paper}; color: {ink} }}</style>
<body data-jp-theme-light="{light}">{card}"""
PAPERS = {
    "light": {"paper": "#fff", "ink": "#212121", "light": "true"},
    "dark": {"paper": "#111", "ink": "#ddd", "light": "false"},
}


def save(page: Page, file: Path, width: int, height: int, theme: str) -> None:
    """Save a page, as a window of this size and theme shows it, with few colors."""
    page.ask(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1.5,
        mobile=width < 500,
    )
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    page.ask("Emulation.setEmulatedMedia", features=scheme)
    time.sleep(REST)
    drawn = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    drawn.quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)


def height_of(page: Page) -> int:
    """Return the height of the content of a page."""
    told: Any = page.ask("Runtime.evaluate", expression="document.body.scrollHeight + 24")
    return int(told["result"]["value"])


def main() -> None:
    """Make the run, and draw its report and its card."""
    folder, home = Path(sys.argv[1]).absolute(), Path(tempfile.mkdtemp(prefix="bigfs-report-"))
    os.chdir(home)
    staged = stages.stage("synthetic:phrases", "phrases.zarr")
    run = stages.select(
        staged["store"], "runs/phrases", method="sparge-lda", features=200, earlier=[staged]
    )
    stages.evaluate(run)
    report = stages.finish(run).absolute() / "report.html"
    train = storage.open(staged["store"]).part("train")
    selector = bigfs.SparGE(n_features_to_select=200).fit(train.X, train.y)
    html = selector._repr_html_()
    with chromium(home) as page:
        page.open(report.as_uri(), "document.readyState == 'complete'")
        for name, width, height, theme in REPORTS:
            save(page, folder / f"{name}.png", width, height, theme)
        for name, width, theme in CARDS:
            card = home / f"{name}.html"
            card.write_text(NOTEBOOK.format(card=html, **PAPERS[theme]))
            page.open(card.as_uri(), "document.readyState == 'complete'")
            save(page, folder / f"{name}.png", width, height_of(page), theme)


if __name__ == "__main__":
    main()
