# The only words to remember: make run, make test; and for those who change the code: format lint types bench release.

VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.paddock
SETUP  := pyproject.toml client/pyproject.toml scripts/setup.sh scripts/install.py
NATIVE := hatch_build.py $(wildcard agent/flags agent/src/* agent/launch/* agent/probe/*)

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-fast chaos conformance format lint types bench release lock clean check

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

run: $(STAMP)-run ## Set everything up and start Paddock
	@$(BIN)/paddock up

test: $(STAMP)-dev ## Set everything up and run the tests
	@PYTHON=$(BIN)/python sh scripts/test.sh

test-all: $(STAMP)-dev ## Run every form of every test: all databases, SDK versions and builds (about an hour)
	@PADDOCK_TEST_ALL=1 PYTHON=$(BIN)/python sh scripts/test.sh

test-fast: $(STAMP)-dev ## Run the tests that take seconds
	@$(BIN)/python -m pytest -q -n 2 -m "not slow"

chaos: $(STAMP)-dev ## Kill servers a thousand times, with full disks, clock jumps and other faults beside; prints a table
	@unset PYTHONDONTWRITEBYTECODE; PADDOCK_TEST_ALL=1 CHAOS_KILLS=$${CHAOS_KILLS:-1000} \
	  $(BIN)/python -m pytest -q -rs -n "$${PADDOCK_TEST_WORKERS:-2}" --dist worksteal tests/chaos

conformance: $(STAMP)-dev ## Hold every provider to the same promises; writes docs/providers.md
	@PYTHON=$(BIN)/python sh scripts/conformance.sh

format: $(STAMP)-dev ## Put the code in shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix -q . || true

lint: $(STAMP)-dev ## Check style and the direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

types: $(STAMP)-dev ## Check types, strictly
	@$(BIN)/mypy

bench: $(STAMP)-dev ## Measure; prints the tables of docs/benchmarks.md
	@$(BIN)/python -m benchmarks.api_overhead
	@$(BIN)/python -m benchmarks.local_provider
	@$(BIN)/python -m benchmarks.bombs
	@$(BIN)/python -m benchmarks.gateway
	@$(BIN)/python -m benchmarks.mcp

release: $(STAMP)-dev ## Build the wheels for both architectures, and try each in clean environments
	@$(BIN)/python -c 'import ziglang' 2>/dev/null || \
	  $(BIN)/python scripts/install.py requirements-zig.lock $(VENV)/install.log
	@$(BIN)/python scripts/release.py

lock: $(STAMP)-dev ## Choose versions of all dependencies anew
	@sh scripts/lock.sh $(BIN)

clean: ## Remove what the build made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(STAMP)-run: requirements.lock $(SETUP) $(NATIVE)
	@PYTHON=$(PYTHON) sh scripts/setup.sh $(VENV) requirements.lock
	@touch $@

$(STAMP)-dev: requirements-dev.lock $(SETUP) $(NATIVE)
	@PYTHON=$(PYTHON) sh scripts/setup.sh $(VENV) requirements-dev.lock
	@touch $@ $(STAMP)-run
