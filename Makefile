# cargo is never called with -p: one package alone gets other features of its dependencies, and all is compiled again.
# The verbs a person types. Each says what it does and how long it usually takes (warm / bare machine, 2 cores).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install kubectl demo test affected soak e2e robustness alerts charts check fuzz golden image release bench bench-save bench-restore bench-defrag bench-log bench-prune bench-scale bench-fleet bench-replace bench-return bench-undelete cluster-up cluster-down cluster-status

export HOLDFAST_CACHE ?= $(HOME)/.cache/holdfast
export CARGO_TARGET_DIR ?= $(HOLDFAST_CACHE)/target

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the whole story on a throwaway Kubernetes (3 min; about 32 min on a bare machine)
	@tests/bin/deps && tests/bin/demo

test: ## everything, with seeded samples of the long sweeps (34 min; about 58 min on a bare machine)
	@tests/bin/test

affected: ## the test programs that can see the changes, by cargo's graph; SINCE=COMMIT for all since a commit (1 to 20 min)
	@tests/bin/deps && tests/bin/affected $(SINCE)

soak: ## everything, with the full counts (2 h)
	@HOLDFAST_SOAK=1 tests/bin/test

e2e: ## only the end-to-end stories (14 min); STORY=name for one
	@tests/bin/deps && tests/bin/e2e $(STORY)

robustness: ## etcd's robustness suite judges a cluster under faults; writes docs/robustness.md (4 min)
	@tests/bin/deps && tests/bin/robustness

alerts: ## promtool judges charts/alerts.yaml by its stories, and parses the dashboard's queries (30 s; 6 min cold)
	@tests/bin/deps && tests/bin/alerts

charts: ## helm lints and renders the charts, and tests compare with `holdfast manifests` (30 s; 5 min cold)
	@tests/bin/deps && tests/bin/charts

check: ## formatting, lints, unit and golden tests; no cluster (2 min; 10 min cold)
	@tests/bin/deps
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	cargo clippy --release --test e2e -- -D warnings
	cargo test --profile bench --lib --bins --test suite --test planner

fuzz: ## a minute of libFuzzer each for the page scan, manifests and segments, with the stable compiler (2.5 min; 4 min cold); TIME=600 for longer
	@tests/bin/deps && tests/bin/fuzz $(TIME)

golden: ## rewrite crds/, charts/manifests/, schemas and tables of charts/, docs/schemas/, tables of docs/, scenario transcripts from the code (1 min)
	@tests/bin/deps
	UPDATE_GOLDEN=1 cargo test --profile bench --lib --test suite --test planner -- golden:: scenarios:: ceiling::
	@git status --short crds charts docs crates/plan/tests/scenarios

image: ## the container image, loaded into the testbed if it runs (1 min; 8 min cold)
	@tests/bin/deps && tests/bin/image $$(tests/testbed/testbed status >/dev/null 2>&1 || echo --no-load)

release: ## the files of a release in dist/, for amd64 and arm64, the same bytes from the same commit (5 min; 25 min cold)
	@tests/bin/deps && tests/bin/release

bench: ## formation times, snapshots beside etcdctl and restores beside etcdutl, all in the same run (9 min)
	@tests/bin/deps && tests/bench/bench

bench-save: ## agent save beside etcdctl snapshot save: folder, S3, TLS, distances, memory, the page scan alone (15 min)
	@tests/bench/save

bench-restore: ## agent restore with both engines beside etcdutl snapshot restore: folder, S3, space, memory, bytes written (5 min)
	@tests/bench/restore

bench-defrag: ## agent defrag beside etcdctl defrag, with clients that write through each member (4 min)
	@tests/bench/defrag

bench-log: ## a restore to the end of a log beside a replay through etcd, and writes with and without agent log (10 min)
	@tests/bench/log

bench-return: ## seconds until a snapshot, or a survivor's volume, serves again: in place beside a new cluster, 17 and 771 MiB (12 min)
	@tests/bench/return

bench-undelete: ## agent undelete of 10,000 and 1,000,000 keys: keys a second, memory (3 min)
	@tests/bench/undelete

bench-prune: ## requests and memory of agent prune for each snapshot: 5000 in a folder, 1000 in S3 (2 min; 5 min cold)
	@tests/bin/deps
	@eval "$$(tests/testbed/testbed env)"; export HOLDFAST_TEST_BIN="$${HOLDFAST_TEST_BIN:-$$(dirname "$$(command -v etcd)")}"; \
	cargo test --profile bench --workspace --lib --test real -- prune_many a_thousand_snapshots_cost --nocapture | grep -E 'requests each'

bench-scale: ## changes of a cluster's size beside a bare Pod of etcd, on the testbed (20 min)
	@tests/bin/deps && tests/bench/scale

bench-fleet: ## memory of an operator with 3,000 members and 16,000 snapshots, some of them fat, on the testbed (10 min)
	@tests/bin/deps && tests/bench/fleet

bench-replace: ## replacement of a lost voter, of a volume and of memory, with writes beside it, on the testbed (15 min)
	@tests/bin/deps && tests/bench/replace

install: ## put the program `holdfast`, without symbols, and kubectl's plugin into PREFIX/bin (/usr/local/bin); after `make image` 1 s
	@cargo build --release --bin holdfast
	@built=$$(ls -t $(CARGO_TARGET_DIR)/*/release/holdfast | head -1); \
	objcopy --only-keep-debug "$$built" "$$built.debug" && strip -o "$$built.stripped" "$$built" && \
	install -D "$$built.stripped" $(or $(PREFIX),/usr/local)/bin/holdfast && echo "symbols for profilers and debuggers: $$built.debug"
	@ln -sf holdfast $(or $(PREFIX),/usr/local)/bin/kubectl-holdfast
	@install crates/plugin/kubectl_complete-holdfast $(or $(PREFIX),/usr/local)/bin/

kubectl: ## print a shell function and KUBECONFIG for the testbed: eval "$(make -s kubectl)"
	@echo 'kubectl() { $(CURDIR)/tests/testbed/testbed kubectl "$$@"; }; export KUBECONFIG='"$${HOLDFAST_STATE:-/var/lib/holdfast-testbed}/admin.kubeconfig"

cluster-up: ## start the throwaway Kubernetes (12 s; ten minutes and more the first time)
	@tests/testbed/testbed up

cluster-down: ## end it and leave nothing behind (15 s)
	@tests/testbed/testbed down

cluster-status: ## what of it runs (1 s)
	@tests/testbed/testbed status
