# Everything one does with this project. What is missing on the machine is installed, with a word.
#
#   make demo      watch the lock at work, for a quarter of a minute
#   make test      all checks and tests
#   make bench     how fast it is
#   make servers   what differs between versions of Redis and Valkey; WRITE=1 writes it into docs/operations.md
#   make interop   together with Java's Redisson
#   make fmt       format the source

CARGO = cargo

.PHONY: help demo test bench fmt servers interop

help:
	@sed -n 's/^#   //p' Makefile

demo:
	@sh .ci/need cc
	@test -n "$$REDIS_URL" || sh .ci/need redis-server
	@$(CARGO) run --release --example flash_sale

test:
	@printf '\n== tools\n'
	@sh .ci/need cc redis-server rustfmt clippy
	@printf '\n== format\n'
	$(CARGO) fmt --all -- --check
	@printf '\n== clippy\n'
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	@printf '\n== documentation\n'
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features
	@printf '\n== tests\n'
	$(CARGO) test --workspace

bench:
	@sh .ci/need cc redis-server
	$(CARGO) bench --bench '*' -- $(BENCH)

fmt:
	@sh .ci/need rustfmt
	$(CARGO) fmt --all

servers:
	@sh .ci/need cc
	@sh .ci/servers
	LOCKSON_ALL_SERVERS=1 $(if $(WRITE),LOCKSON_WRITE_TABLE=1) $(CARGO) test --test it servers::

interop:
	@sh .ci/interop $(INTEROP)
