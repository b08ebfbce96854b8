set shell := ["bash", "-euo", "pipefail", "-c"]

scripts := justfile_directory() / "crates/tidegate-lab/scripts"

# What can be typed here
[private]
default:
    @just --list --unsorted

# Of `just test`, what other servers could answer in another way; what a worker weighs is its own affair (`--skip weight::`)
with_servers := "--lib --bins --test compare --test reconcile --test operators --test pipeline --test promises --test traces"
# What the libraries promise of servers: most of what another one could answer in another way, and the soonest tested
libraries := "--lib --test compare --test reconcile --test promises"
# Tests wait for servers more than they compute: two of them for each core, and one more
export RUST_TEST_THREADS := env("RUST_TEST_THREADS", shell("echo $(($(nproc) * 2 + 1))"))
# One way to build the tests, so that nothing is built twice
everything := "--workspace --features tidegate/otel"

# A flash sale on private servers: buyers race, workers are killed, MySQL restarts; then the audit
demo *args: servers
    cargo build --profile demo --package tidegate --package tidegate-bench --no-default-features
    target/demo/tidegate-bench demo {{ args }}

# How fast it is here, beside its servers and the tutorial: `just bench [quick | trouble | cost | scale | page]`, `just bench compare A B` (JSON files or commits)
bench *args: servers
    cargo build --release --package tidegate --package tidegate-bench
    target/release/tidegate-bench bench {{ args }}

# The program as it is shipped, target/dist/tidegate; beside it, what only a debugger needs: `just dist [--features otel]`
dist *args:
    cargo build --profile dist --locked --package tidegate {{ args }}
    cd target/dist && objcopy --only-keep-debug tidegate tidegate.debug
    cd target/dist && objcopy --strip-all --add-gnu-debuglink=tidegate.debug tidegate tidegate.part
    mv target/dist/tidegate.part target/dist/tidegate

# All tests, on real private servers (Debian's Redis and MariaDB), and which of them took longest; a test that passes only the second time fails
test *args: servers
    {{ scripts }}/timed-tests.sh {{ everything }} {{ args }}

# Orders and whatever happens to them at random, beside kills: `just model 5000` (seeds 1 to 5000), or `just model 3001-5000`
model seeds="1000": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline life_model -- --nocapture

# Write lua/*.lua from their sources in lua/src and lua/include
lua:
    TIDEGATE_WRITE_LUA=1 cargo test {{ everything }} --test promises lua_sources

# What a sale of a week takes in Redis, day by day, with and without compaction, of so many orders (`just test` has 20,000)
memory-curve orders="1000000": servers
    TIDEGATE_MEMORY_ORDERS={{ orders }} cargo test {{ everything }} --test reconcile memory -- --nocapture

# A campaign is sold under limits, beside kills, cancellations and limits that change: `just limits 20`, or `just limits 11-20`
limits seeds="20": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline limit_drill -- --nocapture

# Both stores lose random ends of what they held, and are repaired: `just chaos 1000` (seeds 1 to 1000), or `just chaos 301-1000`
chaos seeds="50": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline chaos -- --nocapture

# What waiting for a replica costs an admission and a drain, and what twenty failovers lose with it and without
failovers: servers
    cargo test --release --package tidegate-orders --test promises -- --ignored --nocapture --test-threads 1 twenty_failovers what_a_wait_a_batch

# For a minute, asks the gate whatever its openapi.json allows and forbids: no 500, no answer outside it (schemathesis, where Python is)
fuzz-gate: servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/fuzz-gate.sh {{ justfile_directory() / "target/debug" }}

# Everything that CI runs
ci: fmt-check lint doc deny test fuzz-gate matrix-sample clusters-sample

# Format the code
fmt:
    cargo fmt --all

[private]
fmt-check:
    cargo fmt --all --check

# Clippy on everything, and on the program without its features; warnings are errors
lint:
    cargo clippy {{ everything }} --all-targets -- --deny warnings
    cargo clippy --package tidegate -- --deny warnings
    cargo clippy --package tidegate-stream --no-default-features -- --deny warnings

# The documentation of all crates; warnings are errors
doc:
    RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --all-features --no-deps

# Licences, sources, advisories and double versions of all dependencies (deny.toml), where cargo-deny is installed
deny:
    @if command -v cargo-deny >/dev/null; then cargo deny check; else \
        echo "cargo-deny is not here, so the dependencies are not checked: cargo install cargo-deny --locked" >&2; fi

# The structure of the product in numbers (lines, longest functions, largest types, ...), with what is wanted and where it is worst
count:
    cargo test {{ everything }} --test documents structure::no_number -- --nocapture

# Install Debian's Redis, MariaDB and Galera, without starting them as services, and promtool
servers:
    {{ scripts }}/install-servers.sh

# Fetch real MySQL 9, Redis 8 and Valkey 9 once, and run the tests with servers on Redis 8 with MySQL, and Valkey with MariaDB
matrix *args: (on "redis8" "mysql" with_servers "" args) (on "valkey9" "mariadb" with_servers "" args)

# Of `just matrix`, what CI runs: what the libraries promise on Redis 8, what workers do with entries and in outages on Valkey, both with MySQL
[private]
matrix-sample: (on "redis8" "mysql" libraries "") (on "valkey9" "mysql" "--test pipeline" "events:: faults:: defects:: results:: bad_entries:: takeover::")

[private]
on redis mysql programs filters *args: servers
    {{ scripts }}/fetch-matrix.sh
    TIDEGATE_LAB_REDIS={{ redis }} TIDEGATE_LAB_MYSQL={{ mysql }} \
        {{ scripts }}/timed-tests.sh {{ everything }} {{ programs }} {{ args }} -- --skip weight:: {{ filters }}

# Workers on Galera, on MySQL's group replication and on a Redis Cluster, whose nodes die, freeze and part: about 25 minutes
clusters *args: servers
    {{ scripts }}/fetch-matrix.sh
    cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    TIDEGATE_LAB_REDIS=redis8 cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    TIDEGATE_LAB_REDIS=valkey9 cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    cargo test {{ everything }} --test clusters {{ args }} -- --ignored --test-threads 1
    cargo test {{ everything }} --test pipeline clusters::{{ args }} -- --ignored --test-threads 1

# Of `just clusters`, three minutes
[private]
clusters-sample: servers
    {{ scripts }}/fetch-matrix.sh
    {{ scripts }}/timed-tests.sh {{ everything }} --test pipeline -- --ignored --test-threads 1 \
        three_workers_on_three a_node_of_galera_that_was_alone a_member_of_a_group_dies a_frozen_master a_master_that_dies_while

# Start private servers that stay, and print the environment to paste; the first time, what starts them is compiled
up: servers
    @cargo run --package tidegate-lab -- up

# Stop the servers of `just up`
down:
    @cargo run --quiet --package tidegate-lab -- down

# Run a worker, with the environment that `just up` printed
worker *args:
    cargo run --release --package tidegate -- worker {{ args }}
