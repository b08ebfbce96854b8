#!/usr/bin/env bash
# Fetches, once, the servers that Debian stable does not have: MySQL 9, Redis 8 and Valkey 9, from Debian unstable.
#
# They land in a folder of their own, and tests run them through the loader and libraries of that folder, without chroot
# and without root; nothing of the system changes, except that debootstrap and Debian's keyring are installed when they
# are missing. Only this script needs root, to fetch and to clean up.
#
#   TIDEGATE_MATRIX_DIR     where to (default: ${XDG_CACHE_HOME:-~/.cache}/tidegate/sid)
#   TIDEGATE_DEBIAN_MIRROR  where from (default: the Debian mirror that apt uses here)
set -euo pipefail

dir=${TIDEGATE_MATRIX_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/sid}
part=$dir.part
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
packages=mysql-server-core,redis-server,valkey-server
binaries=(usr/sbin/mysqld usr/bin/redis-server usr/bin/valkey-server)
plugins=(usr/lib/mysql/plugin/group_replication.so)

say() { echo "matrix: $*" >&2; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

is_complete() {
  local binary
  for binary in "${binaries[@]}"; do [ -x "$1/$binary" ] || return 1; done
  for binary in "${plugins[@]}"; do [ -e "$1/$binary" ] || return 1; done
}

install_debootstrap() {
  if command -v /usr/sbin/debootstrap >/dev/null && [ -r "$keyring" ]; then return; fi
  say "installing debootstrap and debian-archive-keyring"
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends
    debootstrap debian-archive-keyring)
  as_root "${install[@]}" >&2 || { as_root apt-get -o Acquire::Retries=3 update >&2 && as_root "${install[@]}" >&2; }
}

# The mirror (and the proxy) that apt is set up for is the one that is known to be reachable.
mirror_of_apt() {
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    grep -E '^https?://.*/debian/?$' | head -n 1 || true
}
use_proxy_of_apt() {
  local setting
  eval "$(apt-config shell setting Acquire::http::Proxy)"
  if [ -n "${setting:-}" ] && [ "$setting" != DIRECT ]; then export http_proxy=$setting; fi
}

# The part folder of an interrupted run is of no use. It may still have /proc and /sys mounted by debootstrap, and
# deleting through a mount would be a disaster.
remove_part() {
  [ -e "$part" ] || return 0
  as_root umount --recursive "$part/proc" 2>/dev/null || true
  as_root umount --recursive "$part/sys" 2>/dev/null || true
  as_root rm --recursive --force --one-file-system "$part"
}

if is_complete "$dir"; then
  say "already there: $dir"
  exit 0
fi

mkdir -p "$(dirname "$dir")"
exec 9>"$dir.lock"
flock 9 # a second run waits here, and finds the work done
if is_complete "$dir"; then
  say "already there: $dir"
  exit 0
fi

install_debootstrap
use_proxy_of_apt
mirror=${TIDEGATE_DEBIAN_MIRROR:-$(mirror_of_apt)}

remove_part
trap remove_part EXIT
# debootstrap inherits the lock on purpose: if only this script is killed, the next run waits for what it left running.
say "fetching $packages from ${mirror:-the default mirror} (unstable) into $dir; about a minute"
for attempt in 1 2 3; do
  if as_root env ${http_proxy:+http_proxy="$http_proxy"} /usr/sbin/debootstrap --variant=minbase --keyring="$keyring" \
    --include="$packages" sid "$part" ${mirror:+"$mirror"} >"$dir.log" 2>&1; then break; fi
  if [ "$attempt" -eq 3 ]; then
    say "debootstrap failed three times; the end of $dir.log:"
    tail -n 20 "$dir.log" >&2
    exit 1
  fi
  say "attempt $attempt failed, trying again"
  remove_part
done

# Downloaded packages are half of the size.
as_root chroot "$part" apt-get clean
is_complete "$part" || { say "debootstrap succeeded, but a server is missing in $part"; exit 1; }
as_root chmod 1777 "$part/tmp"
if [ -e "$dir" ]; then as_root rm --recursive --force --one-file-system "$dir"; fi
as_root mv "$part" "$dir"
say "ready: $dir"
for binary in "${binaries[@]}"; do say "  $(as_root chroot "$dir" "/$binary" --version 2>/dev/null | head -n 1)"; done
