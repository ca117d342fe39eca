# make demo: set up and map real data, federated.    make test: set up and run every check.    make docs: the site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test slow docs setup clean

demo: setup
	$(BIN)/raydr run digits-fed-umap
	$(BIN)/raydr run digits-fed-tsne

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy raydr  # with actors, scenarios and tune, to which it links
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

slow: setup
	$(BIN)/python -m pytest -m slow

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo site/index.html

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "raydr needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -W ignore -c 'import umap'  # compiles what pynndescent keeps compiled: 15 s, once
	touch $(INSTALLED)

clean:
	rm -rf $(VENV)
