# Everything one does with this project. What is missing on the machine is installed, with a word.
#
#   make demo      a sale without the lock and with it, a third of a minute; with a till in Java where Maven is
#   make quick     after an edit: the library's own tests but the models, the rules of the source, the contract, and
#                  KIND (plain)
#   make test      format, lint, documentation, all tests but the slow ones
#   make slow      the slow tests of tests/slow.txt, schedules of a checker
#   make deep      everything that takes long, to its end: soak, trials, mistakes, topology, servers, book, bench, browser,
#                  interop
#   make soak      the models to their ends, and the campaigns, for so many MINUTES (5)
#   make trials    `lockson run` under TRIALS (200) faults of each sort
#   make simulate  STORIES (40) of the simulated world of simulate/README.md, from SEED (1) on, of STEPS (100) acquisitions,
#                  WITHOUT some of what goes wrong
#   make topology  Sentinel, Cluster, replicas, TLS, for so many MINUTES (5): fail-overs, slots that move
#   make book      the older recipes of book/README.md: each fails, and Lockson holds; the service of examples/service
#   make bench     how fast it is
#   make compare   Lockson beside Redisson, rueidislock, redsync and other crates, in turns: writes docs/performance.md
#                  and its pictures; ten minutes on an idle machine, three with COMPARE=--quick
#   make count     instructions, allocations and system calls of an operation, within their budgets
#   make servers   what differs between versions of Redis and Valkey, and the tests beside each since Redis 7.0; WRITE=1
#                  writes the differences into docs/operations.md
#   make browser   the page of `lockson serve` in a real browser; WRITE=1 writes its picture
#   make interop   together with Java's Redisson, and with other libraries' token locks
#   make habits    the oldest Rust and dependencies, licences of the crates, alarms, the API against the last release
#   make fmt       format the source

CARGO = cargo
MINUTES = 5
TRIALS = 200
# Most of what tests do is to wait for something, so more of them than processors may run at a time.
TEST_THREADS = 10
# The book and the comparison are checked by `make book`. The same packages everywhere, so that nothing is built twice.
LIBRARY = --workspace --exclude lockson-book --exclude lockson-compare
# Of each line `make test` leaves out what `make slow` runs.
SLOW = $(shell cat tests/slow.txt)
NOT_SLOW = $(SLOW:%=--skip %)
KIND = plain
SEED = 1
STORIES = 40
STEPS = 100
SIMULATE = --manifest-path simulate/Cargo.toml --target-dir "$${CARGO_TARGET_DIR:-target}/simulate"
SERVICE = --manifest-path examples/service/Cargo.toml --target-dir "$${CARGO_TARGET_DIR:-target}"
# Long campaigns run optimized code; `.ci/run`, whose samples are short, takes what `make test` has built.
RELEASE = --release
# The demo mostly waits, so it is as fast without optimization, which would double the build.
DEMO = $(if $(RELEASE),--package lockson-demo,$(LIBRARY) --all-features)
# Campaigns that `make campaigns` and `make topology` leave out, as --skip NAME.
LEFT_OUT =

.PHONY: help demo quick test slow deep soak models campaigns trials simulate mistakes worlds topology book servers bench compare count browser interop habits fmt

help:
	@sed -n 's/^#   //p' Makefile

demo:
	@sh .ci/need cc
	@test -n "$$REDIS_URL" || sh .ci/need redis-server
	@$(CARGO) build $(DEMO) --bin lockson-demo
	@if [ "$$(uname)" = Linux ] && [ -z "$$REDIS_URL" ] && tests/interop/redisson/build.sh; then set -- --with-java; \
		else echo "demo: the act in Java is left out; it takes Linux, a JDK, Maven and no REDIS_URL"; fi; \
		"$${CARGO_TARGET_DIR:-target}/debug/lockson-demo" "$$@"

test:
	@printf '\n== tools\n'
	@sh .ci/need cc redis-server rustfmt clippy
	@printf '\n== format\n'
	$(CARGO) fmt --all -- --check
	@printf '\n== clippy\n'
	$(CARGO) clippy $(LIBRARY) --all-targets --all-features -- -D warnings
	@printf '\n== documentation\n'
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LIBRARY) --all-features --lib --no-deps
	@printf '\n== tests\n'
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test $(LIBRARY) --all-features -- $(NOT_SLOW)
	@printf '\n== simulated world\n'
	@$(MAKE) --no-print-directory worlds
	@printf '\n== page\n'
	@if command -v chromium >/dev/null; then $(MAKE) --no-print-directory browser; \
		else echo "SKIPPED: no chromium is here to show the page of lockson serve; make browser installs it"; fi

quick:
	@sh .ci/need cc redis-server
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test $(LIBRARY) --all-features --lib --test tidy -- $(NOT_SLOW) --skip model::
	RUST_TEST_THREADS=10 $(CARGO) test $(LIBRARY) --all-features --test it -- contract:: kinds::$(KIND):: $(NOT_SLOW)

slow:
	@sh .ci/need cc redis-server
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test $(LIBRARY) --all-features --lib --test it -- $(SLOW)
	RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/.ci/shuttle" $(CARGO) test $(LIBRARY) --all-features --lib schedules::

deep: soak trials mistakes topology servers book bench browser interop

soak: models campaigns

models:
	@sh .ci/need cc
	$(CARGO) test --release --all-features --lib model:: -- --ignored --nocapture --test-threads=1
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED:-$$(date +%s)} PROPTEST_CASES=10000 \
		$(CARGO) test --release --all-features --lib -- state:: frame:: cells::queues:: renewer::

campaigns:
	@sh .ci/need cc redis-server
	LOCKSON_SOAK_MINUTES=$(MINUTES) $(CARGO) test $(RELEASE) $(LIBRARY) --all-features --test it soak:: -- --ignored --nocapture --test-threads=1 $(LEFT_OUT)

simulate:
	@sh .ci/need cc
	$(CARGO) build $(RELEASE) $(SIMULATE)
	WITHOUT="$(WITHOUT)" "$${CARGO_TARGET_DIR:-target}/simulate/$(if $(RELEASE),release,debug)/lockson-simulate" $(SEED) $(STORIES) $(STEPS) $(MISTAKE)

# The planted mistakes that stories seldom find: up to ten minutes each.
mistakes:
	@sh .ci/need cc redis-server
	$(CARGO) test $(SIMULATE) --test worlds -- --ignored --nocapture
	@CARGO=$(CARGO) sh .ci/planted 1000

# Stories with fixed seeds, stories told again, mistakes that stories find; the model of a server beside a real one.
worlds:
	@sh .ci/need cc redis-server
	$(CARGO) clippy $(SIMULATE) --all-targets -- -D warnings
	$(CARGO) test $(SIMULATE)

trials:
	@sh .ci/need cc redis-server
	LOCKSON_TRIALS=$(TRIALS) RUST_TEST_THREADS=1 $(CARGO) test $(LIBRARY) --all-features --test run trials::

topology:
	@CARGO=$(CARGO) BUILD="$(RELEASE) $(LIBRARY)" LEFT_OUT="$(LEFT_OUT)" sh .ci/topology $(MINUTES) $(TESTS)

book:
	@sh .ci/need cc redis-server
	$(CARGO) clippy --package lockson-book --package lockson-compare --all-targets -- -D warnings
	RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --package lockson-book --package lockson-compare
	$(CARGO) clippy $(SERVICE) --all-targets -- -D warnings
	$(CARGO) test $(SERVICE)

bench:
	@sh .ci/need cc redis-server
	$(CARGO) bench --all-features --bench locks -- $(BENCH)

compare:
	@sh .ci/compare
	$(CARGO) run --release --package lockson-compare -- $(COMPARE)

count:
	@sh .ci/need cc redis-server valgrind
	$(CARGO) bench --all-features --bench count

browser:
	@sh .ci/need cc redis-server chromium
	LOCKSON_BROWSER=chromium $(if $(WRITE),WRITE=1) $(CARGO) test $(LIBRARY) --all-features --test page -- --ignored

fmt:
	@sh .ci/need rustfmt
	$(CARGO) fmt --all

servers:
	@sh .ci/need cc
	@sh .ci/servers
	LOCKSON_ALL_SERVERS=1 $(if $(WRITE),LOCKSON_WRITE_TABLE=1) $(CARGO) test $(LIBRARY) --all-features --test it servers:: -- --skip kinds::
	@for server in $$(readlink -f "$${CARGO_TARGET_DIR:-target}"/servers/*/server | grep -v redis-6); do \
		printf '\n== %s\n' "$$server"; LOCKSON_REDIS_SERVER=$$server RUST_TEST_THREADS=$(TEST_THREADS) \
		$(CARGO) test $(LIBRARY) --all-features --test it --test doctor -- $(NOT_SLOW) || exit 1; done

habits:
	@sh .ci/habits

interop:
	@sh .ci/interop $(INTEROP)
