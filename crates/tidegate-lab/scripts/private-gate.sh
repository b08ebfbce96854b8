# Functions for scripts that ask a private gate. Such a script sets `programs` (the folder of the programs) and `name`.
# Servers, gate, worker and what they write end with the script. This file is sourced, never executed.

say() { echo "$name: $*" >&2; }

# Makes the Python environment $environment with the packages of a requirements file, or fails.
# Anew where another version is asked for, or where the last try broke off.
python_environment() {
    local wanted
    if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        say "python3 with venv and pip is not here: apt-get install python3-venv"
        return 1
    fi
    wanted=$(md5sum "$1")
    if [ "$(cat "$environment/made-for" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$environment"
        python3 -m venv "$environment" || return 1
        "$environment/bin/pip" install --quiet --disable-pip-version-check --requirement "$1" || return 1
        echo "$wanted" >"$environment/made-for"
    fi
}

end() {
    local process
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    (cd "$folder" && "$programs/tidegate-lab" down) >/dev/null 2>&1 || true
    rm -rf "$folder"
}

# Starts Redis and MySQL for a system with the schema, and goes into the folder $folder.
start_servers() {
    folder=$(mktemp --directory)
    started=()
    trap end EXIT
    cd "$folder"
    for setting in $(compgen -e | grep '^TIDEGATE_' | grep -v '^TIDEGATE_LAB_'); do unset "$setting"; done
    "$programs/tidegate-lab" up >servers
    eval "$(grep '^export ' servers)"
    tidegate migrate
}

# Runs a command of an operator.
tidegate() { "$programs/tidegate" "$@" >>"$folder/loaded" 2>&1 || { cat "$folder/loaded" >&2 && exit 1; }; }

# Starts a gate, and sets $gate to its process and $address to its address, when it is ready.
start_gate() {
    touch gate.log
    TIDEGATE_GATE_LISTEN=127.0.0.1:0 TIDEGATE_LOG_FORMAT=json "$programs/tidegate" gate 2>>gate.log &
    gate=$!
    started+=("$gate")
    address=
    until [ -n "$address" ] && (exec 3<>"/dev/tcp/${address/://}" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && grep --quiet '^ready' <&3); do
        kill -0 "$gate" || { cat gate.log >&2 && exit 1; }
        address=$(sed -nE 's/.*"address":"([^"]+)".*/\1/p' gate.log)
    done
}
