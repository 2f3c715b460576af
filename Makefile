.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --root-user-action=ignore

VERSIONS := 15 16 18

# Some machines forbid it; then each of the processes that the tests start compiles all it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install setup components demo test test-all coverage matrix check format torture bench against docs docs-site pictures lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cograil needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

# What `make setup` installed already has all of it.
$(RUNTIME): requirements-runtime.lock pyproject.toml | $(BIN)/python
	@test -e $(STAMP) || $(PIP) -r requirements-runtime.lock
	@test -e $(STAMP) || $(PIP) --no-deps -e .
	@touch $@

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@$(PIP) -r requirements.lock
	@$(PIP) --no-deps -e .
	@touch $@

install: $(RUNTIME)  ## make .venv with cograil and what it needs to run

setup: $(STAMP)  ## make .venv with cograil, all extras and the tools to work on it

demo: install  ## start cograil on its own PostgreSQL and run examples/demo.yaml
	@$(BIN)/python -m cograil demo

# As root (as in CI) they are installed with apt; otherwise this says what to install.
components:  ## what the tests need beside Python: PgBouncer, PostgreSQL 15, Docker, podman, bubblewrap, promtool, chromium, tesseract, and node, php and go for the examples
	@missing=""; \
	PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || missing="pgbouncer"; \
	test -x /usr/lib/postgresql/15/bin/postgres || missing="$$missing postgresql-15"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v php >/dev/null || missing="$$missing php-cli"; \
	command -v go >/dev/null || missing="$$missing golang-go"; \
	PATH="$$PATH:/usr/sbin" command -v dockerd >/dev/null || missing="$$missing docker.io"; \
	command -v podman >/dev/null && test -x /usr/libexec/podman/catatonit || missing="$$missing podman catatonit"; \
	command -v runc >/dev/null || test -x /usr/sbin/runc || missing="$$missing runc"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	command -v bwrap >/dev/null || missing="$$missing bubblewrap"; \
	command -v busybox >/dev/null || missing="$$missing busybox-static"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	command -v tesseract >/dev/null || missing="$$missing tesseract-ocr"; \
	for one in fra eng; do \
	  tesseract --list-langs 2>/dev/null | grep -qx $$one || missing="$$missing tesseract-ocr-$$one"; done; \
	command -v gs >/dev/null || missing="$$missing ghostscript"; \
	command -v pngquant >/dev/null || missing="$$missing pngquant"; \
	ldconfig -p 2>/dev/null | grep -q libarchive.so || test -e /usr/lib/x86_64-linux-gnu/libarchive.so.13 || missing="$$missing libarchive13"; \
	test -e /usr/share/fonts/truetype/dejavu/DejaVuSerif.ttf || missing="$$missing fonts-dejavu-core"; \
	if test -z "$$missing"; then exit 0; fi; \
	if test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
	  echo "the tests of these are skipped until they are installed (Debian: sudo apt-get install $$missing)"; exit 0; fi; \
	echo "installing $$missing"; export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; \
	for one in $$missing; do apt-get install -y -qq --no-install-recommends $$one >/dev/null || echo "apt has no $$one"; done

# With CI=true (or 1) a missing component is an error and many failures end the run early; otherwise its tests are skipped.
MAXFAIL := $(if $(filter 1 true TRUE,$(CI)),--maxfail 25)

# What fails runs once more by itself: see tools/run_tests.py.
test: setup components  ## run the tests of every change: unit, contract, database, one pass of each app and the browser
	@$(BIN)/python -m tools.run_tests -n 3 $(MAXFAIL) -m "not slow" --durations 40 --durations-min 3

test-all: setup components  ## run the other tests: processes, crashes, upgrades, generated requests, OCR, every page
	@$(BIN)/python -m tools.run_tests -n 3 $(MAXFAIL) -m slow --durations 40 --durations-min 3

coverage: setup components  ## run all tests but torture and print which lines of src they do not reach
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n 3 $(COVERAGE_TESTS)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

matrix: setup components  ## the tests of the database on every PostgreSQL: make matrix VERSIONS="15 16 18"
	@for version in $(VERSIONS); do \
	  echo "PostgreSQL $$version"; \
	  COGRAIL_TEST_PG=$$version $(BIN)/pytest -n 2 tests/database tests/contract || exit 1; done

check: setup  ## format, lint, imports, types, words, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m tools.vocabulary
	$(MAKE) test

format: setup  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

torture: setup  ## every crash point, every pause, many more seeds (long)
	$(BIN)/pytest -m torture -n 2 --timeout 3600 tests/torture tests/acceptance tests/apps \
		tests/unit/test_workspace_fuzz.py

bench: setup  ## measure, print a table, write bench/latest.json
	$(BIN)/python -m bench

against: setup  ## measure a commit and what is here now in turns: make against REV=HEAD~5
	$(BIN)/python -m bench.against $(REV)

docs: setup  ## write what is generated: the reference pages, the client that waits
	$(BIN)/python -m tools.clients
	$(BIN)/python -m tools.reference

docs-site: setup  ## build the documentation site into site/, in strict mode
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

pictures: setup components  ## make the pictures of docs/how-to/ui.md
	$(BIN)/python -m tools.screenshots
	$(BIN)/python -m tools.app_pictures

lock:  ## resolve the dependencies anew (needs uv)
	env -u UV_INDEX_URL -u UV_DEFAULT_INDEX -u UV_INDEX -u UV_EXTRA_INDEX_URL uv lock --no-config
	uv export --quiet --frozen --all-extras --no-emit-project --no-header -o requirements.lock
	uv export --quiet --frozen --no-dev --no-emit-project --no-header -o requirements-runtime.lock

clean:  ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache site
