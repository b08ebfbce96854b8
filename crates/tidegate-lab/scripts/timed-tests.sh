#!/usr/bin/env bash
# `cargo test` with these arguments, then once more, each by itself, the tests that failed: what passes then is unsteady, a defect of
# the test or of what it tests, and is named at the end; what fails again fails all. At last, the twenty that took longest, in seconds.
#
# The harness measures. Stable hides its option --report-time, which RUSTC_BOOTSTRAP shows: to the test programs alone, by way
# of cargo's runner, so that nothing is compiled in another way.
set -euo pipefail

# So many that fail at once are no matter of luck.
most=5

output=$(mktemp) again=$(mktemp)
trap 'rm -f "$output" "$again"' EXIT
runner='["sh", "-c", "RUSTC_BOOTSTRAP=1 exec \"$@\" -Zunstable-options --report-time", "timed"]'

run_tests() {
    cargo --config "target.'cfg(all())'.runner=$runner" test "$@"
}

# The arguments of cargo, and those of the harness behind `--`.
before=() after=()
while (($#)); do
    if [ "$1" = -- ]; then
        shift
        after=("$@")
        break
    fi
    before+=("$1")
    shift
done

status=0
run_tests "${before[@]}" --no-fail-fast -- "${after[@]}" | tee "$output" || status=$?

failed=$(sed -nE 's/^test (.*) \.\.\. FAILED.*/\1/p' "$output" | sort --unique)
unsteady=()
begun=$(grep -cE '^running [0-9]+ tests?$' "$output" || true)
ended=$(grep -cE '^test result: ' "$output" || true)
# A test program that crashed has not said how it ended: that is more than a failed test.
if [ "$status" -ne 0 ] && [ -n "$failed" ] && [ "$begun" -eq "$ended" ] && [ "$(wc -l <<<"$failed")" -le "$most" ]; then
    status=0
    while read -r test; do
        echo "Once more, by itself: $test"
        if run_tests "${before[@]}" -- "${after[@]}" --exact "$test" </dev/null | tee "$again" &&
            grep --quiet --fixed-strings "test $test ... ok" "$again"; then
            unsteady+=("$test")
        else
            status=1
        fi
    done <<<"$failed"
fi

echo "The slowest tests, in seconds:"
# Not by head: it ends before sort has written all, and the recipe would fail for that.
sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$output" | sort --reverse --numeric-sort | awk 'NR <= 20'
for test in "${unsteady[@]}"; do
    echo "UNSTEADY, passed only the second time, mend it: $test"
done
exit "$status"
