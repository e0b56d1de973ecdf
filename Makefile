# SPDX-License-Identifier: Apache-2.0
# The commands of the README over Meson and ninja. `make help` lists them.
BUILD        ?= build
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 20
BENCH        ?= net
MINUTES      ?= 10
MESON_FLAGS  ?=

# Lints and mutants ask git which files there are; that works also as root in somebody's checkout.
export GIT_CONFIG_COUNT   := 1
export GIT_CONFIG_KEY_0   := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)

all: $(BUILD)/build.ninja ## build everything: build/yuebing, the libraries, the tests
	@ninja -C $(BUILD)

setup: ## install the Debian packages that are missing (tools/packages.txt)
	@tools/setup.sh full

demo: all ## a workload on whole clusters, and what a pool saves of it; TRACE=file, DEMO=--store
	@$(BUILD)/yuebing demo $(if $(TRACE),--trace $(TRACE)) $(DEMO)

test: setup-test all ## every suite in its short form; the last line counts
	@tools/test.sh short $(BUILD)

test-all: setup all ## sanitizers, long forms, fuzz smoke, all mutants
	@tools/test.sh all $(BUILD)

test-asan: setup ## the suites under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/test.sh asan

test-tsan: setup ## the suites under ThreadSanitizer
	@tools/test.sh tsan

test-device: setup-test all ## the suites of device memory, with a stand-in for its driver
	@meson test -C $(BUILD) --no-rebuild --print-errorlogs --suite device

test-power: setup-test all ## the SSD log after 10,000 operations and every cut of the power
	@meson test -C $(BUILD) --no-rebuild --print-errorlogs --suite power

test-soak: setup-test all ## a cluster under load for MINUTES: nothing grows, no byte is wrong
	@YUEBING=$(BUILD)/yuebing YUEBING_SOAK_MINUTES=$(MINUTES) PYTHONDONTWRITEBYTECODE=1 tests/system/soak.py

test-python: setup-test ## the Python packages, from a wheel, with every Python that is here
	@tools/python_test.sh all

test-connectors: setup-test $(BUILD)/build.ninja ## the engines' own connector files, from PyPI, on our package
	@ninja -C $(BUILD) tests/device/libcuda.so.1
	@tests/connectors/run.sh $(BUILD)

wheel: setup-test ## wheels of the Python packages mooncake and yuebing, in dist/
	@tools/wheel.sh all

test-mutants: setup-test ## every documented mutant must make its test fail
	@tools/mutants.py

fuzz: setup ## run each fuzzer FUZZ_SECONDS seconds on the kept corpus
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh

test-engines: setup-test $(BUILD)/build.ninja ## vLLM and llama.cpp, from PyPI, share prompts through our package
	@ninja -C $(BUILD) yuebing
	@tests/engines/run.sh $(BUILD)

bench-peer: setup-peer all ## the calls of engines, beside the known system, Redis and LMCache
	@bench/python/run.sh $(BUILD)

bench: all ## ours beside what the machine can do (BENCH=net, transfer, ssd ...: `yuebing help bench`)
	@$(BUILD)/yuebing bench $(BENCH)

install: all ## libraries, headers, yuebing.pc, man pages, completions (PREFIX, DESTDIR)
	@tools/install.sh $(BUILD) "$(PREFIX)" "$(DESTDIR)"

format: setup ## let clang-format decide the spacing
	@tools/lint/format.sh --fix

lint: setup all ## house rules that a program can check
	@tools/lint/run.sh $(BUILD)

clean: ## remove what the targets above built
	rm -rf $(BUILD) build-asan build-tsan build-fuzz build-mutants build-wheel dist

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

$(BUILD)/build.ninja:
	@tools/setup.sh test
	@meson setup $(BUILD) $(MESON_FLAGS)

setup-test:
	@tools/setup.sh test

setup-peer:
	@tools/setup.sh peer

.PHONY: all setup setup-test setup-peer demo test test-all test-asan test-tsan test-device test-power test-soak test-python \
        test-connectors test-engines wheel test-mutants fuzz bench bench-peer install format lint clean help
