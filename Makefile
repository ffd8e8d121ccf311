# The one door: people and CI run these targets. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 >/dev/null 2>&1 && python3.11 -c "" >/dev/null 2>&1 && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
ARGS ?=
DEMO := build/demo
DEMO_ROWS := 6_000_000
CHECKED := src tests benchmarks tools recipes
CORE_SOURCES := $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.inc' -o -name CMakeLists.txt 2>/dev/null)
BENCHES := $(basename $(notdir $(shell grep -l '^if __name__ ==' benchmarks/*.py 2>/dev/null)))
# ThreadSanitizer fails at start where the kernel randomises more address bits than it knows.
FIXED_ADDRESSES := $(shell setarch -R true >/dev/null 2>&1 && echo setarch -R)
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup build test nightly lint format bench native-test native-sanitize demo setup-peers clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(VENV)/built ## everything into .venv from the package index, the core built (again: nothing to do)

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed; $(PYTHON) is `$(PYTHON) -V 2>&1`. Say make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: its venv module is missing"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# The requirements are pyproject.toml's own, so that a core that does not compile yet stops nothing else.
$(VENV)/installed: $(VENV)/made pyproject.toml constraints.txt
	@$(BIN)/python tools/torch_build.py constraints.txt
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*p["build-system"]["requires"], *p["project"]["dependencies"], \
	        *p["project"]["optional-dependencies"]["dev"], sep="\n")' > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement $(VENV)/requirements.txt
	@touch $@

build: $(VENV)/built ## rebuild the core if its sources changed, and install it into .venv in editable form

$(VENV)/built: $(VENV)/installed $(CORE_SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@cd $(VENV) && bin/python -c 'import stepwell.native._core'
	@touch $@

test: build ## the tests, without the nightly ones (ARGS="-k name" goes to pytest)
	$(BIN)/python -m pytest -m "not nightly" $(ARGS)

nightly: build ## all tests
	$(BIN)/python -m pytest --timeout 3600 $(ARGS)

lint: $(VENV)/installed ## ruff, formatting and types
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(VENV)/installed ## rewrite Python files in the house's form
	$(BIN)/ruff check --fix-only $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: build ## every benchmark, rows added to benchmarks/results (ARGS="--quick")
	set -e; for bench in $(BENCHES); do $(BIN)/python -m benchmarks.$$bench --save $(ARGS); done

native-test: $(VENV)/installed ## the core's own tests
	$(call run_native_tests,release,)

native-sanitize: $(VENV)/installed ## the core's own tests under ASan with UBSan, then under TSan
	$(call run_native_tests,address,)
	$(call run_native_tests,thread,$(FIXED_ADDRESSES))

# run_native_tests(release|address|thread, command in front of ctest)
define run_native_tests
	$(BIN)/cmake -S native -B build/native-$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DSTEPWELL_TESTS=ON -DSTEPWELL_SANITIZE=$(filter-out release,$(1)) --log-level=WARNING
	$(BIN)/cmake --build build/native-$(1)
	ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
	  $(2) $(BIN)/ctest --test-dir build/native-$(1) --output-on-failure --no-tests=error --parallel $(JOBS)
endef

demo: build $(DEMO)/train/synthetic.json $(DEMO)/evaluation/synthetic.json ## train with most rows on SSD, evaluate against the best AUC there is, write a report
	rm -rf $(DEMO)/run
	$(BIN)/stepwell train recipes/demo.py --out $(DEMO)/run
	$(BIN)/stepwell eval $(DEMO)/run --against teacher --within 0.01
	@echo "the report: `$(BIN)/stepwell report $(DEMO)/run`"

# Synthetic samples of Criteo's shape; those to evaluate on come after those to train on. Made once.
$(DEMO)/train/synthetic.json: | build
	rm -rf $(@D)
	$(BIN)/stepwell data synth $(@D) --rows $(DEMO_ROWS)

$(DEMO)/evaluation/synthetic.json: | build
	rm -rf $(@D)
	$(BIN)/stepwell data synth $(@D) --rows 200_000 --set first_row=$(DEMO_ROWS)

setup-peers: $(VENV)/installed ## what the benchmarks compare with: RocksDB, LMDB, FBGEMM, fio
	$(BIN)/python -m pip install --quiet rocksdict lmdb fbgemm-gpu-cpu==1.8.0 # the FBGEMM that was built for torch 2.13
	@if command -v fio >/dev/null; then echo "fio: `fio --version`"; \
	elif [ "`id -u`" = 0 ] && command -v apt-get >/dev/null; then apt-get update -qq && apt-get install -y -qq fio; \
	else echo "fio is missing: install it with the system's package manager (for example apt-get install fio)"; exit 1; fi

clean: ## remove what was built; .venv stays
	rm -rf build dist $(VENV)/built .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
