# make run | test | test-all | test-deep | lint | bench | coverage | lock | clean
#
# `run`, the tests, `lint` and `bench` first make the virtual environment $(VENV) from the locked
# requirements, by uv where it is on PATH, else by pip. A second call finds it there.

PYTHON ?= python3
VENV ?= .venv
# Arguments for the server (make run ARGS="--port 9000"), pytest and the benchmarks.
ARGS ?=
# Three workers for each core: most of the time a test waits for a process or a socket. A worker
# keeps the tests of a module together, as they may share a server, and takes over others' at the end.
PYTEST_ARGS ?= -n $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN)))) --dist worksteal
# Compiles every installed module; empty where each is compiled when it is first imported.
BYTECODE ?= --compile-bytecode
BENCH_ARGS ?=

BIN := $(VENV)/bin
# On a terminal, installing shows its progress.
QUIET := $(shell test -t 2 || echo --quiet)
# Asked to run, not only looked for: a shim on PATH may lead nowhere.
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv)

export PYTHON VENV

# What takes more than a few seconds is tested by test-all only. An own -m in ARGS goes before.
quick = -m 'not slow and not e2e'
pytest = $(BIN)/python -m pytest $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-all test-deep test-django6 lint bench coverage lock clean

help:
	@sed -n '1,5s/^# \{0,1\}//p' Makefile

run: $(VENV)/run.stamp
	@$(BIN)/mochi-server pull \
		|| echo "make: the built-in model could not be fetched; going on without it." >&2
	@test -e data/tools || $(BIN)/mochi-server init data
	@exec $(BIN)/mochi-server --open --data-dir data $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/lint-imports
	$(pytest) $(quick) $(ARGS)

test-all: $(VENV)/dev.stamp
	$(BIN)/lint-imports
	$(pytest) $(ARGS)

# Many more generated examples, and longer ways through the model of claims.
test-deep: $(VENV)/dev.stamp
	MOCHI_MODEL_DEPTH=3 MOCHI_MODEL_EXAMPLES=1000 \
		$(pytest) --hypothesis-profile=deep --timeout=3600 -k "hypothesis or claims_model" $(ARGS)

# `make test` with the next Django (Python 3.12 or newer); the locked one is back afterwards.
test-django6: $(VENV)/dev.stamp
	@$(install) --no-deps --require-hashes -r requirements/django6.txt
	$(pytest) $(quick) $(ARGS); status=$$?; \
		$(install) --require-hashes -r requirements/dev.txt && exit $$status

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

coverage: $(VENV)/dev.stamp
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PYTEST_ARGS) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/startup.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/sessions.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/imports.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/tools.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/rules.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/tool_interference.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/mcp_servers.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/search.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/summaries.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/agents.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/confirmations.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/runs.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/long_inputs.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/streaming.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/workers.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/wires.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/sockets.py $(BENCH_ARGS)
	$(BIN)/python benchmarks/capacity.py $(BENCH_ARGS)

# ---- the virtual environment ---------------------------------------------------------------

ifneq ($(UV),)
make_venv = test -x $(BIN)/python || "$(UV)" venv --quiet --python "$$(command -v "$$PYTHON")" "$$VENV"
install = "$(UV)" pip install $(QUIET) $(BYTECODE) --python $(BIN)/python
else
# Run over an environment that is there, venv keeps its packages and adds pip where uv left it out.
make_venv = $(BIN)/python -m pip --version >/dev/null 2>&1 || "$$PYTHON" -m venv "$$VENV"
install = $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check
endif

$(VENV)/%.stamp: requirements/%.txt pyproject.toml
	@"$$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "make: Python 3.10 or newer is needed (make PYTHON=/path/to/python3)." >&2; exit 1; }
	@echo "make: installing $< into $(VENV), which takes about a minute ..."
	@$(make_venv)
	@$(install) --require-hashes -r $<
	@$(install) --no-deps --no-build-isolation -e .
	@touch $@

# ---- the locks -----------------------------------------------------------------------------

# make lock UPGRADE=--upgrade takes the newest versions; without it only what is needed changes.
UPGRADE ?=
COMPILE = uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-strip-extras \
	--custom-compile-command "make lock" $(UPGRADE)

lock: # the largest first; the others then agree with it
	$(COMPILE) -c requirements/constraints.in pyproject.toml \
		--all-extras --group build --group dev -o requirements/dev.txt
	$(COMPILE) -c requirements/dev.txt pyproject.toml \
		--extra local --extra mcp --extra cli --group build -o requirements/run.txt
	$(COMPILE) -c requirements/dev.txt pyproject.toml \
		--extra local --extra mcp --group build --group bench -o requirements/bench.txt
	$(COMPILE) -c requirements/dev.txt pyproject.toml \
		$(addprefix --extra ,openai anthropic gemini redis mcp images database metrics telemetry) \
		--group build -o requirements/container.txt
	$(subst 3.10,3.12,$(COMPILE)) --no-deps requirements/django6.in -o requirements/django6.txt

clean:
	rm -rf .venv .venv-* build dist .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
