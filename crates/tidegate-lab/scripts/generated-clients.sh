#!/usr/bin/env bash
# Generates clients from a gate's openapi.json in Python, TypeScript, Java and Go. No generator may warn of the document, and the
# clients must compile. The clients in Python and TypeScript then buy, pay, refund and read orders at a private gate with a worker.
# The folder that the programs were built in is the first argument. Further arguments choose languages, such as `python typescript`.
#
# A language whose tools are not here is left out, which the script says.
set -euo pipefail

programs=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
environment=$programs/../generated-clients
packages=$programs/../generated-clients-npm
languages=("${@:2}")
[ "${#languages[@]}" -gt 0 ] || languages=(python typescript java go)
name=clients
source "$here/private-gate.sh"

fail() { say "$*" && exit 1; }

# Runs a generator, and fails if its output has a line that warns. $1 is a pattern of lines that do not count.
generate() {
    local harmless=$1
    shift
    "$@" >generated.log 2>&1 || { cat generated.log >&2 && fail "$1 failed"; }
    if grep -v -e "$harmless" generated.log | grep -i -E '\b(warn|warning|error|deprecated)\b' >&2; then
        fail "$1 warns of the document (see above)"
    fi
}

python_client() {
    PATH=$environment/bin:$PATH generate '^$' openapi-python-client generate --url "$document" --meta none \
        --output-path python/gate_client --fail-on-warning
    cp "$here/generated-clients/sale.py" python/
    "$environment/bin/python" -m compileall -q python
    "$environment/bin/python" python/sale.py "http://$address" 1001
    say "the Python client has bought, paid and refunded"
}

# Of every document of OpenAPI 3.1, the generator says that its support of this version is in beta.
openapi_generator() {
    JAVA_TOOL_OPTIONS= generate 'OpenAPI 3.1 support is still in beta' "$environment/bin/openapi-generator-cli" generate \
        --generator-name "$1" --input-spec "$document" --output "$1" --additional-properties enumClassPrefix=true
}

java_client() {
    openapi_generator java
    if ! command -v mvn >/dev/null; then
        say "mvn is not here, so the Java client is generated, but not compiled"
        return
    fi
    (cd java && mvn --quiet --batch-mode -Dstyle.color=never -Dmaven.test.skip=true compile) || fail "the Java client does not compile"
    say "the Java client compiles"
}

go_client() {
    openapi_generator go
    if ! command -v go >/dev/null; then
        say "go is not here, so the Go client is generated, but not compiled"
        return
    fi
    (cd go && go build . && go vet .) || fail "the Go client does not compile"
    say "the Go client compiles"
}

typescript_client() {
    local wanted script scripts=(sale)
    wanted=$(cat "$here/generated-clients-npm.txt")
    if [ "$(cat "$packages/made-for" 2>/dev/null)" != "$wanted" ]; then
        rm -rf "$packages" && mkdir "$packages" && echo '{"private": true}' >"$packages/package.json"
        if ! xargs npm install --silent --no-audit --no-fund --prefix "$packages" <"$here/generated-clients-npm.txt"; then
            say "the npm packages cannot be installed (see above), so there is no TypeScript client"
            return
        fi
        echo "$wanted" >"$packages/made-for"
    fi
    mkdir typescript
    cp "$here"/generated-clients/*.ts typescript/
    ln -s "$(realpath "$packages/node_modules")" typescript/node_modules
    echo '{"type": "module"}' >typescript/package.json
    generate '^$' typescript/node_modules/.bin/openapi-typescript "$document" --output typescript/gate.ts
    if grep --quiet '"/results"' typescript/gate.ts; then scripts+=(results); fi
    for script in "${scripts[@]}"; do
        (cd typescript && node_modules/.bin/tsc --strict --target es2022 --module nodenext "$script.ts") || fail "$script.ts does not compile"
        node "typescript/$script.js" "http://$address" 2001
    done
    say "the TypeScript client has bought, paid and refunded"
}

can_generate() {
    case $1 in
        python) [ -n "$has_python" ] ;;
        typescript) command -v npm >/dev/null ;;
        java | go) [ -n "$has_python" ] && command -v java >/dev/null ;;
        *) fail "there is no client in $1" ;;
    esac
}

has_python=true
python_environment "$here/generated-clients.txt" || has_python=
possible=()
for language in "${languages[@]}"; do
    if can_generate "$language"; then
        possible+=("$language")
    else
        say "there is no $language client: it needs Python with pip for python, npm for typescript, Python and Java for java and go"
    fi
done
[ "${#possible[@]}" -gt 0 ] || exit 0

start_servers
tidegate voucher load --voucher 1 --stock 1000
start_gate
document=http://$address/openapi.json
TIDEGATE_RESULTS_PUBLISH=all "$programs/tidegate" worker >worker.log 2>&1 &
started+=("$!")
for language in "${possible[@]}"; do "${language}_client"; done
