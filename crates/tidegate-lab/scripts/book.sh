#!/usr/bin/env bash
# Builds the book, target/book/index.html, with a search and drawings that need no network. mdBook and its drawings come
# from crates.io, once, into target/tools.
set -euo pipefail
cd "$(dirname "$0")/../../.."

tools=$PWD/target/tools
source=target/book-source
say() { echo "book: $*" >&2; }
install() {
  local name=$1 version=$2
  shift 2
  if [ "$("$tools/bin/$name" --version 2>/dev/null | grep -oE '[0-9][0-9.]*')" != "$version" ]; then
    say "building $name $version"
    # Without optimisation: it builds in half the time, and the book is small.
    CARGO_TARGET_DIR="$tools/build" cargo install --debug --locked --quiet --root "$tools" "$name@$version" "$@"
  fi
}

install mdbook 0.5.4 --no-default-features --features search
install mdbook-mermaid 0.17.1

# The book has the files and folders of the repository, so links to files work, too. A README is the index of its
# folder. The contents move to the top, where mdBook wants them.
rm -rf "$source" target/book
mkdir -p "$source"
tar --create --exclude=./target --exclude='./.*' . | tar --extract --directory "$source"
mv "$source/docs/book.toml" "$source"
sed -E 's#\]\(\.\./#](#; t; s#\]\(#](docs/#' "$source/docs/SUMMARY.md" >"$source/SUMMARY.md"
rm "$source/docs/SUMMARY.md"
find "$source" -name '*.md' -exec sed -i -E 's#\]\(docs/SUMMARY\.md\)#](README.md)#; s#\]\((([^)]*/)?)README\.md#](\1index.md#g' {} +
find "$source" -name README.md -execdir mv README.md index.md \;
PATH="$tools/bin:$PATH" mdbook-mermaid install "$source" 2>/dev/null
PATH="$tools/bin:$PATH" mdbook build "$source" >&2
say "target/book/index.html"
