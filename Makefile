# make demo   the whole pipeline on synthetic faces, in minutes on a laptop
# make test   format, lint, types, layers and tests
#
# Both set up .venv first, and again only when pyproject.toml or constraints.txt has changed.
# On a host with GPUs: make demo FAISS=gpu

PYTHON ?= python3
FAISS ?= cpu
BIN := .venv/bin
READY := .venv/ready-$(FAISS)

.PHONY: setup demo test test-slow format check clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "GIF needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(FAISS),dev]'
	@touch $@

demo: setup
	$(BIN)/gif demo

test: check
	$(BIN)/python -m pytest -m "not slow" --cov --cov-report=term:skip-covered

test-slow: setup
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage build *.egg-info
