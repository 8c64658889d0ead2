# Two commands for a newcomer: `make demo` and `make test`. Each builds .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1
unexport PYTHONDONTWRITEBYTECODE  # .venv is installed without bytecode; the first import of each module writes it

.PHONY: help demo browser docs test test-surfaces test-portable test-slow lint format bench reproduce report fig-1-full clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# `demo` needs the core, torch and matplotlib; `test` and `lint` need everything.
$(VENV)/.ready-demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing recallscope with torch and matplotlib in $(VENV), once: a minute or more, by your connection"
	@$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[torch,figures]'
	@touch $@

$(VENV)/.ready-all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all]'
	@touch $@ $(VENV)/.ready-demo $(VENV)/.ready-docs

$(VENV)/.ready-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(VENV)/.ready-demo  ## accuracy over (D, N), side by side: predicted by two laws, hand-constructed, trained
	@$(BIN)/python examples/demo.py

reproduce: $(VENV)/.ready-demo  ## all experiments of the paper at the small scale: an evening of two cores; stops and resumes
	$(BIN)/recallscope reproduce all --scale small --store runs/paper
	$(BIN)/recallscope report runs/paper --output runs/paper/report.html

report: $(VENV)/.ready-demo  ## report, chapters, tables and figures of docs/ from the committed records, no training
	$(BIN)/recallscope report results/paper --output docs/report.html --markdown docs/REPRODUCTION.md

fig-1-full: $(VENV)/.ready-demo  ## Fig. 1 at the paper's resolution, one regime and seed: five core-hours; stops and resumes
	$(BIN)/recallscope sweep examples/fig_1_full.toml --store runs/fig-1
	$(BIN)/recallscope figures runs/fig-1 fig-7 --scale paper --out runs/fig-1/figures

docs: $(VENV)/.ready-docs  ## the documentation site, in build/site; offline, any broken link is an error
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict

browser:  ## Chromium for the browser tests, by apt where there is none; without it they skip, and fail in CI
	@command -v chromium chromium-browser google-chrome chrome >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq chromium; } || echo "no Chromium: install it to run tests/web/test_browser.py"

FAST := -n 2 --dist worksteal -m "not slow and not surfaces"

test: $(VENV)/.ready-all  ## the fast suite
	$(BIN)/python -m pytest $(FAST)

test-surfaces: $(VENV)/.ready-all  ## browser, documentation site, packages, licences, Ray
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "surfaces and not slow"

# What another CPU or build would compute with: MKL's and torch's instruction sets, that of our C kernels, threads.
CPU_SETTINGS := DEFAULTS=1 MKL_CBWR=COMPATIBLE MKL_CBWR=AVX2 ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 \
  RECALLSCOPE_CFLAGS=-march=x86-64 RECALLSCOPE_TEST_THREADS=2

test-portable: $(VENV)/.ready-all  ## the fast suite as other CPUs would run it, one setting after another
	@for setting in $(CPU_SETTINGS); do \
	  echo "== $$setting"; \
	  env $$setting $(BIN)/python -m pytest $(FAST) || { echo "fails with $$setting"; exit 1; }; \
	done

test-slow: $(VENV)/.ready-all  ## the checks that take minutes
	$(BIN)/python -m pytest -n 2 -m slow --timeout=3600

lint: $(VENV)/.ready-all  ## ruff, import-linter and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/.ready-all  ## let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-all  ## all speed measurements (ratios, one thread)
	@for f in benchmarks/*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
