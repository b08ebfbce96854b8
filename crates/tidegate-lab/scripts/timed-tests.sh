#!/usr/bin/env bash
# `cargo test` with these arguments, then once more, each by itself, the tests that failed. A test that passes then is unsteady, which
# fails all unless it stands in unsteady-tests.txt. A test with seeds gets no second try: each run has new seeds, so its failure is a
# finding, and it is named with the seeds that repeat it. At last, the twenty tests that took longest, in seconds.
#
# The harness measures. Stable hides its option --report-time, which RUSTC_BOOTSTRAP shows: to the test programs alone, by way
# of cargo's runner, so that nothing is compiled in another way.
set -euo pipefail

# So many that fail at once are no matter of luck.
most=5
list=$(dirname "${BASH_SOURCE[0]}")/unsteady-tests.txt
most_listed=5

output=$(mktemp) again=$(mktemp)
trap 'rm -f "$output" "$again"' EXIT
runner='["sh", "-c", "RUSTC_BOOTSTRAP=1 exec \"$@\" -Zunstable-options --report-time", "timed"]'

run_tests() {
    cargo --config "target.'cfg(all())'.runner=$runner" test "$@"
}

# The entries of the list; it fails where one has another form.
listed_tests() {
    local entries wrong
    entries=$(grep -vE '^(#.*)?$' "$list") || return 0
    wrong=$(grep -vE '^[0-9]{4}-[0-1][0-9]-[0-3][0-9] [a-z0-9_]+(::[a-z0-9_]+)* [^ ].{19,}$' <<<"$entries") || true
    if [ -n "$wrong" ]; then
        echo "unsteady-tests.txt: a line is a date, the whole name of a test and the reason. Repair: $wrong" >&2
        return 1
    fi
    if [ "$(wc -l <<<"$entries")" -gt "$most_listed" ]; then
        echo "unsteady-tests.txt has more than $most_listed tests: fix one before you add one" >&2
        return 1
    fi
    cut -d ' ' -f 2 <<<"$entries"
}

# What a failed test printed, by which its output begins, and where it ends: at that of the next one, or at the end of the program.
said_by() {
    awk -v name="$1" '/^---- .* stdout ----$/ { shown = $0 == "---- " name " stdout ----" }
        /^test result: / { shown = 0 } shown' "$output"
}

# Nothing to read is no reason for a second try: the harness shows the output of every failed test, unless it was told not to.
has_seeds() {
    local said
    said=$(said_by "$1")
    [ -z "$said" ] || grep --quiet -E 'TIDEGATE_TEST_SEED=|minimal failing input' <<<"$said"
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

listed=$(listed_tests)
# Both tries have the same seeds. Those of proptest are drawn by it, from this one.
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
export TIDEGATE_TEST_SEED=${TIDEGATE_TEST_SEED:-$seed-} PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$seed}
seeds="TIDEGATE_TEST_SEED=$TIDEGATE_TEST_SEED PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"

status=0
run_tests "${before[@]}" --no-fail-fast -- "${after[@]}" | tee "$output" || status=$?

failed=$(sed -nE 's/^test (.*) \.\.\. FAILED.*/\1/p' "$output" | sort --unique)
verdicts=()
begun=$(grep -cE '^running [0-9]+ tests?$' "$output" || true)
ended=$(grep -cE '^test result: ' "$output" || true)
# A test program that crashed has not said how it ended: that is more than a failed test.
if [ "$status" -ne 0 ] && [ -n "$failed" ] && [ "$begun" -eq "$ended" ] && [ "$(wc -l <<<"$failed")" -le "$most" ]; then
    status=0
    while read -r test; do
        if has_seeds "$test"; then
            verdicts+=("FAILED WITH ITS SEEDS, which is a finding and not tried again: $test; all ran with $seeds")
            status=1
            continue
        fi
        echo "Once more, by itself: $test"
        if ! { run_tests "${before[@]}" -- "${after[@]}" --exact "$test" </dev/null | tee "$again" &&
            grep --quiet --fixed-strings "test $test ... ok" "$again"; }; then
            verdicts+=("FAILED twice: $test")
            status=1
        elif grep --quiet --line-regexp --fixed-strings -e "$test" <<<"$listed"; then
            verdicts+=("UNSTEADY, as unsteady-tests.txt says: $test")
        else
            verdicts+=("UNSTEADY, passed only the second time, fix it: $test")
            status=1
        fi
    done <<<"$failed"
fi

echo "The slowest tests, in seconds:"
# Not by head: it ends before sort has written all, and the recipe would fail for that.
sed -nE 's/^test (.*) \.\.\. .*<([0-9.]+)s>$/\2 \1/p' "$output" | sort --reverse --numeric-sort | awk 'NR <= 20'
for verdict in "${verdicts[@]}"; do
    echo "$verdict"
done
exit "$status"
