#!/usr/bin/env bash
# Asks a gate whatever its own openapi.json allows and forbids, by schemathesis: no answer is outside that document, and none is a 500.
# The folder that the programs were built in is the argument. Servers, gate and what they write are private, and end with this script.
#
# Python brings the fuzzer. Where there is none, or it cannot make an environment, nothing is asked; what the fuzzer finds, fails.
set -euo pipefail

programs=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
environment=$programs/../fuzz-gate

say() { echo "fuzz-gate: $*" >&2; }

if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    say "python3 with venv and pip is not here, so the gate's API is not fuzzed: apt-get install python3-venv"
    exit 0
fi

# Anew where another version is asked for, or where the last try broke off.
wanted=$(md5sum "$here/fuzz-gate.txt")
if [ "$(cat "$environment/made-for" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$environment"
    if ! { python3 -m venv "$environment" &&
        "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/fuzz-gate.txt"; }; then
        say "schemathesis cannot be installed (see above), so the gate's API is not fuzzed"
        exit 0
    fi
    echo "$wanted" >"$environment/made-for"
fi

folder=$(mktemp --directory)
gate=
end() {
    [ -z "$gate" ] || kill "$gate" 2>/dev/null || true
    (cd "$folder" && "$programs/tidegate-lab" down) >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap end EXIT
cd "$folder"
for setting in $(compgen -e | grep '^TIDEGATE_' | grep -v '^TIDEGATE_LAB_'); do unset "$setting"; done
"$programs/tidegate-lab" up >servers
eval "$(grep '^export ' servers)"

tidegate() { "$programs/tidegate" "$@" >>"$folder/loaded" 2>&1 || { cat "$folder/loaded" >&2 && exit 1; }; }
tidegate migrate
tidegate voucher load --voucher 1 --stock 1000000
tidegate voucher load --voucher 2 --stock 1
tidegate voucher load --voucher 3 --stock 1000000
tidegate limit set --voucher 3 --name phones --subject phone --window day --orders 3 --yes
tidegate limit set --voucher 3 --name fast --rate 1/1s --burst 5 --yes
tidegate voucher load --voucher 4 --stock 1000
tidegate pause --voucher 4 --yes
tidegate voucher load --voucher 5 --stock 1000 --begin 2037-01-01T00:00:00Z

touch gate.log
TIDEGATE_GATE_LISTEN=127.0.0.1:0 TIDEGATE_LOG_FORMAT=json "$programs/tidegate" gate 2>>gate.log &
gate=$!
address=
until [ -n "$address" ] && (exec 3<>"/dev/tcp/${address/://}" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && grep --quiet '^ready' <&3); do
    kill -0 "$gate" || { cat gate.log >&2 && exit 1; }
    address=$(sed -nE 's/.*"address":"([^"]+)".*/\1/p' gate.log)
done

status=0
SCHEMATHESIS_HOOKS=$here/fuzz_gate_hooks.py PYTHONDONTWRITEBYTECODE=1 \
    "$environment/bin/schemathesis" --config-file "$here/fuzz-gate.toml" run "http://$address/openapi.json" --no-color || status=$?
kill -0 "$gate" || { say "the gate died" && status=1; }
if [ "$status" -ne 0 ]; then
    say "what the gate said last:"
    tail -n 20 gate.log >&2
fi
exit "$status"
