# The front end: what to type. The build itself is CMakeLists.txt.
export PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
# Many tests wait for deadlines: one more than there are cores keeps these busy.
TEST_JOBS ?= $(shell echo $$(($(JOBS) + 1)))
MAKEFLAGS += --no-print-directory

# A folder that is configured anew is built by Ninja, and through ccache, where they are installed.
ifneq ($(shell command -v ninja),)
export CMAKE_GENERATOR ?= Ninja
endif
ifneq ($(shell command -v ccache),)
export CMAKE_C_COMPILER_LAUNCHER ?= ccache
endif

.PHONY: all setup run test check test-all soak bench scoreboard fuzz mutate coverage lint tidy format docs \
    install install-debug uninstall clean

all: build/CMakeCache.txt
	@cmake --build build -j $(JOBS)

# Configuring again is left to CMake itself, once the cache is there.
build/CMakeCache.txt:
	@command -v cmake >/dev/null || { echo "cmake is missing: run 'make setup' first" >&2; exit 1; }
	@cmake --preset release

setup:
	@scripts/setup.sh

# The command alone is built, with the library.
run:
	@scripts/setup.sh build
	@$(MAKE) build/CMakeCache.txt
	@cmake --build build -j $(JOBS) --target cleave_cli
	@scripts/demo.sh

test: setup
	@$(MAKE) all
	@ctest --test-dir build -j $(TEST_JOBS) --output-on-failure

# Five minutes before a commit: lint, and the tests of one process. .ci/run is the whole gate.
check: setup lint
	@$(MAKE) all
	@ctest --test-dir build -j $(TEST_JOBS) --output-on-failure -LE 'mpi|mailbox|device|slow'

# Every test, its sweeps whole, under every preset: release, debug, address + undefined sanitizers, thread sanitizer.
test-all: setup
	@for preset in debug asan-ubsan tsan release; do \
	    cmake --preset $$preset -DCLV_ALL_TESTS=ON && cmake --build --preset $$preset -j $(JOBS) && \
	        CLV_SWEEP=all ctest --preset $$preset || exit 1; \
	done

# Random graphs on random meshes for SOAK_SECONDS, from a seed that it prints (or SOAK_SEED).
SOAK_SECONDS ?= 3600
soak: setup
	@$(MAKE) all
	@build/tests/soak $(SOAK_SECONDS) $(SOAK_SEED)

# cleave beside its peers and the machine's limits: docs/performance.md. Half an hour; BENCH='--rows decode' is a part.
BENCH ?=
bench:
	@$(MAKE) all
	@bench/compare.py $(BENCH)

# Predictions beside published runs: docs/scoreboard.md.
scoreboard:
	@$(MAKE) all
	@bench/scoreboard.py --page docs/scoreboard.md

# Each parser, fed by libFuzzer for FUZZ_SECONDS; what it finds is left in build-fuzz.
FUZZ_SECONDS ?= 60
fuzz: setup
	@scripts/setup.sh fuzz
	@cmake -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLV_FUZZ=ON \
	    -DCLV_SANITIZE=address,undefined
	@cmake --build build-fuzz -j $(JOBS) --target fuzzers
	@for target in $$(find build-fuzz/tests -maxdepth 1 -name "fuzz_*" -executable -type f | sort); do \
	    parser=$${target##*fuzz_}; mkdir -p build-fuzz/corpus/$$parser; \
	    $$target -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 -artifact_prefix=build-fuzz/ \
	        build-fuzz/corpus/$$parser tests/fuzz/corpus/$$parser || exit 1; \
	done

# The tests judged: each fault of tests/mutations.txt made in turn, in a copy of the tree. An hour.
mutate: setup
	@scripts/mutate

# Lines executed by the tests, by folder.
coverage: setup
	@scripts/coverage.sh

# The manual as HTML: build/manual/html/index.html.
docs:
	@scripts/setup.sh docs
	@scripts/build_docs.sh

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

tidy:
	@scripts/setup.sh tidy
	@scripts/lint.sh --tidy

format:
	@scripts/lint.sh --fix

# What is installed is built, and no tests. DESTDIR=DIR puts it below DIR, for packages.
install: build/CMakeCache.txt
	@cmake --build build -j $(JOBS) --target cleave_installed
	@cmake --install build --prefix "$$PREFIX"

# The same with debug information.
install-debug:
	@cmake --preset release -B build-debuginfo -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCLV_TESTS=OFF
	@cmake --build build-debuginfo -j $(JOBS) --target cleave_installed
	@cmake --install build-debuginfo --prefix "$$PREFIX"

# What the last installation below that prefix (and DESTDIR) put there, and nothing else.
uninstall:
	@scripts/uninstall.sh "$$PREFIX"

clean:
	@rm -rf build build-*
