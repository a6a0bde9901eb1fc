# Two commands do everything: `make run` (the main job on a generated corpus) and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test check clean

run: .venv/.installed
	$(BIN)/bigfs run synthetic:newswire --features 200

test: .venv/.installed
	$(BIN)/pytest

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy

.venv/.installed: pyproject.toml deploy/constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint deploy/constraints.txt --editable ".[jgsc,dev]"
	touch $@

clean:
	rm -rf .venv runs
