# Every target sets up what it needs in .venv and says what it is doing.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
# The demo's programs and what they need; then what tests and developers need beside them, in the same .venv.
DEMO := .venv/.demo
STAMP := .venv/.installed
# Tests start hundreds of programs, each of which would compile the same modules. Not for mutants, which are in no file.
export PYTHONDONTWRITEBYTECODE :=
mutate: export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help gpu-check gpu-page setup constraints wheels sbom demo test aside-unit aside-types aside-e2e lint style types unit e2e smoke diagnosis test-recipes test-systems test-wheels test-pythons test-compose test-integrations test-scale fuzz mutate pins release-pins reliability reference packages image command-files kubernetes chart-programs cluster-programs docs bench stack clean situations zoo

define HELP
try
  demo              a simulated cluster end to end: exporters, Prometheus, Alertmanager, alerting (DEMO_FLAGS=... are passed on)
  gpu-check         check what Pyrometer says about the GPU of this machine, in nine minutes (FLAGS=--stand-in without one)

develop
  setup             .venv with all packages and the developers' tools
  test              lint, types, unit tests, rule tests and the demo scenario
  lint, unit, e2e   parts of it; smoke: what differs between systems
  reference         the pages and boards that are made from code: docs/metrics.md, docs/reference/, dashboards/json/
  docs              the same, the tables of docs/signatures.md, and the manual as a site in site/
  situations        play docs/situations.md again and write the page (minutes; WORDS="planned reboot")
  zoo               play the whole machines of tests/zoo, healthy and broken (minutes; MACHINES="NAME ...")
  kubernetes        the files for kustomize, from the Helm chart
  constraints       the newest versions of what we use, into constraints.txt
  test-recipes      the recipes of CONTRIBUTING.md, followed in a scratch copy (minutes)
  test-compose      the demo's scenario in containers (9 minutes; root, or an engine that runs)
  test-scale        several clusters, two Prometheus servers and VictoriaMetrics; what is skipped says how to get it (minutes)
  test-systems      demo and smoke tests in chroots of Debian and Ubuntu, as root (SYSTEMS_FLAGS=--help for the choices)
  test-pythons      the unit tests on Python 3.10 to 3.14, as far as installed (PYTHONS="3.10 newest" TESTS=tests/client)
  test-integrations the hooks with the real PyTorch, Hugging Face, Lightning, Composer, Ray, torchtune, verl and others (11 GB)
  chart-programs    Helm, kubeconform, kustomize, nfpm and schemas, for chart and packages (Go; minutes)
  cluster-programs  kube-apiserver, its controllers and kubectl, for the tests of the Kubernetes pages (Go; minutes)
  clean             remove .venv, .venv-*, dist and site

measure
  bench             the benchmarks
  diagnosis         how often the diagnosis is right: incidents through rules and service, into docs/diagnosis.md (an hour)
  fuzz              every reader of outside data under a fuzzer (10 minutes; FUZZ_SECONDS=30 for each, FUZZ_SEED=1)
  mutate            does a test notice every change of the modules that must not be wrong? (half an hour)
  reliability       fuzz, mutate, and the attacks and figures of benchmarks/, into docs/reliability.md and threat-model.md (two hours, as root)

release
  wheels            the distributions, in dist/
  test-wheels       every distribution, installed alone on the oldest and the newest Python
  packages          .deb and .rpm of the exporters for amd64 and arm64, the chart and the wheels, in dist/
  image             the images for amd64 and arm64 (docker buildx; IMAGE_REGISTRY=registry.example.org/gpu IMAGE_FLAGS=--push)
  command-files     man pages and completions of bash, zsh and fish, in dist/share
  sbom              what each image contains, as CycloneDX, in dist/
  pins              the digests of the images of others, into compose/.env (asks their registries)
  release-pins      the same into every file of the tree that names an image
endef
export HELP
help:
	@echo "$$HELP"

setup: $(STAMP)

# In this order each one's needs are there before it.
DEMO_PARTS := kit client exporters alerting simulator
PARTS := $(DEMO_PARTS) dashboards
PIP := -m pip --disable-pip-version-check
# One line for each package instead of pip's ten.
SHORT := sed -un 's/^ *\(Downloading\|Using cached\) \([^ ]*\).*(\(.*\))$$/   \2 (\3)/p; s/^Installing collected.*/   installing/p'
NO_PIP := { echo "make: pip could not install (see above): it needs PyPI, or a mirror of it in pip's configuration" >&2; exit 2; }

# A .venv is made again when its Python is gone (an upgrade of the system), when it belongs to another checkout (a copied
# folder), and when it comes from before the parts were distributions of their own.
OWN := import os, importlib.metadata as m, pyrometer_simulator as p; \
	assert p.__file__.startswith(os.getcwd() + os.sep); m.version("pyrometer-exporters")
ifneq ($(wildcard $(DEMO)),)
ifneq ($(shell $(BIN)/python -c '$(OWN)' 2>&1 || echo broken),)
.PHONY: $(DEMO)
CLEAR := --clear
endif
endif

INSTALL = $(BIN)/python $(PIP) install --constraint constraints.txt
$(DEMO): constraints.txt VERSION $(DEMO_PARTS:%=%/pyproject.toml)
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: apt-get install python3 python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "make: $$($(PYTHON) --version) is too old: Python 3.10 or newer is needed (make PYTHON=...)" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "make: $(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 2; }
	@$(PYTHON) -c 'import os, sys; sys.exit(os.path.expanduser("~") == "~")' \
		|| { echo "make: this user has no home folder, which pip needs: set HOME to a folder of yours" >&2; exit 2; }
	@[ ! -L .venv ] || { echo "make: .venv is a link, and what it leads to would be cleared: remove the link" >&2; exit 2; }
	@echo ">> creating .venv and installing pyrometer (a minute or two the first time)"
	@$(PYTHON) -m venv $(CLEAR) .venv
	@set -o pipefail; { $(INSTALL) 'pip>=25.1' && $(INSTALL) --group build \
		&& $(INSTALL) --no-build-isolation $(DEMO_PARTS:%=--editable ./%); } | $(SHORT) || $(NO_PIP)
	@touch $@

$(STAMP): $(DEMO) pyproject.toml dashboards/pyproject.toml
	@echo ">> installing the development tools into .venv (a few minutes the first time)"
	@set -o pipefail; { $(INSTALL) --group dev && $(INSTALL) --no-build-isolation --editable ./dashboards; } | $(SHORT) || $(NO_PIP)
	@touch $@

# What each image installs beside our wheels; its Python is newer than 3.10.
IMAGES := exporters=kit,client,exporters alerting=kit,alerting[postgresql] demo=kit,client,exporters,alerting,simulator
HASHED = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --constraint constraints.txt --generate-hashes \
	--no-annotate --custom-compile-command "make constraints" $(PARTS:%=--no-emit-package pyrometer-%) --no-emit-package pyrometer

# The newest versions within the bounds of all pyproject.toml, for every Python from 3.10 on: the diff is what to test.
constraints: $(STAMP)
	@echo ">> constraints.txt"
	@set -o pipefail; $(BIN)/python $(PIP) install --group constraints | $(SHORT) || $(NO_PIP)
	@printf '%s\n' $(PARTS:%='--editable ./%') | $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --upgrade \
		--no-annotate --custom-compile-command "make constraints" --group dev $(PARTS:%=--no-emit-package pyrometer-%) \
		--no-emit-package pyrometer --output-file constraints.txt -
	@echo ">> compose/requirements: the same versions with the hashes of their files, for the images"
	@for image in $(IMAGES); do parts=$${image#*=}; printf -- '--editable ./%s\n' $${parts//,/ } | $(HASHED) \
		--output-file compose/requirements/$${image%%=*}.txt - || exit; done
	@echo hatchling | $(HASHED) --output-file compose/requirements/build.txt -

# What a site copies to its hosts: pip install --find-links dist pyrometer-exporters
WHEELS := kit client exporters alerting dashboards
wheels: $(STAMP)
	@rm -rf dist; $(BIN)/python $(PIP) wheel --quiet --no-build-isolation --no-deps --wheel-dir dist $(WHEELS:%=./%) || $(NO_PIP)
	@ls dist

# Everything that a release consists of but the images, in the version of VERSION; a tag must be of it.
packages: wheels
	@tag=$$(git describe --tags --exact-match 2>/dev/null); [ -z "$$tag" ] || [ "$$tag" = "v$$(cat VERSION)" ] \
		|| { echo "make: the tag is $$tag and VERSION says $$(cat VERSION)" >&2; exit 2; }; \
		[ -z "$$tag" ] || $(PYTHON) tools/pin_images.py --unpinned \
		|| { echo "make: a release names every image by its digest: make release-pins" >&2; exit 2; }
	@$(BIN)/python -m tools.packages dist
	@$(BIN)/python tools/chart.py package dist; cd dist && sha256sum pyrometer* >SHA256SUMS && ls

# A build for several machines has no image to load: push it, or IMAGE_PLATFORMS=linux/amd64 IMAGE_FLAGS=--load.
IMAGE_REGISTRY ?=
IMAGE_PLATFORMS ?= linux/amd64,linux/arm64
PUSHED = $(findstring --push,$(IMAGE_FLAGS))
# Builds on a base image by its digest to push: that of PYTHON_IMAGE or the tree, else its registry is asked.
image:
	@set -e; if [ -n "$(PUSHED)" ]; then base=$$($(PYTHON) tools/pin_images.py --base); export PYTHON_IMAGE=$$base; mkdir -p dist; fi; \
		PYROMETER_VERSION=$$(cat VERSION) IMAGE_REGISTRY=$(if $(IMAGE_REGISTRY),$(IMAGE_REGISTRY:%/=%)/) IMAGE_PLATFORMS=$(IMAGE_PLATFORMS) \
		docker buildx bake --file compose/docker-bake.hcl $(IMAGE_FLAGS) $(PUSHED:%=--metadata-file=dist/images.json); \
		if [ -n "$(PUSHED)" ]; then $(PYTHON) tools/pin_images.py --built dist/images.json; fi

stack: $(DEMO)
	@$(BIN)/python -m pyrometer_simulator.stack

demo: stack
	@$(BIN)/pyrometer-demo $(DEMO_FLAGS)

# The scenario mostly waits, and a type checker has one thread: both run beside the tests, and what they said is shown after them.
ASIDE := types e2e
FAILED := .venv/failed.txt
test: style stack
	@rm -f $(FAILED); echo ">> types and end-to-end scenario: beside the tests, told after them"
	@$(MAKE) --no-print-directory --keep-going --jobs=3 aside-e2e aside-types aside-unit; cat $(ASIDE:%=.venv/%.txt); \
		test ! -e $(FAILED) || { echo "make: failed: $$(sort $(FAILED) | paste -sd' ')" >&2; exit 2; }

# Ctrl-C ends all, as make passes it on to what it started itself (a shell's background job would not hear it).
aside-unit aside-types aside-e2e: aside-%:
	@$(MAKE) --no-print-directory $* $(if $(filter $(ASIDE),$*),>.venv/$*.txt 2>&1) || { echo $* >>$(FAILED); exit 1; }

lint: style types

style: $(STAMP)
	@echo ">> ruff"; $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo ">> secrets"; $(BIN)/python tools/secret_scan.py

types: $(STAMP)
	@echo ">> mypy"; $(BIN)/mypy
	@echo ">> pyright"; $(BIN)/pyright --project pyproject.toml # else a pyrightconfig.json in a folder above would win

# A file's tests stay together, as they share what is dear to make. Twice as many processes as cores, since for part of the
# time they wait for programs that they start: make test on two cores in 9 min 47 s, with three processes in 10 min 19 s.
WORKERS := $(shell workers=$$(( 2 * $$(nproc) )); echo $$(( workers > 8 ? 8 : workers )))
SPREAD := --numprocesses=$(WORKERS) --dist=loadfile
# Threads of a matrix product that wait for each other take the cores from the other processes.
unit: export OPENBLAS_NUM_THREADS := 1
unit: $(STAMP) stack
	@echo ">> tests"; $(BIN)/pytest $(SPREAD)

# What differs between systems: the stack, the demo's parts, the kernel log, the client's hooks into Python's own exit. Floods
# of the log are about speed, which the containers of a busy machine say nothing about.
SMOKE := tests/simulator/stack tests/simulator/demo tests/simulator/systems tests/simulator/test_engine.py \
	tests/exporters/node/kernel tests/client/test_*.py --ignore=tests/exporters/node/kernel/test_follow_flood.py
smoke: $(STAMP) stack
	@echo ">> smoke tests"; $(BIN)/pytest -q $(SMOKE)

# As root: debootstrapped Debian 12 and 13, Ubuntu 22.04 and 24.04. SYSTEMS_FLAGS=--help for the choices.
test-systems: $(STAMP)
	@echo ">> demo and smoke tests on other systems"; $(BIN)/python -m pyrometer_simulator.systems $(SYSTEMS_FLAGS)

# They mostly sleep, so three processes. By file, as the tests of one share what takes minutes.
E2E := tests/e2e tests/simulator/incidents tests/dashboards tests/alerting/test_three_alertmanagers.py
e2e: $(STAMP) stack
	@echo ">> end-to-end scenario"; $(BIN)/pytest -m "e2e and not compose" --numprocesses=3 --dist=loadfile $(E2E)

test-recipes: $(STAMP) stack
	@echo ">> recipes of CONTRIBUTING.md"; $(BIN)/pytest -m recipes tests/docs

# Minutes: every wheel built, and installed alone on the oldest and the newest Python; upgrade, way back and uninstallation.
test-wheels: $(STAMP)
	@echo ">> wheels"; $(BIN)/pytest -m wheels tests/distributions

# make test-pythons PYTHONS="3.10 newest" TESTS=tests/client
test-pythons: $(STAMP) stack
	@$(BIN)/python tools/pythons.py $(PYTHONS) -- -m "$(UNIT)" $(TESTS)

test-compose: $(STAMP) stack
	@echo ">> containers"; $(BIN)/pytest -m compose tests/compose

# Several clusters in one view, and what is beside or above one Prometheus. Parts without their engine say how to get it.
SCALE := tests/e2e/test_consumers.py tests/e2e/test_victoria_cluster.py tests/e2e/test_thanos.py tests/e2e/test_mimir.py \
	tests/e2e/test_keep_batches.py tests/dashboards/test_real_prometheus.py tests/alerting/test_three_alertmanagers.py \
	tests/alert_rules/test_rule_shards.py tests/alert_rules/test_rule_labels.py tests/benchmarks/test_bench_scale.py tests/alerting/policy/test_real_queries.py
test-scale: $(STAMP) stack
	@echo ">> past one machine"; $(BIN)/pytest -rs -m e2e $(SCALE)
	@$(BIN)/python benchmarks/bench_profiles.py

# PyTorch and the frameworks are gigabytes: an environment of their own. torchtitan and verl without what only their trainers
# need; Composer without its old PyTorch. torchtune's last version needs an old one: an environment for that pair.
INTEGRATIONS := .venv-integrations
TORCHTUNE := .venv-torchtune
test-integrations: $(INTEGRATIONS)/.installed $(TORCHTUNE)/.installed
	@echo ">> tests with the real frameworks"; $(INTEGRATIONS)/bin/python -m pytest -m integrations tests/integrations
	@echo ">> torchtune"; $(TORCHTUNE)/bin/python -m pytest -m integrations tests/integrations/test_torchtune.py

$(TORCHTUNE)/.installed: pyproject.toml $(PARTS:%=%/pyproject.toml)
	@echo ">> creating $(TORCHTUNE) and installing torchtune with its PyTorch (5 GB, minutes)"
	@$(PYTHON) -m venv $(TORCHTUNE)
	@set -o pipefail; { $(TORCHTUNE)/bin/python $(PIP) install 'pip>=25.1' \
		&& $(TORCHTUNE)/bin/python $(PIP) install --group torchtune --editable ./kit --editable ./client --editable ./exporters \
		&& $(TORCHTUNE)/bin/python $(PIP) install --no-deps --editable ./simulator; } \
		| $(SHORT) || $(NO_PIP)
	@touch $@

$(INTEGRATIONS)/.installed: pyproject.toml $(PARTS:%=%/pyproject.toml)
	@echo ">> creating $(INTEGRATIONS) and installing PyTorch, transformers, lightning, composer, ray and others (6 GB, minutes)"
	@$(PYTHON) -m venv $(INTEGRATIONS)
	@set -o pipefail; { $(INTEGRATIONS)/bin/python $(PIP) install 'pip>=25.1' \
		&& $(INTEGRATIONS)/bin/python $(PIP) install --group integrations --editable ./kit --editable ./client --editable ./exporters --editable ./alerting \
		&& $(INTEGRATIONS)/bin/python $(PIP) install --no-deps torchtitan==0.3.0 mosaicml==0.32.1 verl==0.9.1 TransferQueue==0.1.11 --editable ./simulator; } \
		| $(SHORT) || $(NO_PIP)
	@touch $@

# Whole machines, healthy and broken; names play only those.
zoo: $(STAMP) stack
	@$(BIN)/python -m pyrometer_simulator.zoo --alerts --write docs/zoo.md $(MACHINES)

# The page of what fires in which situation; a part of the names plays only those again.
situations: $(STAMP) stack
	@$(BIN)/python -m pyrometer_simulator.situations --write docs/situations.md $(WORDS)

# Every page and board whose truth is in the code. Quick: after each change of a metric, alert, flag or panel.
reference: $(STAMP)
	@$(BIN)/python -m tools.metrics_page docs/metrics.md
	@$(BIN)/python tools/reference.py commands docs/reference/commands.md
	@$(BIN)/python tools/reference.py alerts docs/reference/alerts.md
	@$(BIN)/python tools/reference.py checks docs/reference/checks.md
	@$(BIN)/python tools/reference.py peaks docs/reference/peaks.md
	@$(BIN)/python -m tools.kernel_lines docs/reference/kernel-lines.md
	@$(BIN)/python tools/flops_figures.py docs/reference/flops.md
	@$(BIN)/pyrometer-dashboards build dashboards/json
	@$(BIN)/python -m tools.metric_profiles exporters/pyrometer_exporters/node/profiles.py
	@$(BIN)/python tools/chart.py boards dashboards/json
	@$(BIN)/python -m tools.metrics_used docs/reference/metrics-used.md
	@$(BIN)/python tools/gpu_check.py --page docs/on-a-gpu.md
	@$(BIN)/python tools/messages_page.py docs/messages.md

command-files: $(STAMP)
	@$(BIN)/python -m tools.command_files dist/share; ls -d dist/share/*

# compose/kubernetes from compose/helm; needs Helm (chart-programs builds one).
kubernetes: $(STAMP)
	@$(BIN)/python tools/chart.py render compose/kubernetes

chart-programs: $(STAMP)
	@$(BIN)/python tools/chart.py programs

# kube-apiserver, kube-controller-manager and kubectl: tests/compose/test_real_*.py, which need etcd besides (etcd-server).
cluster-programs: $(STAMP)
	@$(BIN)/python tools/chart.py cluster

docs: reference
	@$(BIN)/python benchmarks/signature_confusion.py --write >/dev/null
	@$(BIN)/python benchmarks/signature_drops.py --write >/dev/null
	@echo ">> the manual: site/index.html"; NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# How often the diagnosis is right: about an hour for all kinds and two seeds that nothing was chosen with.
DIAGNOSIS_SEEDS := 204-205
diagnosis: $(STAMP) stack
	@$(BIN)/python -m pyrometer_simulator.incidents --seeds $(DIAGNOSIS_SEEDS) --verbose --write docs/diagnosis.md

# What each image contains, as CycloneDX.
sbom: $(STAMP)
	@set -o pipefail; $(BIN)/python $(PIP) install --group sbom | $(SHORT) || $(NO_PIP)
	@mkdir -p dist; for image in $(IMAGES); do PATH=$(abspath $(BIN)):$$PATH tools/sbom.sh $${image%%=*} $${image#*=} \
		dist/pyrometer-$${image%%=*}.cdx.json || exit; done; ls dist/*.cdx.json

# Digests into every file of the tree that names an image: before a release.
release-pins: $(STAMP)
	@$(BIN)/python tools/pin_images.py --tree && $(BIN)/python tools/pin_images.py --unpinned

# Needs the registries, or the mirrors that compose/.env names.
pins: $(STAMP)
	@$(BIN)/python tools/pin_images.py --write compose/.env; $(BIN)/python tools/pin_images.py --check compose/.env

# New inputs are kept in tests/simulator/fuzz, which the unit tests replay. libFuzzer needs a Python that atheris has a wheel for.
FUZZ_SECONDS := 30
FUZZ_SEED := 1
RESULTS := benchmarks/results
fuzz: $(STAMP)
	@set -o pipefail; $(BIN)/python $(PIP) install --group fuzz | $(SHORT) || $(NO_PIP)
	@echo ">> fuzzing"; $(BIN)/python -m pyrometer_simulator.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --keep \
		--write $(RESULTS)/fuzz.json

mutate: $(STAMP)
	@echo ">> mutation testing"; $(BIN)/python tools/mutate.py --write $(RESULTS)/mutation.json

# One command for docs/reliability.md: a finding or a survivor is in the page, and fails it at the end.
reliability: $(STAMP)
	@failed=0; for part in fuzz mutate; do $(MAKE) --no-print-directory $$part || failed=1; done; \
		$(BIN)/python tools/reliability.py --measure --figures --write || failed=1; exit $$failed

bench: $(STAMP)
	@for b in benchmarks/bench_*.py; do echo ">> $$b"; $(BIN)/python $$b; done

# With the Python at hand, which has PyTorch: nothing is installed. FLAGS="--stand-in --only abc", --help for all.
gpu-check:
	@$(PYTHON) tools/gpu_check.py $(FLAGS)

gpu-page: $(STAMP)
	@$(BIN)/python tools/gpu_check.py --page docs/on-a-gpu.md

clean:
	rm -rf .venv .venv-pythons $(INTEGRATIONS) dist site
