# Every target sets up what it needs in .venv and says what it is doing.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help setup demo test lane-unit lane-e2e lint unit e2e test-compose test-integrations docs bench stack clean smoke test-systems

help:
	@echo "make demo    a simulated cluster end to end: exporters, Prometheus, Alertmanager, alerting (DEMO_FLAGS=... are passed on)"
	@echo "make test    lint, types, unit tests, rule tests and the demo scenario"
	@echo "make test-compose  the same scenario in containers (9 minutes; root, or an engine that runs)"
	@echo "make test-integrations    the hooks with the real PyTorch, Hugging Face, Lightning, torchtitan, DeepSpeed, Megatron-core (5 GB)"
	@echo "make test-systems    demo and smoke tests in chroots of Debian and Ubuntu, as root (SYSTEMS_FLAGS=--help for the choices)"
	@echo "make docs    regenerate docs/ and dashboards/json/"
	@echo "make bench   the benchmarks"

setup: $(STAMP)

# A .venv whose Python is gone (an upgrade of the system) or that belongs to another checkout (a copied folder) is made anew.
OWN := import os, pyrometer_simulator as p; assert p.__file__.startswith(os.getcwd() + os.sep)
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell $(BIN)/python -c '$(OWN)' 2>&1 || echo broken),)
.PHONY: $(STAMP)
CLEAR := --clear
endif
endif

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: apt-get install python3 python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "make: $$($(PYTHON) --version) is too old: Python 3.10 or newer is needed (make PYTHON=...)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "make: $(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 2; }
	@echo ">> creating .venv and installing pyrometer with its development tools (a few minutes the first time)"
	@$(PYTHON) -m venv $(CLEAR) .venv
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]' \
		| sed -un 's/^ *\(Downloading\|Using cached\) \([^ ]*\).*(\(.*\))$$/   \2 (\3)/p; s/^Installing collected.*/   installing/p' \
		|| { echo "make: pip could not install (see above): it needs PyPI, or a mirror of it in pip's configuration" >&2; exit 2; }
	@touch $@

stack: $(STAMP)
	@$(BIN)/python -m pyrometer_simulator.stack

demo: stack
	@$(BIN)/pyrometer-demo $(DEMO_FLAGS)

# The scenario mostly waits: it is played beside the tests, and what it said is shown after them.
ASIDE := .venv/e2e.txt
FAILED := .venv/failed.txt
test: lint stack
	@rm -f $(FAILED); echo ">> end-to-end scenario: beside the tests, told after them"
	@$(MAKE) --no-print-directory --keep-going --jobs=2 lane-unit lane-e2e; cat $(ASIDE); \
		test ! -e $(FAILED) || { echo "make: failed: $$(sort $(FAILED) | paste -sd' ')" >&2; exit 2; }

# Ctrl-C ends both, as make passes it on to what it started itself (a shell's background job would not hear it).
lane-unit lane-e2e: lane-%:
	@$(MAKE) --no-print-directory $* $(if $(filter e2e,$*),>$(ASIDE) 2>&1) || { echo $* >>$(FAILED); exit 1; }

lint: $(STAMP)
	@echo ">> ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo ">> mypy"; $(BIN)/mypy

unit: stack
	@echo ">> tests"; $(BIN)/pytest -m "not e2e and not integrations"

# What differs between systems: the stack, the demo's parts, ring buffers, the kernel log, rules by the real promtool.
SMOKE := tests/simulator tests/client tests/exporters/framework tests/exporters/node/kernel tests/alert_rules tests/test_make.py
smoke: stack
	@echo ">> smoke tests"; $(BIN)/pytest -q -m "not e2e and not integrations" $(SMOKE)

# As root: debootstrapped Debian 12 and 13, Ubuntu 22.04 and 24.04. SYSTEMS_FLAGS=--help for the choices.
test-systems: $(STAMP)
	@echo ">> demo and smoke tests in chroots"; $(BIN)/python -m pyrometer_simulator.systems $(SYSTEMS_FLAGS)

e2e: stack
	@echo ">> end-to-end scenario"; $(BIN)/pytest -m "e2e and not compose"

test-compose: stack
	@echo ">> containers"; $(BIN)/pytest -m compose tests/compose

# PyTorch and the frameworks are gigabytes: an environment of their own. torchtitan without what only its trainer needs.
INTEGRATIONS := .venv-integrations
test-integrations: $(INTEGRATIONS)/.installed
	@echo ">> tests with the real frameworks"; $(INTEGRATIONS)/bin/python -m pytest -m integrations tests/integrations

$(INTEGRATIONS)/.installed: pyproject.toml
	@echo ">> creating $(INTEGRATIONS) and installing PyTorch, transformers, lightning, torchtitan, deepspeed, megatron-core (5 GB, minutes)"
	@$(PYTHON) -m venv $(INTEGRATIONS)
	@set -o pipefail; { $(INTEGRATIONS)/bin/python -m pip install --disable-pip-version-check --editable '.[integrations]' \
		&& $(INTEGRATIONS)/bin/python -m pip install --disable-pip-version-check --no-deps torchtitan==0.3.0; } \
		| sed -un 's/^ *\(Downloading\|Using cached\) \([^ ]*\).*(\(.*\))$$/   \2 (\3)/p; s/^Installing collected.*/   installing/p' \
		|| { echo "make: pip could not install (see above): it needs PyPI, or a mirror of it in pip's configuration" >&2; exit 2; }
	@touch $@

docs: $(STAMP)
	@$(BIN)/python -m pyrometer_exporters.framework.docs docs/metrics.md
	@$(BIN)/python -m pyrometer_alerting.app.docs docs/metrics.md
	@$(BIN)/pyrometer-dashboards build dashboards/json
	@$(BIN)/python benchmarks/signature_confusion.py --write >/dev/null
	@$(BIN)/python benchmarks/signature_drops.py --write >/dev/null

bench: $(STAMP)
	@for b in benchmarks/bench_*.py; do echo ">> $$b"; $(BIN)/python $$b; done

clean:
	rm -rf .venv $(INTEGRATIONS) dist
