# Every target sets itself up: it takes make, Python 3.11 or newer and a package registry. Another Python: make PYTHON=python3.13 test
PYTHON := $(or $(PYTHON),$(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done))
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-header --no-emit-index-url

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo dev test test-default test-optimized test-uncached lint types format check bench-ledger bench-ingress lock lock-upgrade clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): requirements-dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer on PATH: install one, or name it with: make PYTHON=..." >&2; exit 2; }
	@echo "Setting up $(VENV) with $(PYTHON): about half a minute, again only when dependencies change."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install -qq --require-hashes --no-deps --only-binary :all: --requirement requirements-dev.lock
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@$(PIP) check
	@touch $@

demo: $(INSTALLED)  ## run the three evidence chains on an embedded Temporal server
	$(BIN)/orderflow demo

dev: $(INSTALLED)  ## Temporal with its UI, a worker, the door and the simulator in one terminal
	$(BIN)/orderflow dev

test: test-default test-optimized test-uncached  ## the whole suite, then the parts below

# Tests mostly wait for servers: two processes share them out by file, each with servers of its own. PROCESSES=0 takes one.
PROCESSES ?= 2
SHARED := --numprocesses $(PROCESSES) --dist loadfile

test-default: $(INSTALLED)  ## the whole suite, warnings as errors
	$(BIN)/python -m pytest $(SHARED)

test-optimized: $(INSTALLED)  ## the cheap folders with python -O, on SQLite
	$(BIN)/python -O -m pytest $(SHARED) tests/architecture tests/unit tests/activities -k "not postgres"

# Not the fault matrix and what hangs: without a cache the SDK drops a workflow task that comes in during an eviction,
# and the time-skipping server is slow to hand it out again.
UNCACHED := $(addprefix tests/workflow/test_,approval_refusals.py bugs.py cancellation.py compensation.py failures.py \
	happy_path.py routes.py standing_effects.py starts.py)

test-uncached: $(INSTALLED)  ## workflow tests with python -O, no workflow kept in the worker's cache
	ORDERFLOW_TEST_MAX_CACHED_WORKFLOWS=0 $(BIN)/python -O -m pytest $(SHARED) $(UNCACHED)

lint: $(INSTALLED)  ## ruff and the import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(INSTALLED)  ## mypy --strict
	$(BIN)/mypy

format: $(INSTALLED)  ## apply ruff's fixes and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

check: lint types test  ## all that CI runs

bench-ledger: $(INSTALLED)  ## what the ledger costs and how fast it is, in minutes; with ten million rows: ROWS=10000000
	$(BIN)/python -W ignore:XDG_RUNTIME_DIR -m bench.ledger $(if $(ROWS),--rows $(ROWS))

bench-ingress: $(INSTALLED)  ## what the HTTP door costs beside the start of an order, and in a siege, in minutes
	$(BIN)/python -W ignore:XDG_RUNTIME_DIR -m bench.ingress

# Needs uv alone: with a changed pyproject.toml the old lock file would not install.
$(BIN)/uv:
	$(MAKE) $(INSTALLED)

lock: | $(BIN)/uv  ## rewrite the lock files after a change of dependencies in pyproject.toml
	$(COMPILE) $(UPGRADE) pyproject.toml --extra postgres --output-file requirements.lock
	$(COMPILE) $(UPGRADE) --group build --output-file requirements-build.lock
	$(COMPILE) $(UPGRADE) pyproject.toml --all-extras --group build --output-file requirements-dev.lock

lock-upgrade:  ## the same, with every package at its newest release
	$(MAKE) lock UPGRADE=--upgrade

clean:  ## remove the environment, caches and build output (not .orderflow/, which is your state)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
