#!/usr/bin/env bash
# Fetches, once, the servers that Debian stable does not have: MySQL 9, Redis 8 and Valkey 9, from Debian unstable.
#
# They land in a folder of their own, and tests run them through the loader and libraries of that folder, without chroot
# and without root; nothing of the system changes, except that debootstrap and Debian's keyring are installed when they
# are missing. Only this script needs root, to fetch and to clean up.
#
#   TIDEGATE_MATRIX_DIR     where to (default: ${XDG_CACHE_HOME:-~/.cache}/tidegate/sid)
set -euo pipefail

name=matrix
source "$(dirname "$0")/install.sh"
dir=${TIDEGATE_MATRIX_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/sid}
binaries=(usr/sbin/mysqld usr/bin/redis-server usr/bin/valkey-server)
plugins=(usr/lib/mysql/plugin/group_replication.so)

has_servers() {
  local binary
  for binary in "${binaries[@]}"; do [ -x "$1/$binary" ] || return 1; done
  for binary in "${plugins[@]}"; do [ -e "$1/$binary" ] || return 1; done
}

is_complete=has_servers
debian sid mysql-server-core,redis-server,valkey-server
# Only what was fetched just now: chroot needs root.
[ -n "${part:-}" ] || exit 0
for binary in "${binaries[@]}"; do say "  $(as_root chroot "$dir" "/$binary" --version 2>/dev/null | head -n 1)"; done
