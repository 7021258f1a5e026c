# flowtally: every target works on a fresh machine with Go and a C compiler.
# Everything else that a target needs is installed through the distribution's package
# manager by .ci/need, which names the packages; root is asked for only
# where a step needs it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# The step that needs root: nothing when root already. sudo looks for programs where its own
# configuration says, so PATH is handed on by env. Root reads this user's modules, and builds
# into a cache of its own, so that no file in this user's cache belongs to root.
ROOT = $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=GOFLAGS,GOPROXY,CI,FLOWTALLY_SEED env PATH="$$PATH" GOMODCACHE="$$($(GO) env GOMODCACHE)")
# Packages whose tests ask for a capability or a tool of the machine. make lint has run internal/rules.
PRIVILEGED = $$(grep -rl --include='*_test.go' --exclude-dir=packaging --exclude-dir=rules 'internal/lab/need"' . | xargs -n1 dirname | sort -u)
# Those of them that take longest. They start first, so that none is left alone at the end.
LONGEST = ./dataplane/engine ./cmd/internal/cli ./dataplane/engine/xdp ./xdp ./shm/include ./ibv/ibvtest ./internal/bench/xdprows ./internal/lab/fence ./shm ./internal/lab/e2e
# The same of the packages that need no privilege.
LONGEST_OF_USER = ./dataplane/engine/model ./xdp/tree ./internal/memorder
# Those of PRIVILEGED in which an ordinary user shows more than root does: which files and sockets the user may not have.
ALSO_AS_USER = ./internal/lab/archive ./internal/trust
SECONDS_OF_DEMO ?= 5
# The release of rdma-core of demo-rdma, such as 65.0; empty: the one of this distribution.
RDMA_CORE ?=
BIN ?= bin
# More flags of flowtally-bench, for bench and bench-short: BENCH_ARGS="--row 'set.*' -o json". --help lists them.
BENCH_ARGS ?=
# Where install puts files. DESTDIR, a directory to make a package of, stands before every path.
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
SYSCONFDIR ?= /etc
DESTDIR ?=
# Where package puts the packages.
DIST ?= dist
PACKAGE_VERSION ?=
# The version of libflowtally.so. The first number is in its soname: it rises when a program
# that is linked to the library must be compiled again. No release has been made: 0 stays until the first one,
# although sizes of objects (ft_counter, ft_reader, ft_status) have changed since make install exists.
LIBRARY_VERSION = 0.1.0
LIBRARY = libflowtally.so.$(LIBRARY_VERSION)
SONAME = libflowtally.so.$(firstword $(subst ., ,$(LIBRARY_VERSION)))
CFLAGS ?= -O2
FUZZTIME ?= 10s
# The tools that make test needs, by the names of .ci/need.
TOOLS = cc c++ pkg-config python3 aarch64-cc clang bpf-headers protoc qemu-aarch64 rdma-headers systemd man tcpdump tmux prometheus
# go test that runs a failed test with real time once more, and ends with a summary. A flag with a value has the form
# -name=value. Files that exist already collect the summaries (SUMMARY), the failures (FAILURES), and the time of
# each test (TIMES).
SUMMARY ?=
FAILURES ?=
TIMES ?=
TESTRUN = $(GO) run ./internal/testrun -go "$(GO)" -name "$@" $(if $(SUMMARY),-to "$(SUMMARY)") $(if $(FAILURES),-failures "$(FAILURES)") $(if $(TIMES),-times "$(TIMES)")
GOTEST = $(TESTRUN) --
# Both programs resolve names and users without libc. A lane with tags of its own repeats these, so that its packages are
# compiled as those of the programs are.
TAGS = netgo,osusergo
# The packages of a lane share one software RDMA library.
SOFT = .ci/soft "$(GO)"
# More flags of go test for test-vm and test-releases: .ci/run gives -short.
LANE_FLAGS ?=
# The flags, the tests left out and the further packages of test-race. A test of one goroutine, or of a writer that is
# killed in a process of its own, has no race; ibv/ibvtest tests C, which the detector does not see. .ci/nightly races them.
RACE_FLAGS ?= -short
RACE_SKIP ?= LinearMatcher|TestRows|TestEachChangeUnderKillsHappensWhollyOrNotAtAll|TestCostlyFlowsAreRefusedByName|^TestWriterKilledAtAnyStepLeavesAWholeMirror$$|^TestAKilledExchangeIsFinished$$|^TestMirrorBehavesAsAMapThroughTakeovers$$|^TestReaderSurvivesRandomEdits$$|^TestEntryWatcherReportsTheEntriesOfTheMirror$$|^TestLoadInlines$$
RACE_ALSO ?=
# The packages that test-race leaves to .ci/nightly, because they take 210 of its 540 s of CPU.
RACE_LEAVES ?= ./shm ./dataplane/engine ./dataplane/engine/xdp
# The long forms of tests: how often each repeats its step (docs/testing.md).
LONG = FLOWTALLY_SCAN_ROUNDS=600 FLOWTALLY_TORN_READS=1e9 FLOWTALLY_HEADER_OPENS=1e6 FLOWTALLY_RACE_OPENS=1e6 FLOWTALLY_RACE_CUTS=2000 FLOWTALLY_RACE_MEETINGS=20000 \
	FLOWTALLY_GROW_READS=1e8 FLOWTALLY_GROW_PYTHON_READS=1e6 FLOWTALLY_HOSTILE_TRIES=1e7

# The tests that test-emulated leaves to .ci/nightly: a writer that is killed, or one goroutine, needs no order of memory.
EMULATED_SKIP ?= ^TestWriterKilledAtAnyStepLeavesAWholeMirror$$|^TestAKilledExchangeIsFinished$$|^TestMirrorBehavesAsAMapThroughTakeovers$$|^TestReaderSurvivesRandomEdits$$

.PHONY: help build programs install uninstall package test-package container demo announce-demo demo-rdma check test test-user test-beside-root test-root test-cross test-emulated test-otel test-race test-stress test-vm test-releases test-judges generate generate-check lint bench bench-program bench-short fuzz clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Root runs no plugin, and loads no library, that others may write: hence the umask.
# libflowtally.so stays loaded (nodelete): ft_guard_sigbus installs a signal handler that lies in it.
# Without a C compiler that works, the programs are built without cgo: they cannot load
# libibverbs, and make build says so. CGO_ENABLED=0 asks for that.
CC_WORKS = cc=$$($(GO) env CC); have=1; \
	printf '\#include <stdlib.h>\nint main(void) { return 0; }\n' | $$cc -xc -o /dev/null - 2>/dev/null || have=0

# The programs alone: all that make demo needs.
programs:
	@umask 022; cgo=$${CGO_ENABLED:-1}; $(CC_WORKS); [ $$have = 1 ] || cgo=0; \
	CGO_ENABLED=$$cgo .ci/build "$(GO)" -tags=$(TAGS) -o $(BIN)/ ./cmd/flowtally ./cmd/flowtally-plugin

build: programs ## build bin/flowtally, bin/flowtally-plugin and, with gcc, bin/libflowtally.so.* and bin/ibvtest, the uverbs kernel in software
	@umask 022; $(CC_WORKS); \
	if [ $$have = 1 ]; then CGO_ENABLED=0 $(GO) run ./ibv/ibvtest/build $(BIN)/ibvtest >/dev/null; \
		$$cc -std=c11 $(CFLAGS) -fPIC -fvisibility=hidden -Ishm/include -shared -Wl,-soname,$(SONAME) -Wl,-Bsymbolic-functions -Wl,-z,defs -Wl,-z,nodelete \
			$(LDFLAGS) -o $(BIN)/$(LIBRARY) shm/library/libflowtally.c; \
	else echo "build: no C compiler that works ($$cc): built without $(BIN)/$(LIBRARY) and $(BIN)/ibvtest, and the programs count by XDP alone; install gcc and build again for RDMA" >&2; fi

# install builds nothing: root may have no Go in its PATH, and would leave files of root in this user's cache.
install: to = $(DESTDIR)$(PREFIX)
install: lib = $(DESTDIR)$(LIBDIR)
install: ## install below PREFIX (/usr/local) the programs of make build, the headers, the unit, man pages, completions and documents
	@for f in flowtally flowtally-plugin; do [ -e "$(BIN)/$$f" ] || { echo "install: $(BIN)/$$f is not there: run make build first" >&2; exit 1; }; done
	@need=$$(du -ckL "$(BIN)/flowtally" "$(BIN)/flowtally-plugin" $(wildcard $(BIN)/$(LIBRARY)) | awk 'END {print $$1 + 2048}'); at="$(to)/bin"; \
	while [ ! -e "$$at" ]; do at=$$(dirname "$$at"); done; free=$$(df -kP "$$at" | awk 'END {print $$4}'); \
	[ "$$free" -ge "$$need" ] || { echo "install: $$at has $$free KiB of free space, and the files need $$need KiB: make room, or name another PREFIX" >&2; exit 1; }
	install -d "$(to)/bin" "$(to)/include/flowtally" "$(lib)/pkgconfig" "$(to)/lib/systemd/system" "$(to)/lib/tmpfiles.d" "$(to)/share/doc/flowtally/docs" "$(DESTDIR)$(SYSCONFDIR)" \
		"$(to)/share/bash-completion/completions" "$(to)/share/zsh/site-functions" "$(to)/share/fish/vendor_completions.d" "$(to)/share/man"
	install -m 0755 "$(BIN)/flowtally" "$(BIN)/flowtally-plugin" "$(to)/bin"
	install -m 0644 shm/include/flowtally*.h "$(to)/include/flowtally"
	$(if $(wildcard $(BIN)/$(LIBRARY)),install -m 0644 "$(BIN)/$(LIBRARY)" "$(lib)" && ln -sf $(LIBRARY) "$(lib)/$(SONAME)" && ln -sf $(SONAME) "$(lib)/libflowtally.so",@echo "install: without $(LIBRARY): make build makes it where a C compiler works" >&2)
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|; s|@VERSION@|$(LIBRARY_VERSION)|' shm/library/flowtally.pc.in | install -m 0644 /dev/stdin "$(lib)/pkgconfig/flowtally.pc"
	for unit in flowtally.service flowtally-export.service; do \
		sed 's|=/usr/local/bin/|=$(PREFIX)/bin/|; s|/etc/flowtally.yaml|$(SYSCONFDIR)/flowtally.yaml|' configs/systemd/$$unit | install -m 0644 /dev/stdin "$(to)/lib/systemd/system/$$unit"; done
	install -m 0644 configs/systemd/tmpfiles.conf "$(to)/lib/tmpfiles.d/flowtally.conf"
	install -m 0644 configs/systemd/rdma.conf configs/rdma.yaml configs/queue-pairs.yaml configs/queue-pairs-efa.yaml "$(to)/share/doc/flowtally"
	"$(BIN)/flowtally" completion bash | install -m 0644 /dev/stdin "$(to)/share/bash-completion/completions/flowtally"
	"$(BIN)/flowtally" completion zsh | install -m 0644 /dev/stdin "$(to)/share/zsh/site-functions/_flowtally"
	"$(BIN)/flowtally" completion fish | install -m 0644 /dev/stdin "$(to)/share/fish/vendor_completions.d/flowtally.fish"
	install -m 0644 LICENSE "$(to)/share/doc/flowtally/copyright"
	install -m 0644 docs/*.md "$(to)/share/doc/flowtally/docs"
	umask 022; "$(BIN)/flowtally" __man "$(to)/share/man"; gzip -9nf "$(to)"/share/man/man?/flowtally*.[158]
	[ -e "$(DESTDIR)$(SYSCONFDIR)/flowtally.yaml" ] || install -m 0644 configs/default.yaml "$(DESTDIR)$(SYSCONFDIR)/flowtally.yaml"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ! command -v ldconfig >/dev/null || ldconfig
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || [ ! -d /run/systemd/system ] || systemd-tmpfiles --create "$(to)/lib/tmpfiles.d/flowtally.conf"

# uninstall installs into a temporary directory, and removes the files of the same paths below DESTDIR.
uninstall: ## remove the files of install; a configuration that differs from configs/default.yaml stays
	@stage=$$(mktemp -d); trap 'rm -rf "$$stage"' EXIT; $(MAKE) --no-print-directory -s install DESTDIR="$$stage"; \
	find "$$stage" ! -type d -printf '/%P\n' | while read -r f; do \
		[ "$${f##*/}" != flowtally.yaml ] || cmp -s "$$stage$$f" "$(DESTDIR)$$f" || continue; \
		rm -fv "$(DESTDIR)$$f"; done; \
	for d in include/flowtally share/doc/flowtally/docs share/doc/flowtally; do rmdir "$(DESTDIR)$(PREFIX)/$$d" 2>/dev/null || true; done

# Both packages have the files of make install, each in a directory where its distributions look for libraries.
# The programs hold no path of this machine, and every file has the time of the commit: the same commit gives
# the same packages. PACKAGE_VERSION names another version than git does.
PACKAGE_FLAGS = -trimpath '-ldflags=-s -w'
package: BUILT = $(CURDIR)/$(DIST)/bin
package: ## build dist/flowtally_VERSION_ARCH.deb and .rpm of the commit, with every file of make install
	@.ci/need cc
	@umask 022; mkdir -p $(DIST); stage=$$(mktemp -d); trap 'rm -rf "$$stage"' EXIT; \
	GOFLAGS="$${GOFLAGS-} $(PACKAGE_FLAGS)" $(MAKE) --no-print-directory build BIN=$(BUILT) LDFLAGS="$(LDFLAGS) -Wl,-s"; \
	fill="$(MAKE) --no-print-directory -s install BIN=$(BUILT) PREFIX=/usr SYSCONFDIR=/etc"; \
	$$fill DESTDIR="$$stage/deb" LIBDIR=/usr/lib/$$(uname -m)-linux-gnu; \
	$$fill DESTDIR="$$stage/rpm" LIBDIR=/usr/lib64; \
	$(GO) -C internal/packaging run . -to $(CURDIR)/$(DIST) -version "$(PACKAGE_VERSION)" -deb "$$stage/deb" -rpm "$$stage/rpm"

test-package: build ## the .deb's whole life in a system of its own, the .rpm, the container and the manifests of Kubernetes (asks for root)
	@.ci/need dpkg rpm systemd man pkg-config buildah crun lintian
	$(ROOT) env FLOWTALLY_REQUIRE=all FLOWTALLY_BIN=$(CURDIR)/bin $(TESTRUN) -dir internal/packaging -- -count=1 -timeout=10m ./...

container: ## build the static programs into dist/static, and an image of them with buildah
	@.ci/need buildah
	CGO_ENABLED=0 $(MAKE) --no-print-directory build BIN=$(DIST)/static
	buildah bud --tag flowtally --file configs/container/Containerfile $(DIST)/static

demo: announce-demo programs ## send real traffic over a veth pair and compare sent with counted (asks for root)
	$(ROOT) bin/flowtally demo --seconds $(SECONDS_OF_DEMO)

# Said ahead of the build, which takes longer than the demo on a fresh machine.
announce-demo:
	@echo "demo: builds flowtally and flowtally-plugin (a minute on 2 idle CPUs where nothing is compiled yet), then sends packets for $(SECONDS_OF_DEMO) s and compares the counts"

demo-rdma: build ## the demo over the real libmlx5 of RDMA_CORE (Debian's archive has it), by DevX and by verbs, without a card (asks for root)
	@.ci/need cc
	$(ROOT) $(GO) run ./internal/lab/rdmacore/demo -release "$(RDMA_CORE)" -seconds $(SECONDS_OF_DEMO)

# Ends with the summaries of its parts and the list of its failures.
test: ## every test, first as this user and then as root the packages that need privileges
	@echo "make test: lint, the types of every package on other systems, then the tests: about 15 minutes on 2 CPUs, and 10 more where no package is compiled yet"
	@.ci/need --list $(TOOLS)
	@lists=$$(mktemp -d); trap 'rm -rf "$$lists"' EXIT; code=0; touch "$$lists/summary" "$$lists/failures"; \
	$(MAKE) --no-print-directory SUMMARY="$$lists/summary" FAILURES="$$lists/failures" lint test-cross $(if $(ROOT),test-beside-root) test-root test-otel || code=$$?; \
	printf '\nmake test: %s after %d s\n' "$$([ $$code = 0 ] && echo ok || echo FAILED)" "$$SECONDS"; cat "$$lists/summary"; \
	$(if $(FAILURES),cat "$$lists/failures" >>"$(FAILURES)";) .ci/failures "$$lists/failures"; exit $$code

# Directories whose tests build programs, explore or count for long: checked only where they differ from HEAD.
LONG_TO_CHECK = cmd/internal/selftest examples ibv/ibvtest internal/bench internal/lab/fleet internal/memorder shm/include

# Half of the time the tests wait for timers and the kernel: four packages at a time keep two CPUs busy, and the two
# that take longest come first.
check: lint build ## before every commit: lint, and the tests in their short form
	@.ci/need cc c++ pkg-config python3 rdma-headers
	@skip=; for d in $(LONG_TO_CHECK); do ! git diff --quiet HEAD -- $$d || skip="$$skip -e /flowtally/$$d"; done; \
	FLOWTALLY_BIN=$(abspath $(BIN)) $(SOFT) $(GOTEST) -short -p=4 -vet=off -timeout=10m ./dataplane/engine ./internal/lab/e2e $$($(GO) list ./... | grep -v -e /internal/rules $$skip)

test-user: ## the tests that need no privilege; a test is skipped, with the reason, where the machine cannot run it
	@.ci/need cc c++ pkg-config python3 rdma-headers
	$(SOFT) $(GOTEST) -count=1 -timeout=30m ./...

# The part of test-user that test-root does not run: make test tests each thing once.
test-beside-root:
	@.ci/need cc c++ pkg-config python3 rdma-headers
	$(SOFT) $(GOTEST) -count=1 -timeout=10m -vet=off -p=3 $(LONGEST_OF_USER) $(ALSO_AS_USER) $$($(GO) list ./... | grep -vxFf <($(GO) list ./internal/rules $(PRIVILEGED)))

test-root: build ## every test of the packages that ask for privileges; a skip is a failure
	@.ci/need $(TOOLS)
	$(ROOT) env FLOWTALLY_REQUIRE=all FLOWTALLY_BIN=$(CURDIR)/bin $(SOFT) $(GOTEST) -count=1 -timeout=40m -vet=off -p=5 -exec='$(CURDIR)/.ci/apart' $(LONGEST) $(if $(ROOT),$(PRIVILEGED),./...)

test-otel: build ## a collector of OpenTelemetry receives the values that flowtally export pushes; the collector is a module of its own
	$(GO) -C internal/lab/otel vet .
	FLOWTALLY_BIN=$(CURDIR)/bin $(TESTRUN) -dir internal/lab/otel -- -count=1 -timeout=20m .

# The tests without cgo are those of arm64.
test-cross: ## check the types of everything, tests included, for the other supported systems
	$(GO) -C internal/bench/flowtally-bench-govpp vet .
	$(GO) vet -tags vm,$(TAGS) ./internal/lab/vm/...
	$(GO) vet -tags releases,$(TAGS) ./ibv ./internal/lab/rdmacore ./examples/own-queue-pair
	$(GO) run ./internal/typecheck darwin/arm64 linux/arm64

test-emulated: ## the tests of shm in their short form, compiled for arm64, under qemu-aarch64; EMULATED_SKIP= for all
	@.ci/need qemu-aarch64
	FLOWTALLY_EMULATED_SKIP='$(EMULATED_SKIP)' $(GOTEST) -count=1 -tags=emulated,$(TAGS) -run=TestAllTestsPassOnAnEmulatedArm64 -timeout=20m ./shm

# The kernel's words of the model are plain, as a packet's are: package model is not among them.
test-race: ## the race detector over the packages that share memory between goroutines; RACE_LEAVES= for all
	@.ci/need cc
	$(SOFT) $(GOTEST) -vet=off -race $(RACE_FLAGS) -timeout=60m -p=4 -skip='$(RACE_SKIP)' $$($(GO) list ./shm ./dataplane/... ./ibv ./plugin/... ./internal/bench $(RACE_ALSO) | grep -vxFf <($(GO) list ./dataplane/engine/model $(RACE_LEAVES)))

test-stress: build ## the long forms: 1e9 torn reads, 1e7 tries of hostile users, 5000 random rule sets, an hour of kills; FLOWTALLY_SEED repeats a run
	@.ci/need $(TOOLS)
	$(ROOT) env FLOWTALLY_REQUIRE=all FLOWTALLY_BIN=$(CURDIR)/bin FLOWTALLY_STRESS=1 $(LONG) $(SOFT) $(GOTEST) -timeout=5h -p=1 ./shm/... ./xdp/... ./dataplane/engine/... ./cmd/internal/cli ./internal/bench/... ./internal/lab/...

test-vm: ## boot kernels 6.1, 6.12 and Debian's newest under QEMU (no KVM, no root): rxe with the distribution's libibverbs, and what programs do to packets
	@.ci/need cc qemu-x86_64 xz
	FLOWTALLY_REQUIRE=all $(GOTEST) -vet=off -count=1 -tags=vm,$(TAGS) $(LANE_FLAGS) -timeout=80m ./internal/lab/vm

test-releases: build ## the real rdma-core of Debian's stable suites and of sid: headers, libraries, doctor, demo (asks for root)
	@.ci/need cc aarch64-cc rdma-headers
	@ran=$$(mktemp -d); trap 'rm -rf "$$ran"' EXIT; \
	releases() { $(ROOT) env FLOWTALLY_REQUIRE=all FLOWTALLY_BIN=$(CURDIR)/bin FLOWTALLY_RAN="$$ran/ran" $(GOTEST) -vet=off -count=1 -tags=releases,$(TAGS) $(LANE_FLAGS) -timeout=30m "$$@"; }; \
	releases -run='TestABI|TestReleases|TestDoctor|TestDemo|TestKernel|TestMutantKernels' ./ibv ./internal/lab/rdmacore ./examples/own-queue-pair; \
	releases -run='^TestRan$$' ./internal/lab/rdmacore

test-judges: ## foreign judges over the uverbs kernel in software: rdma-core's tools and pyverbs suite, perftest and libfabric of Debian's stable suites and of sid (asks for root)
	@.ci/need cc
	@judged=$$(mktemp -d); trap 'rm -rf "$$judged"' EXIT; code=0; \
	$(ROOT) env FLOWTALLY_REQUIRE=all FLOWTALLY_JUDGED="$$judged/table" $(GOTEST) -vet=off -count=1 -tags=releases,$(TAGS) $(LANE_FLAGS) -timeout=3h -run='^TestJudge' ./internal/lab/rdmacore || code=$$?; \
	echo '| judge | device | rdma-core | pass | skipped | listed |'; sort -u "$$judged/table"; exit $$code

generate: ## regenerate the BPF objects, the protocol's Go code and the generated documents
	@.ci/need clang bpf-headers protoc
	$(GO) generate ./xdp/... ./plugin/... ./internal/bench/... ./configs/... ./dataplane ./cmd/internal/cli ./ibv/flexio

generate-check: generate ## fail when committed generated files differ from newly generated ones
	@git diff --exit-code --stat || { echo "generated files are stale: run 'make generate' and commit" >&2; exit 1; }

lint: ## formatting, vet, and the repository's own rules
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt would change: $$out" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) test -count=1 ./internal/rules

# The program of the bench runs those of make build, which lie beside it. It is neither installed nor packaged.
bench-program: build
	@umask 022; cgo=$${CGO_ENABLED:-1}; $(CC_WORKS); [ $$have = 1 ] || cgo=0; \
	CGO_ENABLED=$$cgo .ci/build "$(GO)" -tags=$(TAGS) -o $(BIN)/ ./internal/bench/flowtally-bench

# What is measured is kept in docs/performance, also where a gate fails, and the page is made of it.
bench: bench-program ## every figure as a ratio to a floor or a peer in the same run, kept for docs/performance.md (asks for root); BENCH_ARGS="--row 'shm.*'"
	@.ci/need cc pkg-config nft dpdk
	$(GO) -C internal/bench/flowtally-bench-govpp build -o $(abspath $(BIN))/ .
	@commit=$$(git rev-parse --short=12 HEAD) && { git diff --quiet HEAD -- ':!docs' || commit=$$commit+; } || commit=; code=0; \
	$(ROOT) $(BIN)/flowtally-bench --peers --keep docs/performance --commit "$$commit" $(BENCH_ARGS) || code=$$?; \
	$(GO) generate -run TestPageHasTheKeptFigures ./internal/bench/flowtally-bench; exit $$code

bench-short: bench-program ## the bench in its short form; fails only beyond its own noise
	@.ci/need cc
	$(ROOT) $(BIN)/flowtally-bench --short --gate $(BENCH_ARGS)

fuzz: ## every fuzz target for FUZZTIME
	@tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	for d in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		p=$$($(GO) list $$d); $(GO) test -c -fuzz . -o "$$tmp/fuzz.test" $$d; \
		for f in $$(grep -hoE '^func (Fuzz[A-Za-z0-9_]+)' $$d/*_test.go | awk '{print $$2}'); do \
			echo "== $$p $$f"; (cd $$d && "$$tmp/fuzz.test" -test.run '^$$' -test.fuzz "^$$f$$" -test.fuzztime $(FUZZTIME) \
				-test.fuzzminimizetime 5x -test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/$$p"); done; done

clean: ## remove bin/ and dist/
	rm -rf bin $(DIST)
