#!/usr/bin/env bash
# Runs a command in a folder as its root, which it cannot write to: `in-root.sh FOLDER UID:GID COMMAND...`. The process keeps its id. Its
# mounts (the folder itself, /proc) are its own, and end with it. This needs root.
set -euo pipefail

mkdir -p "$1/proc"
exec unshare --mount bash -c '
  set -e
  root=$1 user=$2
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -o remount,bind,ro "$root"
  exec chroot --userspec="$user" --groups= "$root" "${@:3}"' in-root "$@"
