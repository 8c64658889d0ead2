# Two commands for a newcomer: `make demo` and `make test`. Each builds .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1

.PHONY: help demo browser docs test test-slow lint format bench reproduce report clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# `demo` needs the core, torch and matplotlib; `test` and `lint` need everything.
$(VENV)/.ready-demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[torch,figures]'
	@touch $@

$(VENV)/.ready-all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all]'
	@touch $@ $(VENV)/.ready-demo $(VENV)/.ready-docs

$(VENV)/.ready-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(VENV)/.ready-demo  ## the paper's first figure in small: predicted, designed and really trained, side by side
	@$(BIN)/python examples/demo.py

reproduce: $(VENV)/.ready-demo  ## all experiments of the paper at the small scale: an evening of two cores; stops and resumes
	$(BIN)/recallscope reproduce all --scale small --store runs/paper
	$(BIN)/recallscope report runs/paper --out runs/paper/report.html

PAGES := $(addprefix results/paper/,tables zoo_page components_page) results/sweeps/scaling \
  $(addprefix docs/generate/,law_table law_figures)

report: $(VENV)/.ready-demo  ## figures, report and pages from the committed records, no training
	$(BIN)/recallscope report results/paper --out docs/report.html --markdown docs/REPRODUCTION.md
	set -e; for page in $(PAGES); do $(BIN)/python $$page.py; done

docs: $(VENV)/.ready-docs  ## the documentation site, in build/site; offline, any broken link is an error
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict

browser:  ## Chromium for the browser tests, by apt where there is none; without it they skip, and fail in CI
	@command -v chromium chromium-browser google-chrome chrome >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq chromium; } || echo "no Chromium: install it to run tests/web/test_browser.py"

test: $(VENV)/.ready-all  ## the fast suite
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.ready-all  ## the checks that take minutes
	$(BIN)/python -m pytest -n 2 -m slow --timeout=3600

lint: $(VENV)/.ready-all  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready-all  ## let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-all  ## all speed measurements (ratios, one thread)
	@for f in benchmarks/*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
