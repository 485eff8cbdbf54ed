# SPDX-FileCopyrightText: 2026 The energon-pack authors
# SPDX-License-Identifier: Apache-2.0
# Every target makes its own environment in .venv; a second run reinstalls nothing.

SHELL := bash
BIN := .venv/bin
READY := .venv/.ready
PARALLEL := --numprocesses 2 --dist loadfile

# One thread a process: the loader's workers are the parallel part. No target needs the model hub.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE := 1

.PHONY: help demo test test-full lint format bench bench-full docs constraints clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(READY): scripts/setup.sh constraints.txt pyproject.toml .python-version $(wildcard src/energon_pack/decoding/*.c)
	@scripts/setup.sh
	@touch $@

demo: $(READY) ## Pack real photos and clips, train a tiny Qwen3-VL on them, write demo/report
	@$(BIN)/energon-pack demo demo

test: $(READY) ## Run the tests
	@$(BIN)/python -m pytest $(PARALLEL)

test-full: $(READY) ## Run the tests with the long fuzz and soak runs
	@$(BIN)/python -m pytest $(PARALLEL) -m "" --timeout 3600

lint: $(READY) ## Check format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(READY) ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(READY) ## Run the benchmarks against their baselines
	@$(BIN)/python bench/run.py

bench-full: $(READY) ## Run the benchmarks' larger grid
	@$(BIN)/python bench/run.py --full

docs: $(READY) ## Build the documentation into docs/_build, warnings are errors
	@$(BIN)/python -m sphinx --fail-on-warning --quiet docs docs/_build
	@echo "docs/_build/index.html"

constraints: $(READY) ## Pin what is installed into constraints.txt
	@$(BIN)/uv pip freeze --quiet --python $(BIN)/python --exclude-editable > constraints.txt

clean: ## Remove the environment and everything that was built
	rm -rf .venv build demo docs/_build .mypy_cache .pytest_cache .ruff_cache
