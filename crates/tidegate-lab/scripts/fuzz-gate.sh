#!/usr/bin/env bash
# Asks a gate whatever its own openapi.json allows and forbids, by schemathesis: no answer is outside that document, and none is a 500.
# The folder that the programs were built in is the argument. Servers, gate and what they write are private, and end with this script.
#
# Python brings the fuzzer. Where there is none, or it cannot make an environment, nothing is asked; what the fuzzer finds, fails.
set -euo pipefail

programs=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
environment=$programs/../fuzz-gate
name=fuzz-gate
source "$here/private-gate.sh"

if ! python_environment "$here/fuzz-gate.txt"; then
    say "schemathesis cannot be installed (see above), so the gate's API is not fuzzed"
    exit 0
fi

start_servers
tidegate voucher load --voucher 1 --stock 1000000
tidegate voucher load --voucher 2 --stock 1
tidegate voucher load --voucher 3 --stock 1000000
tidegate limit set --voucher 3 --name phones --subject phone --window day --orders 3 --yes
tidegate limit set --voucher 3 --name fast --rate 1/1s --burst 5 --yes
tidegate voucher load --voucher 4 --stock 1000
tidegate pause --voucher 4 --yes
tidegate voucher load --voucher 5 --stock 1000 --begin 2037-01-01T00:00:00Z
printf 'north,6,1000\nsouth,7,1000\n' >regions
tidegate campaign load --campaign 1 --regions regions --yes
tidegate admit --voucher 1 --user 4711 --order 4711
start_gate

status=0
SCHEMATHESIS_HOOKS=$here/fuzz_gate_hooks.py PYTHONDONTWRITEBYTECODE=1 \
    "$environment/bin/schemathesis" --config-file "$here/fuzz-gate.toml" run "http://$address/openapi.json" --no-color || status=$?
kill -0 "$gate" || { say "the gate died" && status=1; }
if [ "$status" -ne 0 ]; then
    say "what the gate said last:"
    tail -n 20 gate.log >&2
fi
exit "$status"
