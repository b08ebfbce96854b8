#!/usr/bin/env bash
# Builds the book, target/book/index.html, with a search and drawings that need no network. mdBook and its drawings come
# from crates.io, once, into target/tools.
set -euo pipefail
cd "$(dirname "$0")/../../.."

name=book
source crates/tidegate-lab/scripts/install.sh
source=target/book-source

cargo_tool mdbook 0.5.4 --no-default-features --features search
cargo_tool mdbook-mermaid 0.17.1

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
