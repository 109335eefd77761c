# Every target sets up what it needs in .venv and says what it is doing.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help setup demo test lint unit e2e docs bench stack clean

help:
	@echo "make demo    a simulated cluster end to end: exporters, Prometheus, Alertmanager, alerting (DEMO_FLAGS=... are passed on)"
	@echo "make test    lint, types, unit tests, rule tests and the demo scenario"
	@echo "make docs    regenerate docs/ and dashboards/json/"
	@echo "make bench   the benchmarks"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: apt-get install python3 python3-venv" >&2; exit 2; }
	@echo ">> creating .venv and installing pyrometer with its development tools (a few minutes the first time)"
	@$(PYTHON) -m venv .venv || { echo "make: no venv module: apt-get install python3-venv" >&2; exit 2; }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

stack: $(STAMP)
	@$(BIN)/python -m pyrometer_simulator.stack

demo: stack
	@$(BIN)/pyrometer-demo $(DEMO_FLAGS)

test: lint unit e2e

lint: $(STAMP)
	@echo ">> ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo ">> mypy"; $(BIN)/mypy

unit: stack
	@echo ">> tests"; $(BIN)/pytest -m "not e2e"

e2e: stack
	@echo ">> end-to-end scenario"; $(BIN)/pytest -m e2e

docs: $(STAMP)
	@$(BIN)/python -m pyrometer_exporters.framework.docs docs/metrics.md
	@$(BIN)/pyrometer-dashboards generate dashboards/json

bench: $(STAMP)
	@for b in benchmarks/bench_*.py; do echo ">> $$b"; $(BIN)/python $$b; done

clean:
	rm -rf .venv dist
