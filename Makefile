# make demo | up | test: everything else (virtual environment, packages, demo model) is set up on the way.
# PARTS=postgres,valkey,s3   only these parts (up) or only their logs (logs)
# ARGS=...                   passed on to the demo, to base-model (--license apache-2.0) or to pytest
# DATA=file  MODEL=folder    the demo with your own conversations or another base model
PYTHON_BIN := .venv/bin/python
STACK := $(PYTHON_BIN) -m local_stack
WITHOUT_ENGINE := not engine and not stack and not browser
# Two processes. Files in their own order: by number of tests, as xdist likes it, those of few long tests come last.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder
# Modules that use the same engine to the same process, so that each engine starts once.
BY_ENGINE := -n 2 --dist loadgroup --no-loadscope-reorder
.DEFAULT_GOAL := help
.PHONY: help setup browser named base-model up down status logs demo test test-fast check format lock

help:
	@echo "make demo        the whole job before your eyes: upload, train, chat with and without the adapter"
	@echo "make up          start all parts (Ctrl-C stops them); down, status, logs [PARTS=engine]"
	@echo "make test        all tests; test-fast: those that are quick and need no engine, in about two minutes"
	@echo "make check       lint, types, architecture, migrations, compose file"
	@echo "make base-model  enter another base model in the catalogue: MODEL=hub-id-or-folder (while nothing is up)"
	@echo "make setup       virtual environment, packages and demo model; all of the above do it themselves"

setup:
	@bash local_stack/setup/setup.sh

browser: setup
	@bash local_stack/setup/setup.sh browser

up: setup
	@$(STACK) up $(if $(PARTS),--parts $(PARTS))

down status logs: setup
	@$(STACK) $@ $(if $(PARTS),--parts $(PARTS)) || test $$? = 3

# Before anything is set up or started.
named:
	@test -n "$(MODEL)" || { echo 'Say which: make base-model MODEL=<hub id or folder>, without a model card ARGS="--license apache-2.0"' >&2; exit 2; }

base-model: named setup
	@$(STACK) up --parts postgres,valkey,s3,migrate --once $(PYTHON_BIN) manage.py base_model_add "$(MODEL)" $(ARGS)

demo: setup
	@$(PYTHON_BIN) -m local_stack.demo $(if $(DATA),--data "$(DATA)") $(if $(MODEL),--model "$(MODEL)") $(ARGS)

test: browser
	@$(PYTHON_BIN) -m pytest $(BY_FILE) -m "$(WITHOUT_ENGINE)" --durations 15 $(ARGS)
	@$(PYTHON_BIN) -m pytest $(BY_ENGINE) -m "not ($(WITHOUT_ENGINE))" --durations 15 $(ARGS)

test-fast: setup
	@$(PYTHON_BIN) -m pytest $(BY_FILE) -m "$(WITHOUT_ENGINE) and not slow" $(ARGS)

check: setup
	@bash local_stack/setup/check.sh

format: setup
	@$(PYTHON_BIN) -m ruff check --fix --quiet .
	@$(PYTHON_BIN) -m ruff format --quiet .

lock:
	@bash requirements/lock.sh
