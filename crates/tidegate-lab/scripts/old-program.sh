#!/usr/bin/env bash
# Builds the program of the commit in tests/rolling-from, once, and prints the folder with its source and its `target/debug/tidegate`.
set -euo pipefail

cd "$(git rev-parse --show-toplevel)"
commit=$(<tests/rolling-from)
source=$PWD/target/rolling/$commit
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "rolling: this clone lacks the commit $commit, which tests/rolling-from names: git fetch --unshallow, or git fetch origin $commit" >&2
  exit 1
fi
# `cargo clean` deletes the folder, and git still knows it.
git worktree prune
[ -e "$source/Cargo.toml" ] || git worktree add --quiet --detach "$source" "$commit" >&2
# The commit tells its workers apart from those of this version.
BUILD_COMMIT=${commit:0:12} cargo build --locked --package tidegate --no-default-features \
  --manifest-path "$source/Cargo.toml" --target-dir "$source/target" >&2
echo "$source"
