# make demo   the whole pipeline on synthetic faces, in minutes on a laptop
# make up     a Prefect server, a worker, the deployments and an S3 server, until Ctrl-C
# make test   format, lint, types, layers and tests; also: make test-slow, make coverage
# make dist   a wheel and an sdist in dist/
# make docs   the documentation, as pages that need no network: site/index.html
#
# All set up .venv first, and again only when pyproject.toml or constraints.txt has changed.
# On a host with GPUs: make demo FAISS=gpu

PYTHON ?= python3
FAISS ?= cpu
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt

# Compiled modules are kept even where the environment says otherwise: without them every process compiles torch anew.
unexport PYTHONDONTWRITEBYTECODE

# Three test processes even on two cores, since many tests wait for servers; one thread each, or they would spin against
# each other.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: demo up test test-slow coverage check format docs dist clean

demo: .venv/ready-$(FAISS)
	$(BIN)/gif demo

up: .venv/ready-$(FAISS)-s3
	$(BIN)/gif up --s3

test: check
	$(TESTS)

coverage: .venv/ready-$(FAISS)-dev
	$(TESTS) --cov --cov-report=term:skip-covered

test-slow: .venv/ready-$(FAISS)-dev
	$(BIN)/python -m pytest -m slow

check: .venv/ready-$(FAISS)-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready-$(FAISS)-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready-$(FAISS)-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

dist: .venv/ready-$(FAISS)-dev
	rm -rf build dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage build dist *.egg-info

.venv/ready-$(FAISS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "GIF needs Python 3.11 or newer, for instance: make PYTHON=python3.11"; exit 1; }
	@echo "Setting up .venv: this takes a few minutes, once."
	$(PYTHON) -m venv .venv
	@rm -f .venv/ready-*
	@# `gif` is the name that the distribution had before: its metadata and script would stay beside the new ones.
	@$(BIN)/python -m pip uninstall --quiet --yes gif faiss-cpu faiss-gpu 2> /dev/null
	@rm -rf gif.egg-info
	$(PIP) --editable '.[$(FAISS)]'
	@touch $@

.venv/ready-$(FAISS)-s3: .venv/ready-$(FAISS)
	$(PIP) --quiet --editable '.[$(FAISS),s3]'
	@touch $@

.venv/ready-$(FAISS)-dev: .venv/ready-$(FAISS)
	$(PIP) --quiet --editable '.[$(FAISS),dev]'
	@touch $@
