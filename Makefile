# Sluice: build, run and test. `make` alone lists the targets.
# What they do is in scripts/, which work without make too.

PREFIX ?= /usr/local
MODULE := target/release/libsluice.so
INSTALLED := $(PREFIX)/lib/redis/modules/sluice.so

# cargo where rustup puts it, and one target directory whatever the caller's.
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin
export CARGO_TARGET_DIR := $(CURDIR)/target
# Empty: all tests.
export MATRIX_FILTER

.DEFAULT_GOAL := help
.PHONY: help build run test modules test-matrix bench-instructions bench-waiting plots lint fmt install clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## Build the module: target/release/libsluice.so
	@scripts/install-deps build
	cargo build --release

run: ## Build, and start a Redis with the module (SLUICE_PORT=n forces a port)
	@scripts/run

test: modules ## Run every test on the system's Redis
	cargo test --workspace

# The module as released, and the one in which tests can make callbacks panic.
modules:
	@scripts/install-deps build server
	cargo build --release
	cargo build --release --features faults --target-dir target/faults

test-matrix: modules ## Run the suite on each server (MATRIX_FILTER='a b' runs some tests)
	@scripts/test-matrix

bench-instructions: build ## Count the instructions per command, with valgrind
	@scripts/install-deps server bench
	cargo bench -p redis-sluice --bench instructions

bench-waiting: build ## Measure how fast waiters are served, against polling and pub/sub
	@scripts/install-deps server
	cargo bench -p redis-sluice --bench waiting

plots: ## Draw docs/plots anew, from the limiters themselves
	@scripts/install-deps build
	cargo run -p sluice-plots

lint: ## Check formatting, clippy with warnings denied, and the scripts' syntax
	@scripts/lint

fmt: ## Format the code
	cargo fmt --all

install: ## Install the module under PREFIX (/usr/local), built first if it is not there
	@test -f $(MODULE) || $(MAKE) build
	install -D -m 755 $(MODULE) "$(DESTDIR)$(INSTALLED)"
	@echo "Add this line to redis.conf:"
	@echo "loadmodule $(INSTALLED)"

clean: ## Remove everything built or fetched
	rm -rf target
