# `make demo` and `make test` set up everything they need on a machine with Python 3.11 or later.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The tests start hundreds of processes, and without bytecode each compiles stillme again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := all
.PHONY: all demo test check format soak bench docs dist chromium clean

all: format check test

# -- what people run ---------------------------------------------------------------------------------------------

demo: .venv/.installed
	$(BIN)/stillme demo --out stillme-demo

# Tests wait much of their time, so three share two cores; numerical libraries with threads of their own would not.
test: export OMP_NUM_THREADS := 1
test: export OPENBLAS_NUM_THREADS := 1
test: check .venv/.test-plugins chromium
	$(BIN)/python -m pytest -n 3 --dist loadgroup

# What only a release needs, and what it measured: kills by the hundred, loads of 200 raters. About half an hour.
soak: .venv/.test-plugins chromium
	$(BIN)/python -m pytest -m soak
	@# Processors differ in the last bits of sums. Results must not: `make test` compares tables, here are all tests.
	$(BIN)/python -m tests.estimates.instruction_sets -n 2 -q

check: .venv/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tools/size.py

format: .venv/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/.dev
	$(BIN)/python -m bench

# Wheel and sdist, tried in clean environments; docs/releasing.md.
dist: .venv/.installed
	$(PIP) --group dist
	$(BIN)/python tools/dist.py

docs: .venv/.docs chromium
	$(BIN)/python tools/documentation.py --picture docs/img/report.png

clean:
	rm -rf .venv stillme-demo dist site .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# -- set-up ------------------------------------------------------------------------------------------------------

.venv/.python:
	@test -n "$(PYTHON)" || { echo "stillme needs Python 3.11 or later; install it and run make again." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade "pip>=25.1"
	touch $@

.venv/.installed: .venv/.python pyproject.toml
	$(PIP) --editable .
	touch $@

# Torch comes first and by version: unpinned, pip brings gigabytes of CUDA. Torchvision only for its image processors.
.venv/.dev: .venv/.installed
	$(PIP) torch==2.13.0
	$(PIP) --no-deps torchvision==0.28.0
	$(PIP) --editable ".[diffusers]"
	$(PIP) --group dev
	touch $@

# Pages made from the code import all of it, the study included.
.venv/.docs: .venv/.installed
	$(PIP) --editable ".[study]"
	$(PIP) --group docs
	touch $@

# Only the tests see these plugins (tests/conftest.py): installed, they would appear in everybody's `stillme list`,
# as they did in environments made before.
.venv/.test-plugins: .venv/.dev $(wildcard tests/plugin_package/pyproject.toml tests/plugin_package/src/*/*.py)
	$(BIN)/python -m pip uninstall -qq --yes stillme-test-plugin
	rm -rf .venv/test-plugins
	$(PIP) --no-build-isolation --no-deps --target .venv/test-plugins tests/plugin_package
	touch $@

# Browser tests use Debian's Chromium. Where it is absent and may not be installed, they say that they were skipped.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
		|| echo "No Chromium here: browser tests will be skipped."
