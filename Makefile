# Each target sets up what it needs in .venv; nothing is installed elsewhere.
PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-slow test-gpu check bench bench-quick bench-page study compare pretrain docs clean
.DELETE_ON_ERROR:

define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing afterwit[$(1)] into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(1)]"
	@touch $@
endef

$(VENV)/.installed-demo: pyproject.toml
	$(call install,demo)

$(VENV)/.installed-test: pyproject.toml
	$(call install,test)

$(VENV)/.installed-dev: pyproject.toml
	$(call install,dev)

## The live learning loop: real clients, a real gateway, a tiny model that learns. Writes demo-report/.
demo: $(VENV)/.installed-demo
	$(BIN)/afterwit demo --out demo-report

## The fast tests.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m "not slow and not gpu"

## The slow ones: many streams across many weight swaps, soak.
test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -m "slow and not gpu" --timeout 1200

## What runs on a CUDA device, against the same on the CPU. Fails where there is none.
test-gpu: $(VENV)/.installed-test
	@$(BIN)/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'no CUDA device here: nothing was tested')"
	$(BIN)/python -m pytest -q -m gpu --timeout 1200

## Everything a change must pass: format, lint, types, layers, tests with branch coverage, docs.
check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -m "not slow and not gpu" --cov --cov-report=term
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

$(VENV)/.installed-bench: pyproject.toml
	$(call install,bench)

## The benchmarks: one question per file, a table of every target, results as JSON in build/benchmarks.
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

## The same rows at smaller sizes, in two minutes: whether all is in order. No substitute for `make bench`.
bench-quick: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --quick --out build/benchmarks/quick.json

## What `make bench` found becomes the table and the picture of docs/benchmarks.md.
bench-page: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.page build/benchmarks/results.json

## The study: plays what is missing of it (hours), then writes its tables and pictures.
study: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.study --jobs $$(getconf _NPROCESSORS_ONLN)
	$(BIN)/python -m experiments.study.write

## Four objectives, or published recipes, over seeds: `make compare ARGS="--world chat --recipe all"`; ARGS=--help says more.
compare: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.compare $(ARGS)

## The demo's base models from nothing (half an hour), into build/models.
pretrain: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.pretrain.pretrain --world tools --seed 0 --tokens 3.5e6 --out build/models/tools
	$(BIN)/python -m experiments.pretrain.pretrain --world chat --seed 0 --tokens 4.5e6 --out build/models/chat

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) build demo-report
