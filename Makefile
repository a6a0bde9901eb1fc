# Two commands do everything: `make run` (the main job on a generated corpus) and `make test`. `make docs` builds the site.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test check docs clean

run: .venv/.installed
	$(BIN)/bigfs run synthetic:newswire --features 200

test: .venv/.installed
	$(BIN)/pytest

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/.installed
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

.venv/.installed: pyproject.toml deploy/constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt --editable ".[jgsc,dev,docs]"
	touch $@

clean:
	rm -rf .venv runs docs/_build docs/auto_examples docs/reference/generated
