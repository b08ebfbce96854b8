#!/usr/bin/env bash
# Makes a Debian package of a program: `deb.sh PROGRAM PACKAGE.deb [OPTIONS OF cargo-deb]`. Its list of files is in
# crates/tidegate/Cargo.toml. This script makes the files that the repository does not have: the unit of the gate, completions, manual
# pages and the copyright.
set -euo pipefail

program=$(realpath "$1") package=$(realpath "$2")
cd "$(dirname "$0")/../../.."
name=deb
source crates/tidegate-lab/scripts/install.sh
files=target/deb
{ command -v help2man && command -v dpkg-shlibdeps; } >/dev/null || install_packages help2man dpkg-dev
cargo_tool cargo-deb 3.8.0
# The same files make the same package.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

rm -rf "$files"
mkdir -p "$files/man" "$files/commands"
install --strip "$program" "$files/tidegate"
tidegate=$PWD/$files/tidegate
for shell in bash zsh fish; do "$tidegate" completions "$shell" >"$files/completions.$shell"; done
sed -E 's/^(Description=Tidegate).*/\1 gate: admits orders over HTTP/; s/^(ExecStart=tidegate) worker$/\1 gate/' \
  deploy/systemd/tidegate.service >"$files/tidegate-gate.service"
{
  cat deploy/debian/copyright
  sed -n '/^Permission/,$s/^$/./; /^Permission/,$s/^/ /p' LICENSE-MIT
} >"$files/copyright"

# The help of a command, in lines that are not wrapped where examples would be.
help() { COLUMNS=100 "$tidegate" "$@" --help; }

# Writes the manual page of a command, and those of the commands below it.
manual() {
  local page below
  page=$(IFS=- && echo "tidegate${*:+-$*}")
  # help2man takes the name of the page from that of the program.
  printf '#!/bin/sh\nCOLUMNS=100 exec "%s" %s "$@"\n' "$tidegate" "$*" >"$files/commands/$page"
  chmod +x "$files/commands/$page"
  help2man --no-info --version-string "$version" --name "$(help "$@" | sed '/^$/q' | paste -s -d ' ')" \
    --include "$files/see-also" "$files/commands/$page" |
    # Each example keeps its line, as it is.
    sed -E '/^\.SH EXAMPLES/,/^\.(PP|SH|SS)/{s/^\.IP/&\n.nf/;/EXAMPLES/!s/^\.(PP|SH|SS)/.fi\n&/}' >"$files/man/$page.1"
  for below in $(help "$@" | sed -nE '/^Commands:/,/^Options:/{/^  help /d;s/^  ([a-z][a-z-]*) .*/\1/p}'); do manual "$@" "$below"; done
}
version=$("$tidegate" --version | cut -d ' ' -f 2)
printf '[see also]\n.BR tidegate (1).\nEach command has a page, such as\n.BR tidegate-voucher-load (1).\n' >"$files/see-also"
manual

"$tools/bin/cargo-deb" --no-build --no-strip --quiet --package tidegate --output "$package" "${@:3}" >/dev/null
say "$package: $(du --human-readable "$package" | cut -f 1)"
