# Every target may be run again at any time, and without a network once `make setup` has been
# through. Variables: GO is the go command, TESTFLAGS what `go test` gets beside -race.

GO        ?= go
# Never from the test cache, which does not see that a server on this machine has changed.
TESTFLAGS ?= -count=1 -timeout=20m

BIN     := $(CURDIR)/.bin
# Each go.mod is a module that go's ./... does not reach from outside. tools/ holds no code.
MODULES := $(sort $(patsubst %/,%,$(dir $(shell find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*'))))
# An example that does not end is broken too; macOS has no such command and waits.
LIMIT   := $(shell command -v timeout >/dev/null && echo timeout 120)

# What is built and installed here comes first for all commands below.
export PATH := $(BIN):$(PATH)

# $(call each,command) runs a command in each module and stops at the first that fails.
each = @set -e; for module in $(MODULES); do echo "== $$module: $(1)"; (cd "$$module" && $(1)); done

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: test
test: setup gofmt vet lint tidy examples go-test ## set up, then run everything that CI runs

.PHONY: setup
setup: $(BIN)/tools.done ## install and build what is missing: developer tools, servers for tests
	@./tools/redis.sh "$(BIN)"
	@./tools/valkey.sh "$(BIN)"

# GOWORK=off: tools/ is no part of a workspace, lest its versions mix with those of the product.
$(BIN)/tools.done: tools/go.mod tools/go.sum
	@echo "building golangci-lint and gotestsum from tools/go.mod into .bin/ (takes a minute or two)"
	@mkdir -p "$(BIN)"
	GOWORK=off $(GO) build -C tools -trimpath -ldflags='-s -w' -o "$(BIN)/" tool
	@touch $@

.PHONY: quickstart
quickstart: ## the shortest program with a lock
	$(GO) run ./examples/quickstart

.PHONY: examples
examples: ## run every program in examples/
	@set -e; for main in examples/*/main.go; do \
		test -e "$$main" || continue; \
		echo "== $(GO) run ./$${main%/main.go}"; \
		$(LIMIT) $(GO) run "./$${main%/main.go}"; \
	done

.PHONY: bench
bench: setup ## beside other libraries: waiting, and quorums (12 minutes, on a machine that does nothing else)
	cd bench && $(GO) run ./waiters
	cd bench && $(GO) run ./redlock

.PHONY: fmt
fmt: $(BIN)/tools.done ## format all code
	$(call each,golangci-lint fmt ./...)

.PHONY: lint
lint: $(BIN)/tools.done ## golangci-lint in every module
	$(call each,golangci-lint run ./...)

.PHONY: race
race: setup ## tests of every module under the race detector, in short form, while you work
	$(call each,LOCKER_REQUIRE_SERVERS=1 gotestsum --format pkgname -- -race ./...)

.PHONY: gofmt
gofmt:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && test -z "$$unformatted" || \
		{ echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }

.PHONY: vet
vet:
	$(call each,$(GO) vet ./...)

.PHONY: tidy
tidy:
	$(call each,$(GO) mod tidy -diff)

.PHONY: go-test
go-test:
	$(call each,LOCKER_REQUIRE_SERVERS=1 $(GO) test -race $(TESTFLAGS) ./...)
