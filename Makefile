# Tare. `make help` lists the targets; setting up is a part of each, not a step before it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := build/.setup

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: run
run: $(STAMPS)/first ## measure what a response costs here, and draw the report (some minutes, as root)
	@$(MAKE) -j2 $(STAMPS)/venv lab
	$(BIN)/tare run experiments/quickstart.yaml

# Every page has its place, and every link and anchor leads somewhere, or it fails: hence all anew, since
# of a page that did not change Sphinx does not look again where its links lead.
.PHONY: docs
docs: $(STAMPS)/venv-docs ## build the documentation as a site, searchable offline: build/docs/index.html
	@$(BIN)/python -m sphinx --fresh-env --write-all --quiet --fail-on-warning --conf-dir docs/site --doctree-dir build/docs-pages . build/docs

# Building takes processors and tests mostly wait, for guests, servers and deadlines: three side by side,
# the longest first; more would only wait for each other, and for guests past their deadlines. Each line
# says whose it is; the words of one alone are in build/test-NAME.log.
.PHONY: test
test: $(STAMPS)/first ## every test of every part
	@failed=0; rm -f build/test-*.log; $(MAKE) -k -j3 test-system test-native test-pageshare test-lab || failed=$$?; $(SLOWEST); [ $$failed = 0 ] || $(FAILED); exit $$failed

TOLD = 2>&1 | tee build/$@.log | sed --unbuffered 's/^/$@: /'
# Many tests start Python anew: it keeps what it compiled, whatever the environment says.
PYTEST := PYTHONDONTWRITEBYTECODE= MAKEFLAGS= $(BIN)/python -um pytest --durations=10 --durations-min=5
# What could not be built has no log.
LOGS := cat build/test-*.log 2>/dev/null
SLOWEST := echo "slowest tests, in seconds:"; $(LOGS) | sed -nE \
  -e 's/^([0-9.]+)s (call|setup|teardown) +(.*)/\1 \3/p' -e 's/^ *[0-9]+\/.*Test +\#[0-9]+: (.*[^ .]) \.* +Passed +([0-9.]+) sec/\2 \1/p' \
  | sort -rn | sed -n 1,15p || true
# Last, for whoever sees the end alone: pytest's, CTest's and cargo's, with why.
FAILED := $(LOGS) | sed -nE -e '/^(FAILED|ERROR) |^\s+[0-9]+ - .* \([A-Z]/p' -e '/^thread .* panicked at /,+2p' || true

.PHONY: test-lab test-system test-native test-pageshare
test-lab: programs $(STAMPS)/venv-dev
	@$(PYTEST) --ignore=tests/system $(TOLD)
test-system: setup programs pageshare docs experiments/schema.json $(STAMPS)/runsc $(STAMPS)/venv-packages # mostly waits, for guests and servers; a module's tests share theirs
	@$(PYTEST) tests/system --numprocesses 2 --dist loadfile $(TOLD)
test-native: programs # MPI launchers read standard input
	@ctest --test-dir build --parallel 2 --timeout 300 --output-on-failure --no-tests=error </dev/null $(TOLD)
test-pageshare: setup pageshare
	@MAKEFLAGS= cargo test --quiet --workspace --no-fail-fast $(TOLD)

.PHONY: lint
lint: build ## style and types of every language
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	git ls-files '*.cc' '*.h' | grep -v /generated/ | xargs clang-format --dry-run -Werror
	git ls-files '*.cc' | grep -E '^(echo|probe|nvio|walks)/' | grep -v $(if $(RTI_CONNEXT_DIR),^$$,/connext.cc) | xargs -P 2 -n 4 clang-tidy -p build --quiet
	setup/scripts | xargs shellcheck

.PHONY: fmt
fmt: build ## format every language
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .
	cargo fmt --all
	git ls-files '*.cc' '*.h' | grep -v /generated/ | xargs clang-format -i

.PHONY: fuzz
fuzz: $(STAMPS)/packages ## fuzz what parses bytes from outside: every target for ten minutes (some hours)
	@fuzz/run

# What knows no MPI: nvio is preloaded into MPI's programs, and a sanitizer's library has to come first.
# A test program that this list forgets fails. Fast DDS 2 deletes its readers as another type: its fault.
SANITIZED := $(foreach name,message samples exchange command_line udp end_to_end,echo_$(name)_test) \
  probe_frame_test probe_test execute_test nvio-tests nvio-nodes-tests nvio-crash-tests

.PHONY: sanitize sanitize-memory sanitize-threads
sanitize: sanitize-memory sanitize-threads ## the C++ tests under the sanitizers of memory, undefined behaviour and threads (an hour)
sanitize-memory: KIND := address,undefined
sanitize-memory: SANITIZED += walks-core-test
sanitize-threads: KIND := thread
# It sees no lock of a library that was not compiled with it, as transports' and OpenMP's are not.
sanitize-threads: APART := --exclude-regex 'cyclonedds|fastdds|zeromq|AcrossVendors|walks-'
sanitize-memory sanitize-threads: $(STAMPS)/packages
	@cmake -S . -B build/$@ -G Ninja $(EVERYTHING) -DTARE_SANITIZE=$(KIND) >build/$@.log 2>&1 && \
	  cmake --build build/$@ --parallel 2 --target $(SANITIZED) >>build/$@.log 2>&1 || { tail -n 30 build/$@.log; exit 1; }
	@ASAN_OPTIONS=new_delete_type_mismatch=0 UBSAN_OPTIONS=halt_on_error=1 setarch --addr-no-randomize \
	  ctest --test-dir build/$@ --parallel 2 --output-on-failure --no-tests=error $(APART) \
	  --tests-regex '^(echo[.]|probe[.]|nvio:[A-Z]|walks-(core|product))|_NOT_BUILT$$' </dev/null

.PHONY: bench
bench: build ## speed of the parts, each beside a reference
	$(BIN)/python benchmarks/analysis.py
	cargo bench --quiet --workspace

.PHONY: claims
claims: build ## check every claim that is pending in CLAIMS.md, and print the table (up to a day)
	@checked=0; $(BIN)/tare claim check --pending --record || checked=$$?; $(BIN)/tare claim table; exit $$checked

.PHONY: claim
claim: build ## check one claim: make claim ID=A1
	$(BIN)/tare claim check $(ID)

.PHONY: build
build: $(STAMPS)/first ## build the native programs
	@$(MAKE) -j4 setup programs pageshare experiments/schema.json

# What `make run` configured is kept as it is; whatever it left out is found here.
CONFIGURE := cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo
EVERYTHING := -DTARE_TRANSPORTS= -DTARE_NVIO=ON -DTARE_WALKS=ON -DBUILD_TESTING=ON
FIRST_REPORT := '-DTARE_TRANSPORTS=null;icmp;udp;cyclonedds;fastdds' -DTARE_NVIO=OFF -DTARE_WALKS=OFF -DBUILD_TESTING=OFF
BUILD := cmake --build build --parallel 2
LOGGED = >build/cmake.log 2>&1 || { cat build/cmake.log; exit 1; }
BUILT = | { grep --line-buffered --invert-match '^ninja: no work to do' || true; }

.PHONY: lab programs pageshare
lab: $(STAMPS)/first
	@test -f build/build.ninja || { $(CONFIGURE) $(FIRST_REPORT) $(LOGGED); }
	@$(BUILD) --target lab 2>&1 $(BUILT)
programs: lab $(STAMPS)/packages
	@$(CONFIGURE) $(EVERYTHING) $(LOGGED)
	@$(BUILD) 2>&1 $(BUILT)
pageshare: $(STAMPS)/packages
	@echo 'cargo build --release'
	@MAKEFLAGS= cargo build --quiet --release --workspace --locked

# What editors check experiment files by: made of the rows that the lab reads them by.
experiments/schema.json: $(STAMPS)/venv $(wildcard src/tare/*.py src/tare/*/*.py src/tare/*/*/*.py)
	@$(BIN)/tare schema >$@

.PHONY: setup
setup: $(STAMPS)/packages $(STAMPS)/qemu-newer $(STAMPS)/uml-newer $(STAMPS)/go $(STAMPS)/sshd $(STAMPS)/venv-dev $(STAMPS)/guest-kernel ## install what is needed (Debian packages, virtual environment)

# Lists of setup/apt: what the first report needs, and nothing else.
FIRST := python native echo hosts qemu

$(STAMPS)/first: setup/packages $(FIRST:%=setup/apt/%.txt)
	@mkdir -p $(@D)
	@setup/packages $(FIRST)
	@touch $@

$(STAMPS)/packages: setup/packages $(wildcard setup/apt/*.txt) $(STAMPS)/first
	@setup/packages
	@touch $@

# What a mirror does not have now (exit code 4) is looked for again by the next make.
IF_HAD = && touch $@ || (($$? == 4))

$(STAMPS)/qemu-newer: setup/qemu-newer setup/unpack $(STAMPS)/packages
	@setup/qemu-newer build/qemu-newer $(IF_HAD)

$(STAMPS)/sshd: setup/sshd setup/unpack $(STAMPS)/packages
	@setup/sshd build/sshd $(IF_HAD)

$(STAMPS)/uml-newer: setup/uml-newer setup/unpack $(STAMPS)/packages
	@cache=$${XDG_CACHE_HOME:-$$HOME/.cache}; test $$(id -u) -ne 0 || cache=/var/cache; setup/uml-newer "$$cache/tare/uml" $(IF_HAD)

$(STAMPS)/go: setup/go setup/unpack $(STAMPS)/packages
	@setup/go "$${XDG_CACHE_HOME:-$$HOME/.cache}/tare/go" $(IF_HAD)

# Not compiled ahead: of what is installed a run imports a part, and compiles that.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile

# Of an environment that was removed no stamp tells that it is there.
ifeq ($(wildcard $(BIN)/tare),)
$(shell rm -f $(STAMPS)/venv*)
endif

# One that was not finished has no pip.
INSTALLED = echo "setup: installing the Python packages of $< into $(VENV)" && $(PIP) --require-hashes -r $<

$(STAMPS)/venv: requirements.lock pyproject.toml $(STAMPS)/first
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear $(VENV)
	@$(INSTALLED)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/venv-dev: $(STAMPS)/venv
$(STAMPS)/venv-docs $(STAMPS)/venv-packages: $(STAMPS)/venv-dev
$(STAMPS)/venv-%: requirements-%.lock
	@$(INSTALLED)
	@touch $@

$(STAMPS)/runsc: setup/runsc src/tare/environments/gvisor.py $(STAMPS)/venv $(STAMPS)/go
	@$(BIN)/python setup/runsc $(IF_HAD)

$(STAMPS)/guest-kernel: setup/guest-kernel $(STAMPS)/venv $(STAMPS)/packages
	@$(BIN)/python setup/guest-kernel build/guest-kernel
	@touch $@

LOCK := uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --python-version 3.11 --custom-compile-command 'make lock'

.PHONY: lock
lock: ## choose new versions of the Python packages (needs uv)
	$(LOCK) --group editable pyproject.toml --output-file requirements.lock
	$(LOCK) --universal --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) --universal --group pyproject.toml:docs --constraint requirements-dev.lock --output-file requirements-docs.lock
	$(LOCK) --universal --group pyproject.toml:packages --constraint requirements-docs.lock --output-file requirements-packages.lock

.PHONY: conformance
conformance: build ## whatever passes with plain MPI passes under nvio: one pass, or as claimed with LONG=1 (an hour, resumes)
	nvio/conformance/campaign.py same --build build/nvio $(if $(LONG),,--name same-once --own 4 --mpi4py 1 --suites 1)

.PHONY: crashes
crashes: build ## nothing that was synced is lost: 10 000 simulated crash points of one node and of several, 200 kill -9 (10 minutes, resumes)
	nvio/conformance/campaign.py crash --build build/nvio

MUSL   := x86_64-unknown-linux-musl
STATIC := target/$(MUSL)/release/pageshare

.PHONY: static
static: setup ## build one static binary of pageshare, and migrate a guest with it
	@if [[ ! -d $$(rustc --print sysroot)/lib/rustlib/$(MUSL) ]]; then \
	  if command -v rustup >/dev/null; then rustup --quiet target add $(MUSL); \
	  else echo 'static: this Rust ($(shell rustc --version)) has no standard library for musl, and Debian packages none;' \
	    'install Rust by rustup (https://rustup.rs) and try again, or copy target/release/pageshare,' \
	    'which needs no more than a glibc as new as this machine'"'"'s' >&2; exit 3; fi; fi
	cargo build --quiet --release --locked -p pageshare --target $(MUSL)
	file $(STATIC) | grep -E 'static(ally|-pie) linked'
	! ldd $(STATIC) 2>/dev/null | grep '=>'
	PAGESHARE_BINARY=$(CURDIR)/$(STATIC) cargo test --quiet -p pageshare --test all the_guest_arrives

RELEASE ?= trixie

.PHONY: fresh
fresh: $(STAMPS)/packages ## make run and make test on a new machine of Debian's RELEASE (RELEASE=bookworm; an hour, as root)
	setup/fresh $(RELEASE)

.PHONY: packages
packages: programs pageshare experiments/schema.json $(STAMPS)/venv-packages ## a wheel and Debian packages of all parts: dist/
	@rm -rf dist
	@packaging/pack dist
	@lintian --allow-root --fail-on error,warning dist/*.deb

.PHONY: try-packages
try-packages: $(STAMPS)/packages ## install, use and remove the packages on a new machine of Debian's RELEASE (as root)
	setup/try-packages $(RELEASE)

.PHONY: release
release: $(STAMPS)/venv ## commit and tag a version: make release VERSION=0.2.0
	@PYTHONPATH=. $(BIN)/python packaging/release.py $(VERSION) $(PENDING)

.PHONY: picture
picture: ## draw docs/report.png, the README's picture, from the newest result
	@newest=$$(ls -td results/*/report.html | sed -n 1p); profile=$$(mktemp -d); \
	chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync \
	  --hide-scrollbars --user-data-dir="$$profile" --window-size=1280,760 --virtual-time-budget=2000 --screenshot=docs/report.png \
	  "file://$$PWD/$$newest" 2>/dev/null; rm -rf "$$profile"

.PHONY: architecture
architecture: ## draw docs/architecture.svg, the layers of the lab, from its imports
	@python3 docs/site/architecture.py

.PHONY: clean
clean: ## remove what was built; results stay
	rm -rf build target dist $(VENV)
