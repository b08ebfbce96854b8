#!/usr/bin/env bash
# Functions for scripts that install what they need: packages of Debian, programs of crates.io, a Debian in a folder. Such a script sets
# `name`. This file is sourced, never executed.

say() { echo "$name: $*" >&2; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

update_lists() {
  local attempt
  for attempt in 1 2 3; do
    if as_root apt-get -o Acquire::Retries=3 update >&2; then return; fi
    say "apt-get update failed (attempt $attempt)"
    sleep "$attempt"
  done
  # One broken repository among several must not stop us: the installation itself will tell.
}

# Fails where there is no apt-get to install these packages.
needs_debian() {
  command -v apt-get >/dev/null || { say "this script knows Debian and Ubuntu only; please install yourself: $*" && return 1; }
}

# Installs packages of Debian, if need be with new lists, or fails.
install_packages() {
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y --no-install-recommends "$@")
  needs_debian "$@" || return
  say "installing $*"
  as_root "${install[@]}" >&2 || { say "updating apt's lists first" && update_lists && as_root "${install[@]}" >&2; }
}

# Builds a program of crates.io in this version into $tools, once; more arguments are options of `cargo install`.
tools=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")/target/tools
cargo_tool() {
  local program=$1 version=$2
  shift 2
  if [ "$("$tools/bin/$program" --version 2>/dev/null | grep -oE '[0-9][0-9.]*')" != "$version" ]; then
    say "building $program $version"
    # Without optimisation: it builds in half the time, and has little to do.
    CARGO_TARGET_DIR="$tools/build" cargo install --debug --locked --quiet --root "$tools" "$program@$version" "$@"
  fi
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

# Makes the smallest Debian of a suite with more packages (a,b,c) in the folder $dir, once. $is_complete is a command that tells whether
# a folder is one. Only this needs root, to fetch and to clean up.
#
#   TIDEGATE_DEBIAN_MIRROR  where from (default: the Debian mirror that apt uses here)
debian() {
  local suite=$1 packages=$2 keyring=/usr/share/keyrings/debian-archive-keyring.gpg attempt mirror
  if ! "$is_complete" "$dir"; then
    mkdir -p "$(dirname "$dir")"
    exec 9>"$dir.lock"
    flock 9 # a second run waits here, and finds the work done
  fi
  if "$is_complete" "$dir"; then
    say "already there: $dir"
    return
  fi
  if [ ! -x /usr/sbin/debootstrap ] || [ ! -r "$keyring" ]; then install_packages debootstrap debian-archive-keyring; fi
  use_proxy_of_apt
  mirror=${TIDEGATE_DEBIAN_MIRROR:-$(mirror_of_apt)}

  part=$dir.part
  remove_part
  trap remove_part EXIT
  # debootstrap inherits the lock on purpose: if only this script is killed, the next run waits for what it left running.
  say "fetching $packages from ${mirror:-the default mirror} ($suite) into $dir; about a minute"
  for attempt in 1 2 3; do
    if as_root env ${http_proxy:+http_proxy="$http_proxy"} /usr/sbin/debootstrap --variant=minbase --keyring="$keyring" \
      --include="$packages" "$suite" "$part" ${mirror:+"$mirror"} >"$dir.log" 2>&1; then break; fi
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
  "$is_complete" "$part" || { say "debootstrap succeeded, but a file is missing in $part" && exit 1; }
  as_root chmod 1777 "$part/tmp"
  if [ -e "$dir" ]; then as_root rm --recursive --force --one-file-system "$dir"; fi
  as_root mv "$part" "$dir"
  say "ready: $dir"
}
