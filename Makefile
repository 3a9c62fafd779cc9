# Every target may be run again at any time, and without a network once `make setup` (for linters `make setup-lint`, for
# `make nightly` `make setup-nightly`) has been through. Variables: GO is the go command (but gotestsum, which runs the tests,
# takes the one on the PATH), TESTFLAGS what `go test` gets beside what tools/test.sh gives it.

GO        ?= go
TESTFLAGS ?= -timeout=20m

BIN     := $(CURDIR)/.bin
# Programs that do not compile with the versions of tools/go.mod, and need no module of ours.
ACTIONLINT := v1.7.12
VERSITYGW  := v1.8.0
MINIO      := v0.0.0-20260212201848-7aac2a2c5b7c
install     = GOWORK=off GOBIN="$(BIN)" $(GO) install -ldflags='-s -w'
# Each go.mod is a module that go's ./... does not reach from outside.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*'))))
# An example that does not end is broken too; macOS has no such command and waits.
LIMIT   := $(shell command -v timeout >/dev/null && echo timeout 120)

# What is built and installed here comes first for all commands below.
export PATH := $(BIN):$(PATH)

TEST  := $(CURDIR)/tools/test.sh
PARTS := $(CURDIR)/tools/parts.sh

# $(call each,command) runs a command in each module and stops at the first that fails.
each = @set -e; for module in $(MODULES); do echo "== $$module: $(1)"; (cd "$$module" && $(1)); done

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / && !/^nightly-/ { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: setup go-test ## set up what is missing, then show that the library works (4 minutes when set up); BACKEND=postgres: of one backend (2)

# What CI runs beside make test.
CHECKS := static modules bare race pages
.PHONY: check
check: setup setup-lint ## what CI runs beside make test: linters, the other modules, go test without servers, the core under the race detector, commands on pages
	@$(PARTS) $(CHECKS)

.PHONY: ci
ci: ## make test and make check from nothing, with the time of each part (12 minutes when set up)
	@$(PARTS) setup test setup-lint $(CHECKS)

# What a test of one backend needs, or of all.
BACKEND ?=
ALL_SERVERS         := redis etcd zookeeper postgres
SERVERS_OF_memory   :=
SERVERS_OF_redis    := redis
SERVERS_OF_redigo   := redis
SERVERS_OF_redlock  := redis
SERVERS_OF_etcd     := etcd
SERVERS_OF_zookeeper := zookeeper
SERVERS_OF_kubernetes := etcd kubernetes
SERVERS_OF_mysql    := mariadb
SERVERS_OF_postgres := postgres
SERVERS_OF_s3       := s3
SERVERS_OF_sqlite   :=

.PHONY: setup
setup: compiler $(BIN)/gotestsum.done $(if $(BACKEND),$(SERVERS_OF_$(BACKEND):%=server-%),$(ALL_SERVERS:%=server-%)) ## what make test needs

.PHONY: setup-lint
setup-lint: $(BIN)/tools-$(ACTIONLINT).done ## linters

.PHONY: setup-nightly
setup-nightly: setup setup-lint server-mariadb server-s3 $(BIN)/minio-$(MINIO).done ## what make nightly needs beside it: more servers, libraries of other languages
	@./tools/valkey.sh "$(BIN)"
	@./tools/adapters.sh "$(BIN)"
	@./tools/pgbouncer.sh "$(BIN)"
	@$(MAKE) --no-print-directory server-kubernetes

.PHONY: server-redis server-etcd server-zookeeper server-kubernetes server-mariadb server-postgres server-s3
server-redis:
	@./tools/redis.sh "$(BIN)"
server-etcd: $(BIN)/etcd.done
server-zookeeper:
	@./tools/zookeeper.sh "$(BIN)"
server-mariadb:
	@./tools/mariadb.sh "$(BIN)"
server-postgres:
	@./tools/postgres.sh "$(BIN)"
server-kubernetes: $(BIN)/kube-apiserver.done
server-s3: $(BIN)/versitygw-$(VERSITYGW).done

# The servers whose clocks tests move, and the race detector, want one.
.PHONY: compiler
compiler:
	@./tools/compiler.sh

# GOWORK=off: tools/ is no part of a workspace, so that its versions do not mix with those of the product. No -trimpath: what they
# share with the tests is compiled once.
$(BIN)/gotestsum.done: tools/go.mod tools/go.sum
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools -ldflags='-s -w' -o "$(BIN)/" gotest.tools/gotestsum
	@touch $@

$(BIN)/tools-$(ACTIONLINT).done: tools/go.mod tools/go.sum
	@echo "building golangci-lint, govulncheck and actionlint into .bin/ (takes a minute or two)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools -ldflags='-s -w' -o "$(BIN)/" tool
	$(install) github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)
	@touch $@

# etcd is a Go program: one that is built here is the same everywhere, and no service.
$(BIN)/etcd.done: tools/servers/go.mod tools/servers/go.sum
	@echo "building etcd and etcdctl from tools/servers/go.mod into .bin/ (takes a minute)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools/servers -ldflags='-s -w' -o "$(BIN)/etcd" go.etcd.io/etcd/server/v3
	GOWORK=off $(GO) build -C tools/servers -ldflags='-s -w' -o "$(BIN)/etcdctl" go.etcd.io/etcd/etcdctl/v3
	@touch $@

# Two stores with the protocol of S3.
$(BIN)/versitygw-$(VERSITYGW).done:
	@echo "building versitygw $(VERSITYGW) into .bin/ (takes three minutes)"
	@mkdir -p "$(BIN)"
	$(install) github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)
	@touch $@

$(BIN)/minio-$(MINIO).done:
	@echo "building minio $(MINIO) into .bin/ (takes five minutes)"
	@mkdir -p "$(BIN)"
	$(install) github.com/minio/minio@$(MINIO)
	@touch $@

# One break of docs/evidence/known-breaks.md, in the version of the library that bench/go.mod has, or in VERSION=module@version.
BREAK   ?=
VERSION ?=
.PHONY: show
show: setup ## show again how another library's lock broke: BREAK=redsync_stoppedNode; docs/evidence/known-breaks.md lists them
	$(if $(BREAK),,$(error which? make show BREAK=redsync_stoppedNode; docs/evidence/known-breaks.md lists them))
	cd bench && $(if $(VERSION),cp go.mod show.mod && cp go.sum show.sum && $(GO) mod edit -replace='$(firstword $(subst @, ,$(VERSION)))=$(VERSION)' show.mod &&) \
		LOCKER_NIGHTLY=1 LOCKER_REQUIRE_SERVERS=1 $(GO) test $(if $(VERSION),-modfile=show.mod -mod=mod) -v -count=1 -run='^Test(Repro_)?$(BREAK)' ./thirdparty

# The API server of Kubernetes, and nothing else of it.
$(BIN)/kube-apiserver.done: tools/servers/go.mod tools/servers/go.sum
	@echo "building kube-apiserver from tools/servers/go.mod into .bin/ (takes seven minutes of a processor)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools/servers -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$$($(GO) -C tools/servers list -m -f '{{.Version}}' k8s.io/kubernetes)" -o "$(BIN)/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
	@touch $@

.PHONY: quickstart
quickstart: ## the shortest program with a lock
	$(GO) run ./examples/quickstart

.PHONY: playground
playground: ## a page on which a holder is paused and a token refuses its late write, dist/playground.html, and four recorded stories, dist/stories.html
	$(GO) run ./internal/playground dist/playground.html

STORY ?=
.PHONY: stories
stories: setup ## record the runs of the stories anew, on real servers, into internal/stories/runs (two minutes); STORY=pause: that one
	$(GO) run ./internal/stories/record $(STORY)

# Within its folder, for it may be a module of its own.
.PHONY: examples
examples: ## run every program in examples/, of every module
	@set -e; for main in examples/*/main.go */examples/*/main.go; do \
		test -e "$$main" || continue; \
		echo "== $(GO) run -C $${main%/main.go} ."; \
		$(LIMIT) $(GO) run -C "$${main%/main.go}" .; \
	done

# ONLY=redis/apart,etcd: some of it. What is not measured stays as it is on the page. ROUNDS: how often each cell has its turn.
ONLY   ?=
ROUNDS ?= 3
MEASURE = $(GO) run ./measure -rounds $(ROUNDS) -json ../docs/bench.json -page ../docs/evidence/bench.md
.PHONY: bench bench-one-processor
bench: $(ALL_SERVERS:%=server-%) ## locks beside other libraries and bare requests: prints ratios, writes docs/bench.json and the page of it (six minutes of a machine that does nothing else)
	$(if $(ONLY),,taskset -c 0 $(MAKE) --no-print-directory bench-one-processor)
	cd bench && $(MEASURE) $(if $(ONLY),-only $(ONLY)) -chart ../docs/bench.svg

bench-one-processor: # of make bench
	cd bench && $(MEASURE) -only redis/pairs -note 'one processor'

# What a package's tests leave for the matrix: $(call conformance,directory,package,tests,file)
conformance = (cd $(1) && LOCKER_NIGHTLY=1 LOCKER_REQUIRE_SERVERS=1 $(GO) test -count=1 -timeout=60m $(3) $(2) -conformance.results="$(MATRIX)/$(4).json")

# A promise that is broken has to get into the pages too: the program that writes them fails then.
MATRIX := $(CURDIR)/.matrix
ALL_SUITES := $(patsubst %/conformance_test.go,%,$(wildcard */conformance_test.go sql/*/conformance_test.go))
.PHONY: matrix
matrix: setup-nightly ## the conformance suite over all backends; writes docs/guarantees.json, and from it docs/matrix.html and the table of docs/backends/README.md (half an hour)
	@rm -rf "$(MATRIX)" && mkdir "$(MATRIX)"
	-$(call conformance,.,./conformance,-run='^TestMemory$$',memory)
	-@for backend in $(ALL_SUITES); do $(call conformance,$$backend,.,-run=^TestConformance,$$(basename $$backend)); done
	-$(call conformance,bench,./thirdparty,-skip=^TestRepro_,thirdparty)
	cd bench && $(GO) run ./matrix -results "$(MATRIX)"

.PHONY: fmt
fmt: $(BIN)/tools-$(ACTIONLINT).done ## format all code
	$(call each,golangci-lint fmt ./...)

.PHONY: servers
servers: setup ## the oldest and newest servers to be had, into .bin/servers
	./tools/servers.sh "$(BIN)/servers"

.PHONY: lint
lint: $(BIN)/tools-$(ACTIONLINT).done ## golangci-lint in every module, and actionlint
	$(call each,golangci-lint run ./...)
	actionlint

.PHONY: lockervet
lockervet: setup ## our own analyzer in every module
	$(GO) build -C lockervet -o "$(BIN)/lockervet" ./cmd/lockervet
	$(call each,$(GO) vet -vettool="$(BIN)/lockervet" ./...)

.PHONY: vuln
vuln: $(BIN)/tools-$(ACTIONLINT).done ## known vulnerabilities in what every module calls; asks a database on the network
	$(call each,govulncheck -test ./...)

.PHONY: api
api: ## accept what is new, has changed or is gone in the exported API, in api/
	$(GO) test ./api -count=1 -run='^TestAPI_' -args -accept

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

# For how long in all, and a seed to see something again.
SOAKTIME ?= 1h
SEED     ?= 0
# The topology on which a backend's histories run.
SOAKED_ON_memory    := TestMemory$$
SOAKED_ON_mysql     := TestConformance$$
SOAKED_ON_redlock   := TestConformance$$
SOAKED_ON_s3        := TestConformance$$/^versitygw$$
SOAKED_ON_sqlite    := TestConformance$$
SOAKED_ON_etcd      := TestConformance$$/^three_servers$$
SOAKED_ON            = $(or $(SOAKED_ON_$(or $(BACKEND),redis)),TestConformance$$/^one_server$$)
.PHONY: soak
soak: setup ## random histories with faults, on BACKEND=redis for SOAKTIME (1h); those that fail are left in .soak
	@mkdir -p .soak
	LOCKER_NIGHTLY=1 LOCKER_REQUIRE_SERVERS=1 $(GO) test -C $(if $(filter memory,$(BACKEND)),conformance,$(or $(OWN),$(BACKEND),redis)) . -v -count=1 -timeout=0 \
		-run='^$(SOAKED_ON)/random_history' -conformance.for=$(SOAKTIME) -conformance.seed=$(SEED) -conformance.dir="$(CURDIR)/.soak"

# How long each target is fuzzed.
FUZZTIME ?= 1m
.PHONY: fuzz
# On a busy machine go test may fail at the end of the time. An input that fails was kept, and fails again.
fuzz: ## fuzz what takes apart URLs, names and what servers answer, each target for FUZZTIME (a minute)
	@set -e; for found in $$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z_]+' . | tr -d ' '); do \
		file=$${found%%:*}; target=$${found#*:func}; \
		echo "== $$target in $${file%/*}"; \
		once() { $(GO) test -C "$${file%/*}" -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) .; }; \
		once || once; \
	done

# gremlins runs the tests of a package that cover the line which it changes.
GREMLINS = v0.6.0
PACKAGE ?= election
.PHONY: mutants
mutants: setup ## change the code of PACKAGE (election) in one place at a time, and list the changes that its tests do not notice
	nice $(GO) run github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS) unleash --workers 1 "./$(PACKAGE)"

.PHONY: gofmt
gofmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && test -z "$$unformatted" || \
		{ echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }

.PHONY: tidy
tidy:
	$(call each,$(GO) mod tidy -diff)

.PHONY: static
static: budget gofmt lint tidy examples ## what runs no test: the budget, formatting, linters, go.mod, the programs in examples/

.PHONY: budget
budget: ## counts files, lines, words and names, and fails above .ci/budget; tools/budget.sh -lower writes what has become less
	@tools/budget.sh

# The core, what is built on it, and what sends requests to Redis.
CORE   := . ./internal/test/core ./driver ./memory ./election ./semaphore ./multi ./keyed ./internal/redisscript/...
# Explorations and simulations.
MODELS := ^Test(Hold|Ballot|Tokens|Waiting|Register|QueueModel|Forgotten|Faults)_
# Tests wait most of the time, so that more packages run at once than there are processors. Those that wait longest come first, and
# then those that compute most, meanwhile.
LONGEST := ./zookeeper ./redlock ./etcd ./conformance ./redis ./redigo
BUSIEST := ./internal/redisscript/script ./internal/test/simulation ./docs
REDIS   := redis redigo redlock
OTHERS   = $(filter-out $(LONGEST) $(BUSIEST),$(patsubst github.com/go-locker/locker%,.%,$(shell $(GO) list ./...)))
ROOT     = $(LONGEST) $(BUSIEST) $(OTHERS)
# Of one backend: the core, its package, and what has its name. The package may be a module.
OWN     := $(if $(BACKEND),$(wildcard sql/$(BACKEND))$(patsubst %/go.mod,%,$(wildcard $(BACKEND)/go.mod)))
OF_ONE  := . ./internal/test/core $(addprefix ./,$(wildcard $(if $(OWN),,$(BACKEND)) fence/$(BACKEND)fence) $(if $(filter $(REDIS),$(BACKEND)),internal/redisscript/... internal/redisurl))

.PHONY: go-test test-one test-root modules modules-sql
go-test: $(if $(BACKEND),test-one,test-root)

test-one:
	$(TEST) "$(OF_ONE)" $(TESTFLAGS) -p=4
	$(if $(OWN),cd $(OWN) && $(TEST) ./... $(TESTFLAGS))

# The tests of the command run beside those of the root.
test-root:
	@printf '%s\n' . cmd/locker | xargs -n 1 -P 2 sh -c 'test "$$1" != . || exec $(TEST) "$(ROOT)" $(TESTFLAGS) -p=5; $(module)' sh

# By itself: its processes have to come to the server in time, also while other modules are compiled for the first time.
modules-sql:
	cd sql && $(TEST) "./postgres ./sqlite" $(TESTFLAGS)

# Three modules at a time. Other libraries, all of client-go, and the drivers of databases, which take long to compile, are for make nightly.
modules: setup modules-sql ## the modules of their own: SQL, Kubernetes, S3, otel, integrations, analyzer, alerts
	$(call modules,3,$(filter-out ./bench ./cmd/locker ./integrations/clientgo ./sql,$(MODULES)))
	cd bench && $(TEST) ./alerts $(TESTFLAGS)

# $(call modules,how many at a time,which of them,variables).
modules = @printf '%s\n' $(filter-out .,$(2)) | $(3) xargs -n 1 -P $(1) sh -c '$(module)' sh
# What a module's tests print comes when they are through.
module = cd "$$1" || exit; says=$$($(TEST) ./... $(TESTFLAGS) 2>&1); code=$$?; printf "== %s: go test\n%s\n" "$$1" "$$says"; exit $$code

# What most people type first, with nothing installed.
.PHONY: bare
bare: ## the packages whose tests can start servers, without those in .bin
	./tools/bare.sh

.PHONY: race
race: ## the core and what sends requests to Redis, under the race detector
	LOCKER_RACE=on $(TEST) "$(CORE)" $(TESTFLAGS) -p=2

.PHONY: pages
pages: ## commands that pages tell people to type
	LOCKER_NIGHTLY=1 $(TEST) ./docs $(TESTFLAGS) -run='^TestCommands$$'

# The parts of make nightly, each 1 to 40 minutes.
NIGHTLY := $(patsubst nightly-%,%,$(shell awk -F: '/^nightly-/ { print $$1 }' $(firstword $(MAKEFILE_LIST))))
.PHONY: nightly $(NIGHTLY:%=nightly-%)
nightly: setup-nightly ## everything else, in parts (five hours); PART=redlock: one of them
	@$(PARTS) $(addprefix nightly-,$(or $(PART),$(NIGHTLY)))

$(NIGHTLY:%=nightly-%): export LOCKER_NIGHTLY := 1
# Under the race detector all takes several times as long: two packages at a time.
raced = LOCKER_RACE=on $(TEST) "$(1)" $(TESTFLAGS) -p=2 -parallel=4 $(2)
# A backend's own tests, then its suite on all topologies, without the race detector, which keeps two processors busy.
backend = $(call raced,./$(1),-skip='^TestConformance$$') && cd $(1) && $(TEST) . $(TESTFLAGS) -parallel=2 -run='^TestConformance$$'

nightly-builds: builds ## each module compiles for other systems
nightly-lockervet: lockervet ## our own analyzer finds nothing in any module
nightly-models: ## models of the queues, the tokens and the register, in full
	LOCKER_EXHAUSTIVE=1 $(TEST) "./redlock ./internal/redisscript/..." $(TESTFLAGS) -run='$(MODELS)'
nightly-simulation: ## the core over simulated servers: 30,000 seeds, race detector
	$(TEST) ./internal/test/simulation $(TESTFLAGS) -args -seeds=30000
	$(call raced,./internal/test/simulation,-run='^TestSeeds')
nightly-core: ## the core, what is built on it, and the Redis protocol, race detector
	$(call raced,$(CORE))
nightly-conformance: ## the suite's own tests: each Locker that was broken on purpose has to be caught; race detector
	$(call raced,./conformance)
nightly-redis: ## go-redis: race detector; all topologies, under the race detector too
	$(call raced,./redis)
nightly-redigo: ## redigo: race detector; all topologies
	$(call backend,redigo)
nightly-redlock: ## Redlock: race detector; all topologies
	$(call backend,redlock)
nightly-etcd: ## etcd: race detector; all topologies
	$(call backend,etcd)
nightly-zookeeper: ## ZooKeeper: race detector; all topologies
	$(call backend,zookeeper)
nightly-kubernetes: ## Kubernetes: race detector; the suite on an API server; client-go's leader election
	cd kubernetes && $(call raced,./...,-skip='^TestConformance$$') && $(TEST) . $(TESTFLAGS) -parallel=2 -run='^TestConformance$$'
	cd integrations/clientgo && $(TEST) ./... $(TESTFLAGS)
nightly-mysql: ## the adapter for MySQL and MariaDB, on MariaDB: race detector; a replica that takes over; the suite
	cd sql/mysql && $(call raced,./...,-skip='^TestConformance$$')
	cd sql/mysql && $(TEST) . $(TESTFLAGS) -run='^TestConformance$$'
nightly-postgres: ## PostgreSQL: race detector; PgBouncer, standbys
	cd sql/postgres && $(call raced,./...)
nightly-s3: ## S3: race detector; versitygw and MinIO, all rules of the model
	cd s3 && $(call raced,./...,-skip='^TestConformance$$|^TestModel')
	cd s3 && LOCKER_EXHAUSTIVE=1 $(TEST) . $(TESTFLAGS) -run='^TestConformance$$|^TestModel'
nightly-sqlite: ## SQLite: race detector; the suite, with processes that are stopped and killed, and a file that is deleted
	cd sql/sqlite && $(call raced,./...)
nightly-others: ## fences, pages and the other packages of the root module, race detector
	$(call raced,$(filter-out $(CORE) $(LONGEST) ./internal/test/simulation,$(ROOT)))
nightly-modules: ## command, integrations, examples, databases, race detector
	$(call modules,2,$(filter-out ./bench ./integrations/clientgo ./kubernetes ./s3 ./sql,$(MODULES)),LOCKER_RACE=on)
nightly-libraries: ## other libraries and other languages; tests of the benchmarks
	cd bench && $(TEST) ./... $(TESTFLAGS)
nightly-fuzz: fuzz ## each fuzz target for a minute
nightly-compat-redis-oldest nightly-compat-redis-newest nightly-compat-valkey-newest nightly-compat-etcd-oldest nightly-compat-etcd-newest nightly-compat-zookeeper-newest: nightly-compat-%: servers ## the adapters on another version of the server
	./tools/compat.sh "$(BIN)/servers" $*
nightly-soak-memory nightly-soak-redis nightly-soak-redigo nightly-soak-redlock nightly-soak-etcd nightly-soak-zookeeper nightly-soak-kubernetes nightly-soak-mysql nightly-soak-postgres nightly-soak-s3 nightly-soak-sqlite: nightly-soak-%: ## random histories with faults
	@$(MAKE) --no-print-directory soak BACKEND=$* SOAKTIME=10m
