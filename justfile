set shell := ["bash", "-euo", "pipefail", "-c"]

scripts := justfile_directory() / "crates/tidegate-lab/scripts"

# What can be typed here
[private]
default:
    @just --list --unsorted

# A flash sale on private servers: buyers race, workers are killed, MySQL restarts; then the audit
demo *args: servers
    cargo build --release --package tidegate --package tidegate-bench
    target/release/tidegate-bench demo {{ args }}

# How fast it is here, beside its servers and the tutorial: `just bench [quick | trouble | cost]`, `just bench compare A.json B.json`
bench *args: servers
    cargo build --release --package tidegate --package tidegate-bench
    target/release/tidegate-bench bench {{ args }}

# All tests, on real private servers (Debian's Redis and MariaDB)
test *args: servers
    cargo test --workspace {{ args }}
    {{ if args == "" { "cargo test --package tidegate --features otel --test traces" } else { "" } }}

# The tests of traces, which need the program with its feature otel
traces *args: servers
    cargo test --package tidegate --features otel --test traces {{ args }}

# Everything that CI runs
ci: fmt-check lint doc deny test matrix clusters-sample

# Format the code
fmt:
    cargo fmt --all

[private]
fmt-check:
    cargo fmt --all --check

# Clippy on everything; warnings are errors
lint:
    cargo clippy --workspace --all-targets -- --deny warnings
    cargo clippy --package tidegate --features otel --all-targets -- --deny warnings

# The documentation of all crates; warnings are errors
doc:
    RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --all-features --no-deps

# Licences, sources, advisories and double versions of all dependencies (deny.toml), where cargo-deny is installed
deny:
    @if command -v cargo-deny >/dev/null; then cargo deny check; else \
        echo "cargo-deny is not here, so the dependencies are not checked: cargo install cargo-deny --locked" >&2; fi

# Install Debian's Redis, MariaDB and Galera, without starting them as services, and promtool
servers:
    {{ scripts }}/install-servers.sh

# Fetch real MySQL 9, Redis 8 and Valkey 9 once, and run the end-to-end tests on each pair
matrix *args: servers
    {{ scripts }}/fetch-matrix.sh
    TIDEGATE_LAB_REDIS=redis8 TIDEGATE_LAB_MYSQL=mysql cargo test --package tidegate --tests {{ args }}
    TIDEGATE_LAB_REDIS=valkey9 TIDEGATE_LAB_MYSQL=mysql cargo test --package tidegate --tests {{ args }}

# Workers on three nodes of Galera and on MySQL's group replication, whose nodes die and part: about eight minutes
clusters *args: servers
    {{ scripts }}/fetch-matrix.sh
    cargo test --package tidegate-lab --test clusters {{ args }} -- --ignored --test-threads 1
    cargo test --package tidegate --test pipeline clusters::{{ args }} -- --ignored --test-threads 1

# Of `just clusters`, two minutes
[private]
clusters-sample: servers
    {{ scripts }}/fetch-matrix.sh
    cargo test --package tidegate --test pipeline -- --ignored --test-threads 1 \
        three_workers_on_three a_node_of_galera_that_was_alone a_member_of_a_group_dies

# Start private servers that stay, and print the environment to paste
up: servers
    @cargo run --quiet --package tidegate-lab -- up

# Stop the servers of `just up`
down:
    @cargo run --quiet --package tidegate-lab -- down

# Run a worker, with the environment that `just up` printed
worker *args:
    cargo run --release --package tidegate -- worker {{ args }}
