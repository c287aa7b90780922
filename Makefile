# Targets for developers; `make help` lists them. All work in a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
BUILD ?= build
TARGET ?= aarch64
EXTRAS ?=
comma = ,
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help venv build native demo test soak bench lint generate cross amalgamate clean

help: ## shows this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Stamp files record that an installation is newer than the sources: an unchanged tree is not installed again.
SOURCES = $(shell find runtime_c kernels_x86 kernels_arm schema pyruntime converters CMakeLists.txt pyproject.toml \
	-type f -not -name '*.pyc')

$(VENV)/.demo-stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet ".[examples]"
	@touch $@

# EXTRAS=torch also installs what the tests of that extra need. The versions in .ci/constraints.txt have no CUDA.
$(VENV)/.test-stamp$(EXTRAS): $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet -c .ci/constraints.txt ".[examples,test$(if $(EXTRAS),$(comma)$(EXTRAS))]"
	@touch $@

$(VENV)/.lint-stamp: $(VENV)/.test-stamp$(EXTRAS)
	$(BIN)/python -m pip install --quiet ".[examples,test,dev]"
	@touch $@

venv: $(VENV)/.test-stamp$(EXTRAS) ## creates the virtual environment .venv with linnet and everything the tests need

native: ## builds liblinnet, liblinnet_sync, linnet-bench, linnet-run, linnet-train and the C tests in build/ (needs cmake)
	cmake -S . -B $(BUILD) $(if $(shell command -v ninja),-G Ninja) -DCMAKE_BUILD_TYPE=Release -DLINNET_WERROR=ON > /dev/null
	cmake --build $(BUILD) -j $(JOBS)

demo: $(VENV)/.demo-stamp ## runs the main demo: reads a page of text at f32, f16, i16 and i8, and prints one table
	$(BIN)/python -m examples.demo --out demo-out

test: ## installs what is missing and runs all tests, a process per core (at most 25 minutes on 2 cores)
	.ci/packages
	$(MAKE) --no-print-directory $(VENV)/.test-stamp$(EXTRAS)
	$(BIN)/python -m pytest tests -q -n $(JOBS) --dist loadfile $(PYTEST)

soak: ## runs long fuzzing and parameter sweeps (an hour)
	.ci/packages
	$(MAKE) --no-print-directory EXTRAS=torch $(VENV)/.test-stamptorch
	$(BIN)/python -m pip install --quiet -c .ci/constraints.txt torchvision "ray>=2.40" "flwr>=1.21"
	$(BIN)/python -m pytest tests -q -m soak $(PYTEST)

bench: $(VENV)/.test-stamp$(EXTRAS) native ## measures speed against ONNX Runtime in one interleaved run, and runs the micro-benchmarks
	$(BUILD)/bench_gemm
	$(BIN)/python -m tests.bench_kernels --seconds 0.1
	$(BIN)/python -m tests.bench_peers --json $(BUILD)/bench.json
	$(BIN)/python -m pytest tests/bench_overhead.py -q -s --benchmark-columns=min,median,ops

lint: $(VENV)/.lint-stamp ## runs clang-format, ruff and mypy, and checks that generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' | grep -v generated)
	$(BIN)/python schema/generate.py --check

generate: ## writes the generated files from schema/
	$(PYTHON) schema/generate.py
	$(PYTHON) -m linnet.converters.coverage docs/ops.md

cross: ## builds the library and native tools for TARGET=aarch64 in build-$(TARGET)/
	cmake -S . -B build-$(TARGET) $(if $(shell command -v ninja),-G Ninja) -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/.ci/$(TARGET).cmake -DLINNET_WERROR=ON > /dev/null
	cmake --build build-$(TARGET) -j $(JOBS)

amalgamate: ## writes the whole runtime (scalar kernels) as one file: build/amalgamation/linnet.c and linnet.h
	$(PYTHON) .ci/amalgamate.py --out $(BUILD)/amalgamation

clean: ## removes everything that the targets above create
	rm -rf $(BUILD) build-$(TARGET) build-tests $(VENV) demo-out
