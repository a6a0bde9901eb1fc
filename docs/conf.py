"""Configuration of the documentation. `make docs` builds it; nothing is fetched."""

import os
import re
import sys
from pathlib import Path

from sphinx_gallery.sorting import FunctionSortKey

ROOT = Path(__file__).parent.parent
# the packages, and the extensions beside this file
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
os.environ.setdefault("MPLBACKEND", "agg")

import bigfs  # noqa: E402

project = "bigfs"
author = "the bigfs developers"
copyright = author
release = version = bigfs.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_line",
    "formulas",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_templates",
    "auto_examples/**/*.ipynb",
    "auto_examples/sg_execution_times.rst",
    "sg_execution_times.rst",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
nitpicky = False
# the settings below hold functions and classes, which Sphinx can't store
suppress_warnings = ["config.cache"]

# --- pages ---
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = False

# --- the reference ---
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc prints the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
# the docstrings are checked by the tests, not by the build
numpydoc_validation_checks: set[str] = set()

# --- the gallery ---
GALLERY = [  # the easiest first; an example that is missing here is an error
    "text_to_model.py",
    "redundancy.py",
    "certificate.py",
    "penalty.py",
    "few_labels.py",
    "images_smr.py",
    "anndata_genes.py",
    "from_scikit_learn.py",
    "from_duckdb_and_polars.py",
    "from_activations.py",
    "out_of_core.py",
    "own_cluster.py",
    "nightly.py",
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": FunctionSortKey(GALLERY.index),
    "backreferences_dir": "reference/generated/backreferences",
    "doc_module": ("bigfs",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 60,
    "reset_argv": lambda gallery_conf, script_vars: [],
}

# --- the pages' looks ---
html_theme = "pydata_sphinx_theme"
html_title = "bigfs"
html_static_path = ["_static"]
html_css_files = ["bigfs.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "bigfs"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {
    page: []
    for page in (
        "getting-started",
        "first-table",
        "choose",
        "architecture",
        "comparison",
        "faq",
        "glossary",
    )
}

html_math_renderer = "mathml"


def leave_out_archive(app, docname, source):
    """Drop an example's zip archive: it holds times of files, so that two builds would differ."""
    source[0] = re.sub(r" *\.\. container:: .*-zip\s+:download:.*\n", "", source[0])


def setup(app):
    """Read the gallery's pages without their archives."""
    app.connect("source-read", leave_out_archive)
