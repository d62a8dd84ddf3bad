# A thin front door; CMakeLists.txt builds, tools/ and tests/ do the rest.
#
#   make            build/tegula and build/libtegula.so        make check   everything that must hold (see docs/TESTING.md)
#   make demo       a small model, a long prompt, an answer    make bench   speed of this machine
#   make bench-peers  the same beside other engines (tools/bench-peers --help says what it needs)
#   make install    PREFIX=/usr/local, DESTDIR=                make format  clang-format in place
#   make asan|tsan  one sanitizer pass                         make fuzz    FUZZ_SECONDS=60 per target
#   make tidy       clang-tidy                                 make clean
#   make conformance  coremltools' own tests on this library (docs/CONFORMANCE.md says what it needs)
#
# The first run installs missing packages where it may, or says what to type (tools/setup).
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
MODEL ?=
ARGS ?=
PYTHON_FOR_TESTS = $(shell tools/setup python)

# Only a new build directory reads this: an existing one keeps its generator.
ifneq ($(shell command -v ninja 2>/dev/null),)
export CMAKE_GENERATOR ?= Ninja
endif

.DEFAULT_GOAL := all
.PHONY: all demo check conformance bench bench-peers install asan tsan fuzz format tidy clean

all:
	@tools/setup build
	@cmake --preset release --log-level=WARNING
	@cmake --build build -j$(JOBS) --target tegula --target tegula_shared --target tegula_static

demo:
	@tools/setup demo
	@$(MAKE) --no-print-directory all
	@python3 tools/demo $(if $(MODEL),--model "$(MODEL)") $(ARGS)

check:
	@tools/setup check
	@$(PYTHON_FOR_TESTS) tools/check $(ARGS)

asan tsan:
	@tools/setup check
	@$(PYTHON_FOR_TESTS) tools/check $@

conformance: all
	@$(PYTHON_FOR_TESTS) tools/conformance $(ARGS)

bench: all
	@python3 tools/demo --bench $(if $(MODEL),--model "$(MODEL)") $(ARGS)

bench-peers: all
	@python3 tools/bench-peers $(ARGS)

install: all
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

fuzz:
	@tools/setup fuzz
	@cmake --preset fuzz --log-level=WARNING
	@cmake --build build-fuzz -j$(JOBS)
	@tools/fuzz build-fuzz $(FUZZ_SECONDS) $(ARGS)

format:
	@tools/check-format --fix

tidy:
	@tools/check-tidy

clean:
	@rm -rf build build-debug build-asan build-tsan build-fuzz build-aarch64
