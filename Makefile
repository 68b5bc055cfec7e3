# The commands of this project. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip install -q --disable-pip-version-check

SOURCES := $(shell find csrc python/binding setup.py tools/ga_backend.py -name '*.[ch]' -o -name '*.def' -o -name '*.py' 2>/dev/null)

.PHONY: help demo test build browser ctest pytest sanitize valgrind coverage lint bench clean tools lab lessons notebooks

help:                       ## what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/installed     ## train on handwritten digits as 1 x 128 and as 4 x 32, and compare every bit
	$(PY) -m gradaccum demo

test: $(VENV)/tested ctest pytest   ## C tests and Python tests

build: $(VENV)/editable     ## compile what changed, in place (editable install)
	$(PY) setup.py -q build_ext --inplace

# ---- the environment ----

tools:                      # says what is missing, and the line that installs it
	@command -v gcc >/dev/null || { echo "gcc is missing: apt-get install gcc libc6-dev"; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: use make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
		|| { echo "the Python headers are missing: apt-get install python3-dev"; exit 1; }

$(VENV)/made: | tools
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml $(SOURCES) $(shell find python/gradaccum -name '*.py' -o -name '*.npz' -o -name '*.gz' -o -name '*.txt' -o -name '*.html' -o -name '*.mo')
	@if [ ! -f $(VENV)/editable ]; then $(PIP) .; else $(MAKE) --no-print-directory build; fi
	@touch $@

$(VENV)/editable: $(VENV)/made pyproject.toml
	$(PIP) "setuptools>=77" "numpy>=2.0" "scipy-openblas32>=0.3.34.237.2" || $(PIP) "setuptools>=77" "numpy>=2.0"
	$(PIP) --no-build-isolation -e ".[test]"
	@touch $@

$(VENV)/tested: $(VENV)/editable $(SOURCES)
	$(PY) setup.py -q build_ext --inplace
	@touch $@

# ---- lessons ----

$(VENV)/lessons: $(VENV)/editable
	$(PIP) -e ".[lessons]" --no-build-isolation
	@touch $@

lab: $(VENV)/lessons        ## JupyterLab on the start page of the lessons; LESSONS=vi for the Vietnamese ones
	$(PY) -m jupyterlab --ServerApp.root_dir=$(CURDIR)/notebooks notebooks/$(or $(LESSONS),en)/00_ten_minute_start.ipynb

lessons: $(VENV)/lessons    ## run every lesson and check it
	$(PY) -m pytest tests/test_notebooks.py tests/test_exercises.py

notebooks: $(VENV)/lessons  ## build notebooks/en and notebooks/vi from notebooks/lessons
	$(PY) tools/make_notebooks.py

# ---- tests ----

pytest: $(VENV)/tested      ## Python tests only
	$(PY) -m pytest

browser: $(VENV)/editable   ## tests of cards and of the replay page in a real browser (apt-get install chromium)
	$(PIP) -e ".[browser]" --no-build-isolation
	$(PY) -m pytest tests/test_replay_in_browser.py tests/test_cards_in_browser.py

ctest:                      ## C tests, without Python
	$(MAKE) --no-print-directory -f tests/c/Makefile run

sanitize: $(VENV)/editable  ## address and undefined-behaviour sanitizers over the C tests and the Python tests
	$(MAKE) --no-print-directory -f tests/c/Makefile run BUILD=build/ctest-sanitize \
		EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
	rm -rf build/sanitize && mkdir -p build/sanitize
	GRADACCUM_CFLAGS="-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1 -UNDEBUG" \
	GRADACCUM_LDFLAGS="-fsanitize=address,undefined" \
		$(PIP) --no-build-isolation --no-deps --target build/sanitize .
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 PYTHONPATH=build/sanitize PYTHONMALLOC=malloc \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		$(PY) -m pytest -p no:cacheprovider -m "not resident"

valgrind:                   ## valgrind over the C tests
	$(MAKE) --no-print-directory -f tests/c/Makefile run WRAP="valgrind -q --fair-sched=try --error-exitcode=1 --leak-check=full --errors-for-leak-kinds=definite"

coverage: $(VENV)/editable  ## covered lines of C and Python
	$(PY) tools/coverage.py

lint: $(VENV)/editable      ## ruff
	$(PY) -m ruff check python tests tools benchmarks setup.py

bench: $(VENV)/editable     ## benchmarks
	$(PY) benchmarks/run.py

clean:                      ## remove everything that was made
	rm -rf $(VENV) build dist python/*.egg-info python/gradaccum/_core*.so python/gradaccum/_libs
	find . -name __pycache__ -prune -exec rm -rf {} +
