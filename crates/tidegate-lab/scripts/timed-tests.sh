#!/usr/bin/env bash
# `cargo test` with these arguments; at the end, the twenty tests that took longest, in seconds.
#
# The harness measures. Stable hides its option --report-time, which RUSTC_BOOTSTRAP shows: to the test programs alone, by way
# of cargo's runner, so that nothing is compiled in another way.
set -euo pipefail

output=$(mktemp)
trap 'rm -f "$output"' EXIT
runner='["sh", "-c", "RUSTC_BOOTSTRAP=1 exec \"$@\" -Zunstable-options --report-time", "timed"]'

status=0
cargo --config "target.'cfg(all())'.runner=$runner" test "$@" | tee "$output" || status=$?
echo "The slowest tests, in seconds:"
# Not by head: it ends before sort has written all, and the recipe would fail for that.
sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$output" | sort --reverse --numeric-sort | awk 'NR <= 20'
exit "$status"
