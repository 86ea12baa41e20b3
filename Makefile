# affidavit: what there is to do. `make` alone lists it.
VENV    := .venv
PY      := $(VENV)/bin/python
PIP     := $(PY) -m pip --disable-pip-version-check
PYTHON  ?= python3.11
SOURCES := $(shell find native/src -name '*.cpp' -o -name '*.h') native/CMakeLists.txt native/generate_stubs.py
PROTOS  := $(shell find protos -name '*.proto')
PINS    := $(wildcard requirements/*.txt) pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-all lint fmt protos bench clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

setup: build/.installed ## virtual environment, pinned dependencies, native module, stubs

$(PY):
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is missing: apt-get install python3.11 python3.11-venv (or make PYTHON=/path/to/python3.11)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || { echo "$(PYTHON) is older than 3.11: apt-get install python3.11 python3.11-venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "Python's venv module is missing: apt-get install python3.11-venv"; exit 1; }
	@command -v c++ >/dev/null || { echo "A C++20 compiler is missing: apt-get install g++"; exit 1; }
	$(PYTHON) -m venv $(VENV)

build/.dependencies: $(PINS) | $(PY)
	@mkdir -p build
	$(PIP) install -q --no-deps --require-hashes -r requirements/pdfium.txt
	$(PIP) install -q --no-deps -r requirements/weights.txt
	$(PIP) install -q -c requirements/constraints.txt -r requirements/build.txt
	$(PY) requirements/list.py dev pkcs11 > build/dependencies.txt
	$(PIP) install -q -c requirements/constraints.txt -r build/dependencies.txt
	@touch $@

build/.installed: build/.dependencies $(SOURCES) $(PROTOS)
	$(PIP) install -q --no-build-isolation --no-deps -e .
	@mkdir -p build/typing/affidavit
	@for d in libs services tools; do ln -sfn ../../../$$d build/typing/affidavit/$$d; done
	@for d in build/native/stubs/affidavit/*/; do ln -sfn ../../native/stubs/affidavit/$$(basename $$d) build/typing/affidavit/$$(basename $$d); done
	@ln -sfn ../../native/_native.pyi build/typing/affidavit/_native.pyi
	@touch $@

protos: setup ## generate the stubs again after a proto changed

demo: setup ## start everything, read a scanned letter, verify its receipt, stop everything
	@$(VENV)/bin/affidavit demo

up: setup ## start the services; Ctrl-C stops them
	@$(VENV)/bin/affidavit up

test: setup ## the essential tests (8 minutes at most)
	$(PY) -m pytest -m "not slow" -n 2 --dist loadfile

test-all: setup lint ## every test, sanitizer builds included
	$(PY) -m pytest

lint: setup ## ruff, pyright, buf, import-linter, clang-format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/buf lint
	$(VENV)/bin/lint-imports
	$(VENV)/bin/clang-format --dry-run --Werror $$(find native/src native/tests tests/crash/faults -name '*.cpp' -o -name '*.h' -o -name '*.c')

fmt: setup ## format Python and C++
	$(VENV)/bin/ruff check --fix-only -q .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $$(find native/src native/tests tests/crash/faults -name '*.cpp' -o -name '*.h' -o -name '*.c')

bench: setup ## the benchmarks, quick form
	$(VENV)/bin/affidavit bench ocr --quick

clean: ## remove what was built
	rm -rf build $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
