# The commands of Gradus, over CMake and its presets. Each says first which packages it lacks, and installs them where that
# takes no password (tools/install-deps; Debian and its kin).
#   make deps          install what make mnist and make test need, with sudo; more: SETS="neon bench peers"
#   make mnist         build, and train the residual MLP on MNIST:   make mnist ARGS="--faithful"
#   make test          everything: tests, checks, sanitizers, fuzzing, both compilers; some stages: STAGES="release asan"
#   make python        the Python package in a virtual environment, build/python-venv, and MNIST with it
#   make wheel         the Python package as one file for pip on any Linux with a recent enough glibc, in build/wheel
#   make python-conformance   the Python package against the array API standard's tests, scikit-learn and DLPack:   MAX_EXAMPLES=100
#   make proofs        train on real data and check the accuracies (docs/proofs.md); some:   make proofs NAMES="lenet iris"
#   make soak          random programs, kernels, kills of trainings and files with fresh seeds, for SECONDS (600) each:   make soak SECONDS=3600
#   make neon          the kernels' tests for 64-bit ARM, cross-compiled and run under qemu
#   make devices       the stage devices of make test alone: tests on an OpenCL device, which PoCL makes of the processor
#   make msan          every test under MemorySanitizer, with its own builds of the libraries
#   make check         the checks alone: format, include direction, clang-tidy
#   make format        format the C sources
#   make bench         run the benches into bench/results, and write the tables; some suites: SUITES="matmul reduce", in less time: QUICK=1
#   make bench-peers   the same against PyTorch, JAX, oneDNN, OpenBLAS and MKL, installed from PyPI into build/peers-venv
#   make NAME          build and run examples/NAME.c
#   make clean         remove build/

ARGS   ?=
STAGES ?=
SUITES ?=
SETS   ?= compile test devices
NAMES  ?=
SECONDS ?= 600
QUICK  ?=
PEERS  := torch torchvision jax numpy scikit-learn gymnasium micrograd onednn-cpu-gomp onednn-devel-cpu-gomp scipy-openblas32 mkl
BENCH_PEERS_PYTHON ?= $(CURDIR)/build/peers-venv/bin/python

COMMANDS := all deps release mnist python python-conformance wheel test proofs soak neon devices msan check format bench bench-peers clean
EXAMPLES := $(filter-out $(COMMANDS), $(basename $(notdir $(wildcard examples/*.c))))

.PHONY: $(COMMANDS) $(EXAMPLES) compile-deps
.DEFAULT_GOAL := release

all release: compile-deps
	@cmake --preset release >/dev/null
	cmake --build --preset release

deps:
	@tools/install-deps --install $(SETS)

mnist: compile-deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target gradus_tool
	build/release/gradus train $(ARGS)

python: compile-deps
	@test -x build/python-venv/bin/python || python3 -m venv build/python-venv
	build/python-venv/bin/python -m pip install --quiet --disable-pip-version-check .
	build/python-venv/bin/python examples/python/mnist.py $(ARGS)
	@echo 'build/python-venv/bin/python has the package: import gradus as gd'

wheel: compile-deps
	@tools/make-wheel

test:
	@tools/install-deps compile test
	@tools/install-deps devices || echo 'make test goes on without OpenCL'
	@tools/run-tests $(STAGES)

proofs: compile-deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target gradus_tool
	@tools/run-proofs $(NAMES)

python-conformance: compile-deps
	@tools/run-tests python-conformance

soak:
	@tools/install-deps compile test
	@SECONDS=$(SECONDS) tools/run-tests soak

neon:
	@tools/install-deps compile test neon
	@tools/run-tests neon

devices:
	@tools/install-deps compile test devices
	@tools/run-tests devices

msan:
	@tools/install-deps compile test
	@tools/run-tests msan

check:
	@tools/install-deps compile test
	@tools/run-tests checks

format:
	@tools/install-deps test
	@tools/check-format --fix

bench:
	@tools/install-deps compile bench
	@cmake --preset release >/dev/null
	@tools/run-bench $(if $(QUICK),--quick) build/release $(SUITES)
	@tools/bench-tables

bench-peers: export BENCH_PEERS_PYTHON := $(BENCH_PEERS_PYTHON)
bench-peers: $(BENCH_PEERS_PYTHON)
	@$(MAKE) --no-print-directory bench

# An installation that fails half-way is taken away again, so that the next run starts afresh.
$(CURDIR)/build/peers-venv/bin/python:
	@tools/install-deps compile peers
	python3 -m venv build/peers-venv
	build/peers-venv/bin/pip install $(PEERS) || { rm -rf build/peers-venv; exit 1; }

$(EXAMPLES): compile-deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target example_$@
	build/release/examples/$@ $(ARGS)

compile-deps:
	@tools/install-deps compile

clean:
	rm -rf build
