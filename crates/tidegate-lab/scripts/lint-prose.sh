#!/usr/bin/env bash
# Checks our English with Vale: all Markdown, and all doc comments, which include the texts of help. The rules are in
# tests/documents/prose. Vale is built with Go, once, into target/tools.
set -euo pipefail
cd "$(dirname "$0")/../../.."

version=v3.21.0
tools=$PWD/target/tools/vale-$version
rules=tests/documents/prose
most_warnings=20
say() { echo "lint-prose: $*" >&2; }

if ! command -v go >/dev/null; then
  say "Go is not here, so no prose is checked"
  exit 0
fi
if [ ! -x "$tools/vale" ]; then
  say "building Vale $version"
  GOBIN="$tools" go install "github.com/vale-cli/vale/v3/cmd/vale@$version" || {
    say "Vale cannot be built here, so no prose is checked"
    exit 0
  }
fi

# Comments at the lines that they have in their files, so that a finding names its place.
folder=target/prose
rm -rf "$folder"
find crates tests -name '*.rs' -print0 | while IFS= read -r -d '' file; do
  mkdir -p "$folder/$(dirname "$file")"
  sed -nE 's#^[[:space:]]*//[/!] ?(.*)$#\1#;t p;s#.*##;:p;p' "$file" >"$folder/$file.md"
done
pages() {
  find . -name '*.md' -not -path './target/*' -not -path './docs/zh-CN/*' -not -name '*.zh-CN.md' -print0
  find "$folder" -name '*.md' -print0
}
found=$(pages | xargs -0 "$tools/vale" --config="$rules/vale.ini" --no-exit --output="$rules/line.tmpl" |
  sed "s#^\([a-z]*: \)$folder/\([^:]*\)\.md:#\1\2:#")
count() { grep -c "^$1: " <<<"$found" || true; }
errors=$(count error)
warnings=$(count warning)

if [ -n "$found" ]; then echo "$found"; fi
if [ "$errors" -gt 0 ] || [ "$warnings" -gt "$most_warnings" ]; then
  say "$errors errors and $warnings warnings; wanted are none and at most $most_warnings"
  exit 1
fi
say "no errors, and $warnings warnings"
