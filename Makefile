# Every target may be run again at any time, and without a network once `make setup` (for `make check`: `make setup-check`)
# has been through. Variables: GO is the go command (but gotestsum, which runs the tests, takes that on the PATH), TESTFLAGS
# what `go test` gets beside what tools/test.sh gives it.

GO        ?= go
TESTFLAGS ?= -timeout=20m

BIN     := $(CURDIR)/.bin
# Each go.mod is a module that go's ./... does not reach from outside. tools/ holds no code.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*'))))
# An example that does not end is broken too; macOS has no such command and waits.
LIMIT   := $(shell command -v timeout >/dev/null && echo timeout 120)

# What is built and installed here comes first for all commands below.
export PATH := $(BIN):$(PATH)

TEST   := $(CURDIR)/tools/test.sh

# $(call each,command) runs a command in each module and stops at the first that fails.
each = @set -e; for module in $(MODULES); do echo "== $$module: $(1)"; (cd "$$module" && $(1)); done

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: setup go-test ## set up what is missing, then show that the library works (10 minutes, 5 when set up); BACKEND=etcd: of one backend (2)

.PHONY: check
check: setup-check ## everything else too, most of it under the race detector: linters, all topologies and variations, other libraries, pages (50 minutes)
	@status=0; for part in static bare check-models check-root check-modules; do \
		$(MAKE) --no-print-directory --keep-going $$part || status=$$?; \
	done; exit $$status

# What a test of one backend needs, or of all.
BACKEND ?=
ALL_SERVERS         := redis etcd zookeeper postgres
SERVERS_OF_memory   :=
SERVERS_OF_redis    := redis
SERVERS_OF_redigo   := redis
SERVERS_OF_redlock  := redis
SERVERS_OF_etcd     := etcd
SERVERS_OF_zookeeper := zookeeper
SERVERS_OF_postgres := postgres

.PHONY: setup
setup: compiler $(BIN)/gotestsum.done $(if $(BACKEND),$(SERVERS_OF_$(BACKEND):%=server-%),$(ALL_SERVERS:%=server-%)) ## what make test needs

.PHONY: setup-check
setup-check: setup $(BIN)/tools.done ## what make check needs beside it: linters, more servers, libraries of other languages
	@./tools/valkey.sh "$(BIN)"
	@./tools/mariadb.sh "$(BIN)"
	@./tools/adapters.sh "$(BIN)"
	@./tools/pgbouncer.sh "$(BIN)"

.PHONY: server-redis server-etcd server-zookeeper server-postgres
server-redis:
	@./tools/redis.sh "$(BIN)"
server-etcd: $(BIN)/etcd.done
server-zookeeper:
	@./tools/zookeeper.sh "$(BIN)"
server-postgres:
	@./tools/postgres.sh "$(BIN)"

# The servers whose clocks tests move, and the race detector, want one.
.PHONY: compiler
compiler:
	@./tools/compiler.sh

# GOWORK=off: tools/ is no part of a workspace, lest its versions mix with those of the product. Nor with one another, where
# they do not compile with the same versions. No -trimpath: what they share with the tests is compiled once.
$(BIN)/gotestsum.done: tools/go.mod tools/go.sum
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools -ldflags='-s -w' -o "$(BIN)/" gotest.tools/gotestsum
	@touch $@

$(BIN)/tools.done: tools/go.mod tools/go.sum tools/actionlint/go.mod tools/actionlint/go.sum
	@echo "building golangci-lint, govulncheck and actionlint from tools/ into .bin/ (takes a minute or two)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools -ldflags='-s -w' -o "$(BIN)/" tool
	GOWORK=off $(GO) build -C tools/actionlint -ldflags='-s -w' -o "$(BIN)/" tool
	@touch $@

# etcd is a Go program: one that is built here is the same everywhere, and no service.
$(BIN)/etcd.done: tools/etcd/go.mod tools/etcd/go.sum
	@echo "building etcd and etcdctl from tools/etcd/go.mod into .bin/ (takes a minute)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools/etcd -ldflags='-s -w' -o "$(BIN)/etcd" go.etcd.io/etcd/server/v3
	GOWORK=off $(GO) build -C tools/etcd -ldflags='-s -w' -o "$(BIN)/etcdctl" go.etcd.io/etcd/etcdctl/v3
	@touch $@

.PHONY: quickstart
quickstart: ## the shortest program with a lock
	$(GO) run ./examples/quickstart

# Within its folder, for it may be a module of its own.
.PHONY: examples
examples: ## run every program in examples/, of every module
	@set -e; for main in examples/*/main.go */examples/*/main.go; do \
		test -e "$$main" || continue; \
		echo "== $(GO) run -C $${main%/main.go} ."; \
		$(LIMIT) $(GO) run -C "$${main%/main.go}" .; \
	done

# A program of bench, and what it has to be told: $(call measure,program,file,flags)
RESULTS := $(CURDIR)/docs/bench
measure = cd bench && $(GO) run ./$(1) -json "$(RESULTS)/$(2).json" -charts "$(RESULTS)" $(3) > "$(RESULTS)/$(2).md" && cat "$(RESULTS)/$(2).md"

.PHONY: bench
bench: setup-check ## beside other libraries: one server, waiting, quorums, etcd and ZooKeeper; writes docs/bench (an hour, on a machine that does nothing else)
	@mkdir -p "$(RESULTS)"
	$(call measure,single,single)
	$(call measure,waiters,waiters)
	$(call measure,redlock,redlock-3,-nodes 3)
	$(call measure,redlock,redlock-5)
	$(call measure,consensus,consensus-1)
	$(call measure,consensus,consensus-3,-servers 3)
	cd bench && $(GO) run ./postgres -json "$(RESULTS)/postgres.json" > "$(RESULTS)/postgres.md" && cat "$(RESULTS)/postgres.md"

# What a package's tests leave for the matrix: $(call conformance,directory,package,tests,file)
conformance = (cd $(1) && LOCKER_CHECK=1 LOCKER_REQUIRE_SERVERS=1 $(GO) test -count=1 -timeout=60m $(3) $(2) -conformance.results="$(MATRIX)/$(4).json")

# A promise that is broken has to get into the pages too: the program that writes them fails then.
MATRIX := $(CURDIR)/.matrix
.PHONY: matrix
matrix: setup-check ## the conformance suite over all backends; writes docs/guarantees.md, docs/matrix.html and other tables of the pages (half an hour)
	@rm -rf "$(MATRIX)" && mkdir "$(MATRIX)"
	-$(call conformance,.,./conformance,-run='^TestMemory$$',memory)
	-@for backend in $(ALL_SUITES); do $(call conformance,$$backend,.,-run=^TestConformance,$$backend); done
	-$(call conformance,bench,./thirdparty,-skip=^TestRepro_,thirdparty)
	cd bench && $(GO) run ./matrix -results "$(MATRIX)"

.PHONY: fmt
fmt: $(BIN)/tools.done ## format all code
	$(call each,golangci-lint fmt ./...)

# Go on with flags for `go test`: make compat COMPAT=-run=TestConformance
COMPAT ?=
.PHONY: servers compat
servers: setup-check ## the oldest and newest servers to be had, into .bin/servers
	./tools/servers.sh "$(BIN)/servers"

compat: servers ## every adapter's tests on the oldest and newest servers, and a table of how it went (an hour)
	./tools/compat.sh "$(BIN)/servers" $(COMPAT)

.PHONY: lint
lint: $(BIN)/tools.done ## golangci-lint in every module, and actionlint
	$(call each,golangci-lint run ./...)
	actionlint

.PHONY: vuln
vuln: $(BIN)/tools.done ## known vulnerabilities in what every module calls; asks a database on the network
	$(call each,govulncheck -test ./...)

# What is gone or has changed is taken out of api/ too, if BREAKING is yes. `make check` only looks.
BREAKING ?= no
.PHONY: api
api: ## accept what is new in the exported API, in api/
	$(GO) test ./api -count=1 -run='^TestAPI_' -args -accept $(if $(filter yes,$(BREAKING)),-breaking)

# One for each way in which systems differ here: what signals and processes are, and how long an int is.
PLATFORMS ?= windows/amd64 darwin/arm64 freebsd/amd64 linux/386 linux/arm
.PHONY: builds
builds: ## every module, tests and all, compiles for other systems (ten minutes the first time)
	@set -e; for platform in $(PLATFORMS); do for module in $(MODULES); do \
		echo "== $$module: $(GO) vet ./... for $$platform"; \
		(cd "$$module" && GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) vet ./...); \
	done; done

.PHONY: dist
dist: ## the command locker for the systems that it runs on, with checksums, into dist/
	./tools/dist.sh dist

.PHONY: race
race: setup-check ## what make test runs, under the race detector, while you work
	$(call each,LOCKER_REQUIRE_SERVERS=1 gotestsum --format pkgname -- -race ./...)

# For how long in all, and a seed to see something again.
SOAKTIME ?= 1h
SEED     ?= 0
.PHONY: soak
soak: setup ## random histories with faults, on BACKEND=redis for SOAKTIME (1h); those that fail are left in .soak
	@mkdir -p .soak
	LOCKER_CHECK=1 LOCKER_REQUIRE_SERVERS=1 $(GO) test -C $(or $(BACKEND),redis) . -count=1 -timeout=0 -run='^TestConformance$$' \
		-conformance.for=$(SOAKTIME) -conformance.seed=$(SEED) -conformance.dir="$(CURDIR)/.soak"

# How long each target is fuzzed.
FUZZTIME ?= 1m
.PHONY: fuzz
fuzz: ## fuzz what takes apart URLs, names and what servers answer, each target for FUZZTIME (a minute)
	@set -e; for found in $$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z_]+' . | tr -d ' '); do \
		file=$${found%%:*}; target=$${found#*:func}; \
		echo "== $$target in $${file%/*}"; \
		$(GO) test -C "$${file%/*}" -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) .; \
	done

.PHONY: gofmt
gofmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && test -z "$$unformatted" || \
		{ echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }

.PHONY: tidy
tidy:
	$(call each,$(GO) mod tidy -diff)

.PHONY: static
static: gofmt lint tidy examples ## what runs no test: formatting, linters, go.mod, the programs in examples/

# Tests wait most of the time, so that more packages run at once than there are processors. Those that take longest come first.
LONGEST := ./zookeeper ./redlock ./etcd ./redis ./conformance ./redigo
REDIS   := redis redigo redlock
OTHERS   = $(filter-out $(LONGEST),$(patsubst github.com/go-locker/locker%,.%,$(shell $(GO) list ./...)))
ROOT     = $(LONGEST) $(OTHERS)
# Of one backend: the core, its package, and what has its name. The package may be a module.
OWN     := $(if $(BACKEND),$(patsubst %/go.mod,%,$(wildcard $(BACKEND)/go.mod)))
OF_ONE  := . $(addprefix ./,$(wildcard $(if $(OWN),,$(BACKEND)) fence/$(BACKEND)fence) $(if $(filter $(REDIS),$(BACKEND)),internal/redisscript internal/redisurl))

.PHONY: go-test test-root test-modules
go-test: $(if $(BACKEND),test-one,test-root test-modules)

test-one:
	$(TEST) "$(OF_ONE)" $(TESTFLAGS) -p=4
	$(if $(OWN),cd $(OWN) && $(TEST) ./... $(TESTFLAGS))

test-root:
	$(TEST) "$(ROOT)" $(TESTFLAGS) -p=4

# Three modules at a time. Other libraries, and the drivers of databases, which take long to compile, are for make check.
test-modules:
	$(call modules,3,$(filter-out ./bench ./fence/sqltest,$(MODULES)))

# $(call modules,how many at a time,which of them). What each prints comes when it is through.
# The race detector has nothing to say of other libraries, which are in bench.
modules = @printf '%s\n' $(filter-out .,$(2)) | xargs -n 1 -P $(1) sh -c 'cd "$$1" || exit; [ "$$1" != ./bench ] || export LOCKER_RACE=off; \
	says=$$($(TEST) ./... $(TESTFLAGS) 2>&1); code=$$?; printf "== %s: go test\n%s\n" "$$1" "$$says"; exit $$code' sh

.PHONY: bare check-models check-root check-conformance check-others check-suites check-modules
# What most people type first, with nothing installed.
bare:
	./tools/bare.sh

# Explorations and simulations in full, without the race detector.
MODELS := ^Test(Hold|Ballot|Tokens|Waiting|WaitQueue|Queue|QueueModel|Forgotten|Faults)_
check-models: export LOCKER_RACE := off
check-models:
	$(TEST) "./redlock ./internal/redisscript" $(TESTFLAGS) -run='$(MODELS)'

# Under the race detector all takes several times as long: tests that measure time come before the suites that put servers under
# load, two packages at a time.
check-root: check-conformance check-others check-suites

# On its own: its broken Lockers have to be caught each time.
check-conformance:
	$(TEST) ./conformance $(TESTFLAGS)

check-others:
	$(TEST) "$(filter-out ./conformance,$(ROOT))" $(TESTFLAGS) -p=2 -parallel=4 -skip='^TestConformance$$'

# The topologies that make test has not, one backend at a time. Under the race detector are those of Redis alone: it keeps two processors busy, and what
# is the backend's own check-others has under it.
# Those of modules are in check-modules.
SUITES ?= $(filter-out $(patsubst %/go.mod,%,$(wildcard */go.mod)),$(ALL_SUITES))
ALL_SUITES := $(patsubst %/conformance_test.go,%,$(wildcard */conformance_test.go))
check-suites:
	@printf '%s\n' $(SUITES) | xargs -n 1 sh -c 'case $$1 in etcd) test=three ;; *) test=one ;; esac; \
		[ $$1 = redis ] || export LOCKER_RACE=off; \
		says=$$(cd $$1 && $(TEST) . $(TESTFLAGS) -parallel=2 -run="^TestConformance$$" -skip="^TestConformance$$/^$${test}_server" 2>&1); code=$$?; \
		printf "== ./%s: its suite\n%s\n" "$$1" "$$says"; exit $$code' sh

# bench, which takes longest, first.
check-models check-conformance check-others check-suites check-modules: export LOCKER_CHECK := 1
check-modules:
	$(call modules,2,$(MODULES))
