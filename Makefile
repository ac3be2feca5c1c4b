# `make check` runs the main job and `make test` the tests; each sets up a local .venv first.
# Needs only make and Python 3.11 or newer; choose another interpreter with `make PYTHON=/path/to/python3`.

VENV_PYTHON = .venv/bin/python

.PHONY: check test nightly lint pages docs lock
.DELETE_ON_ERROR:

check: .venv/complete
	$(VENV_PYTHON) -m hitbound check --known hitbound/known/vllm.json

test: .venv/complete
	$(VENV_PYTHON) -m pytest -n auto --dist worksteal

nightly: .venv/complete
	$(VENV_PYTHON) -m pytest -m nightly

lint: .venv/complete
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy

# An environment whose interpreter is gone is made anew.
ifneq ($(shell $(VENV_PYTHON) -c 'print("works")' 2>/dev/null),works)
.PHONY: .venv/complete
endif

# The file is made last, so an environment without it is unfinished and is made anew.
.venv/complete: requirements.lock pyproject.toml
	@rm -rf .venv
	@for candidate in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python); do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        python="$$candidate"; break; \
	    fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "hitbound needs Python 3.11 or newer with the modules venv and ensurepip, and found none." >&2; \
	    echo "Install one (on Debian: python3 and python3-venv), or name one: make PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	echo "setting up .venv with $$("$$python" --version)" && \
	"$$python" -m venv .venv && \
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Pages that the code writes.
pages: .venv/complete
	$(VENV_PYTHON) -m hitbound invariants --format markdown > docs/invariants.md.new
	mv docs/invariants.md.new docs/invariants.md
	$(VENV_PYTHON) -m hitbound draw tests/corpus/S02.json --as svg --policy vllm-0.24 > docs/figures/S02.svg.new
	mv docs/figures/S02.svg.new docs/figures/S02.svg

# The documentation as a site, in build/docs; a broken link is an error.
docs: .venv/complete
	$(VENV_PYTHON) -m sphinx --fail-on-warning --nitpicky --builder html docs build/docs

# Pins what the set-up installs, for every Python and platform. Needs uv on the path.
lock:
	uv pip compile pyproject.toml --extra cvc5 --group dev --universal --python-version 3.11 --generate-hashes \
	    --upgrade --no-header --no-annotate --output-file requirements.lock
