set shell := ["bash", "-euo", "pipefail", "-c"]

scripts := justfile_directory() / "crates/tidegate-lab/scripts"

# List the recipes
[private]
default:
    @just --list --unsorted

# The tests of `just test` that may fail on other servers; the weight of a worker does not depend on servers (`--skip weight::`)
with_servers := "--lib --bins --test compare --test reconcile --test operators --test pipeline --test promises --test traces"
# The tests of the libraries with servers: they cover most differences between servers, and are the fastest
libraries := "--lib --test compare --test reconcile --test promises"
# The tests of `just test` that need a later Redis than 6.2 (`--skip ...`)
not_on_redis62 := shell("sed -n 's/^[a-z].*/--skip &/p' \"$1\" | tr '\\n' ' '", scripts / "not-on-redis62.txt")
# Tests wait for servers more than they compute, so run two for each core, and one more
export RUST_TEST_THREADS := env("RUST_TEST_THREADS", shell("echo $(($(nproc) * 2 + 1))"))
# The same build flags for all tests, so that nothing is built twice
everything := "--workspace --features tidegate/otel"

# Run a flash sale on private servers: buyers race, workers are killed, MySQL restarts; then the audit
demo *args: servers
    cargo build --profile demo --package tidegate --package tidegate-bench --no-default-features
    target/demo/tidegate-bench demo {{ args }}

# Benchmark this machine, next to the bare servers and the tutorial: `just bench [quick | trouble | cost | scale | http | page]`, `just bench compare A B` (JSON files or commits)
bench *args: servers
    cargo build --release --package tidegate --package tidegate-bench
    target/release/tidegate-bench bench {{ args }}

# Build the program for release, target/dist/tidegate, with separate debug symbols: `just dist [--features otel]`
dist *args:
    BUILD_COMMIT="$(git rev-parse --short=12 HEAD 2>/dev/null || true)" cargo build --profile dist --locked --package tidegate {{ args }}
    cd target/dist && objcopy --only-keep-debug tidegate tidegate.debug
    cd target/dist && objcopy --strip-all --add-gnu-debuglink=tidegate.debug tidegate tidegate.part
    mv target/dist/tidegate.part target/dist/tidegate

# Build the image `tidegate` for release with Debian's buildah, without a registry, and target/image/tidegate.tar: `just image [--features otel]`
image *args: (dist args)
    {{ scripts }}/image.sh target/dist/tidegate tidegate

# Build the Debian package for release, target/debian/tidegate.deb, with cargo-deb from crates.io: `just deb [--features otel]`
deb *args: (dist args)
    mkdir -p target/debian
    {{ scripts }}/deb.sh target/dist/tidegate target/debian/tidegate.deb

# Start a worker in an image with the program of `just test`, or with another one: `just image-test target/dist/tidegate`
image-test program="target/debug/tidegate": servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/test-installed.sh image {{ program }} {{ everything }}

# Install a Debian package with the program of `just test`, or with another one, in a fresh Debian, and start its services there
deb-test program="target/debug/tidegate": servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/test-installed.sh package {{ program }} {{ everything }}

# Run all tests on real private servers (Debian's Redis and MariaDB), and list the slowest; a test that passes only the second time fails
test *args: servers
    {{ scripts }}/timed-tests.sh {{ everything }} {{ args }}

# Run orders and random events with kills of workers: `just model 5000` (seeds 1 to 5000), or `just model 3001-5000`
model seeds="1000": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline life_model -- --nocapture

# Write lua/*.lua from their sources in lua/src and lua/include
lua:
    TIDEGATE_WRITE_LUA=1 cargo test {{ everything }} --test promises lua_sources

# Measure the Redis memory of a week's sale with this many orders, day by day, with and without compaction (`just test` has 20,000)
memory-curve orders="1000000": servers
    TIDEGATE_MEMORY_ORDERS={{ orders }} cargo test {{ everything }} --test reconcile memory -- --nocapture

# Sell a campaign under limits, with kills, cancellations and changes of limits: `just limits 20`, or `just limits 11-20`
limits seeds="20": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline limit_drill -- --nocapture

# Make both stores lose their newest data at random points, and repair them: `just chaos 1000` (seeds 1 to 1000), or `just chaos 301-1000`
chaos seeds="50": servers
    TIDEGATE_TEST_SEED={{ if seeds =~ '-' { seeds } else { "1-" + seeds } }} cargo test {{ everything }} --test pipeline chaos -- --nocapture

# Update workers and gates under load from the commit in tests/rolling-from to this one, and back, side by side for a while
rolling: servers
    TIDEGATE_TEST_OLD_SOURCE="$({{ scripts }}/old-program.sh)" \
        cargo test {{ everything }} --test pipeline rolling:: -- --ignored --test-threads 1

# Run Redisson (Java) beside workers that lock users in its layout: `just redisson 4.7.0`; by default, all of tests/redisson/versions
redisson *versions: servers
    @if command -v mvn >/dev/null && command -v javac >/dev/null; then \
        builds="$({{ scripts }}/redisson.sh {{ versions }})" && TIDEGATE_TEST_REDISSON="$builds" \
            cargo test {{ everything }} --test pipeline redisson::java -- --ignored --nocapture --test-threads 1; else \
        echo "Maven or a JDK is missing, so Redisson does not run: apt-get install maven default-jdk-headless" >&2; fi

# The part of `just redisson` that CI runs: one version
[private]
redisson-sample: (redisson "4.7.0")

# Measure the cost of waiting for a replica (admission, drain), and the loss in twenty failovers with and without it
failovers: servers
    cargo test --release --package tidegate-orders --test promises -- --ignored --nocapture --test-threads 1 twenty_failovers what_a_wait_a_batch

# Send the gate valid and invalid requests of its openapi.json for a minute: no 500, no undocumented answer (schemathesis, if Python is installed)
fuzz-gate: servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/fuzz-gate.sh {{ justfile_directory() / "target/debug" }}

# Generate clients from the gate's openapi.json (Python, TypeScript, Java, Go), without a warning; two of them buy, pay and refund
clients: servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/generated-clients.sh {{ justfile_directory() / "target/debug" }}

# The part of `just clients` that CI runs: the clients that sell
[private]
clients-sample: servers
    cargo test {{ everything }} --no-run
    {{ scripts }}/generated-clients.sh {{ justfile_directory() / "target/debug" }} python typescript

# Sell through examples/shop to 5 pages in Chromium and 45 callers, without and with webhooks, while workers and the gate are killed: a minute
shop-drill: servers
    cargo build {{ everything }} --bins
    @if command -v python3 >/dev/null; then \
        for mode in "" --webhooks; do python3 examples/shop/drill/drill.py target/debug $mode; done; else \
        echo "python3 is not here, so the shop is not run: apt-get install python3" >&2; fi

# Run everything that CI runs
ci: fmt-check lint lint-prose doc deny check-book test image-test fuzz-gate redisson-sample clients-sample matrix-sample clusters-sample

# Format the code
fmt:
    cargo fmt --all

[private]
fmt-check:
    cargo fmt --all --check

# Run Clippy on everything, and on the program without its features; warnings are errors
lint:
    cargo clippy {{ everything }} --all-targets -- --deny warnings
    cargo clippy --package tidegate -- --deny warnings
    cargo clippy --package tidegate-stream --no-default-features -- --deny warnings

# Check the English of all Markdown, help texts and doc comments (Vale, if Go is installed)
lint-prose:
    {{ scripts }}/lint-prose.sh

# Build the documents as a book with a search, target/book/index.html
book:
    {{ scripts }}/book.sh

# Build the book, and check every link of its pages
[private]
check-book: book
    cargo test {{ everything }} --test documents -- --ignored book::

# Build the documentation of all crates; warnings are errors
doc:
    RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --all-features --no-deps

# Check licences, sources, advisories and duplicate versions of all dependencies (deny.toml), if cargo-deny is installed
deny:
    @if command -v cargo-deny >/dev/null; then cargo deny check; else \
        echo "cargo-deny is not here, so the dependencies are not checked: cargo install cargo-deny --locked" >&2; fi

# Print the structure of the product in numbers (lines, longest functions, largest types, ...), with targets and the worst places
count:
    cargo test {{ everything }} --test documents structure::no_number -- --nocapture

# Install Debian's Redis, MariaDB and Galera, without starting them as services, and promtool
servers:
    {{ scripts }}/install-servers.sh

# Fetch MySQL 9, Redis 8 and Valkey 9 once, and run the tests with servers on Redis 8 with MySQL, and on Valkey with MariaDB
matrix *args: (on "redis8" "mysql" with_servers "" args) (on "valkey9" "mariadb" with_servers "" args)

# The same as `just matrix` on older servers: Redis 6.2 with MariaDB 10.11, and Valkey 8 with MariaDB 11
matrix-older *args: (on "redis62" "mariadb" with_servers not_on_redis62 args) (on "valkey8" "mariadb11" with_servers "" args)

# The part of `just matrix` that CI runs: libraries on Redis 8, workers with entries and outages on Valkey, both with MySQL
[private]
matrix-sample: (on "redis8" "mysql" libraries "") (on "valkey9" "mysql" "--test pipeline" "events:: faults:: defects:: results:: bad_entries:: takeover::")

[private]
on redis mysql programs filters *args: servers
    {{ scripts }}/fetch-matrix.sh {{ redis }} {{ mysql }}
    TIDEGATE_LAB_REDIS={{ redis }} TIDEGATE_LAB_MYSQL={{ mysql }} \
        {{ scripts }}/timed-tests.sh {{ everything }} {{ programs }} {{ args }} -- --skip weight:: {{ filters }}

# Test workers on Galera, on MySQL's group replication and on a Redis Cluster, whose nodes die, freeze and lose contact: about 25 minutes
clusters *args: servers
    {{ scripts }}/fetch-matrix.sh
    cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    TIDEGATE_LAB_REDIS=redis8 cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    TIDEGATE_LAB_REDIS=valkey9 cargo test {{ everything }} --test pipeline -- redis_cluster:: sentinel:: --include-ignored --test-threads 1
    cargo test {{ everything }} --test clusters {{ args }} -- --ignored --test-threads 1
    cargo test {{ everything }} --test pipeline clusters::{{ args }} -- --ignored --test-threads 1

# The part of `just clusters` that CI runs: three minutes
[private]
clusters-sample: servers
    {{ scripts }}/fetch-matrix.sh
    {{ scripts }}/timed-tests.sh {{ everything }} --test pipeline -- --ignored --test-threads 1 \
        three_workers_on_three a_node_of_galera_that_was_alone a_member_of_a_group_dies a_frozen_master a_master_that_dies_while

# Start private servers that keep running, and print the environment to paste; the first run compiles the starter
up: servers
    @cargo run --package tidegate-lab -- up

# Stop the servers of `just up`
down:
    @cargo run --quiet --package tidegate-lab -- down

# Run a worker, with the environment that `just up` printed
worker *args:
    cargo run --release --package tidegate -- worker {{ args }}
