# make demo: set up and map real data, federated.    make test: set up and run every check.    make docs: the site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# What uses each library that raydr stands on, in a minute or two.
SOME_TESTS := $(addprefix tests/, embedding/test_embedding.py front/test_estimators.py data/test_data_files.py front/test_finished.py metrics/test_metrics.py \
  data/test_own_data.py methods/fedne/test_fedne_numerics.py privacy/test_accounting.py tune/test_sweeps.py report/test_report.py methods/test_methods.py)

# pytest keeps the tests that it has rewritten, or each of its processes rewrites all: half of the time of collecting them.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test checks warm fast slow mutants docs lowest dist setup clean

demo: setup
	$(BIN)/raydr run digits-fed-umap
	$(BIN)/raydr run digits-fed-tsne

test: setup
	$(MAKE) -j 2 checks warm
	$(BIN)/python -m pytest

checks: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy raydr benchmarks  # raydr links to actors, scenarios and tune
	$(BIN)/lint-imports

# What each test process would do at its start, done once: compile modules, tests and inner loops.
warm: setup
	$(BIN)/python -m compileall -q raydr tests
	$(BIN)/python tests/support/warm.py

# Tests that take less than 0.4 seconds and need no Ray, no browser and no data.
fast: setup
	$(BIN)/python -m pytest -m 'not (slow or long or ray or browser or data)'

slow: setup
	$(BIN)/python -m pytest -m slow

# Changes the code of ROOM in one place at a time; lists the changes that no test notices. SAMPLE=100 takes that many.
mutants: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[mutation]'
	$(BIN)/python tests/mutants.py $(ROOM) $(if $(SAMPLE),--sample $(SAMPLE))

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo site/index.html

# The fast tests with the oldest versions that pyproject.toml allows. constraints-lowest.txt is made by
# uv pip compile --resolution lowest-direct --extra all pyproject.toml -o constraints-lowest.txt
# Its first line records success; `make test` checks that it is of today's bounds. On Linux, torch brings CUDA here: 7 GB.
lowest:
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt '.[all]' \
	  pytest pytest-timeout pytest-xdist hypothesis polars==1.0.0 zadu==0.5.4 hdbscan==0.8.44
	build/lowest/bin/python -W ignore -m pytest -m 'not (slow or ray or browser or data)'
	build/lowest/bin/python tests/support/lowest_bounds.py

# Built, installed into an empty environment, and tested there by the source distribution's tests, without its source.
dist: setup
	rm -rf dist build/lib build/dist
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --quiet
	$(PYTHON) -m venv --clear build/dist/environment
	build/dist/environment/bin/python -m pip install --quiet --constraint constraints.txt \
	  "$$(echo dist/raydr-*.whl)[all]" pytest pytest-timeout pytest-xdist hypothesis polars
	tar -xzf dist/raydr-*.tar.gz -C build/dist --strip-components=1
	rm -r build/dist/raydr
	cd build/dist && environment/bin/python -W ignore -m pytest -n 2 $(SOME_TESTS)

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "raydr needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(INSTALLED)

clean:
	rm -rf $(VENV)
