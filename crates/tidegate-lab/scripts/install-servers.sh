#!/usr/bin/env bash
# Installs Debian's redis-server and mariadb-server for the lab, without starting them: the lab runs servers of its
# own, in temporary folders, and a system service would only sit on the standard ports.
set -euo pipefail

policy=/usr/sbin/policy-rc.d
saved=$policy.before-tidegate

say() { echo "servers: $*" >&2; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

missing=()
PATH=$PATH:/usr/sbin:/sbin
command -v redis-server >/dev/null || missing+=(redis-server)
command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null || missing+=(mariadb-server)
command -v setpriv >/dev/null || missing+=(util-linux)
if [ "${#missing[@]}" -eq 0 ]; then
  say "already installed: $(command -v redis-server), $(command -v mariadbd)"
  exit 0
fi
command -v apt-get >/dev/null || {
  say "this script knows Debian and Ubuntu only; please install yourself: ${missing[*]}"
  exit 1
}

# Exit code 101 of this file means "do not start services"; invoke-rc.d asks it after an installation.
forbid_services() {
  if [ -e "$saved" ]; then say "$saved is left over from an interrupted run, keeping it"; else
    if [ -e "$policy" ]; then as_root mv "$policy" "$saved"; fi
  fi
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
}
allow_services_again() {
  as_root rm -f "$policy"
  if [ -e "$saved" ]; then as_root mv "$saved" "$policy"; fi
}

install_missing() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 install -y --no-install-recommends \
    "${missing[@]}" >&2
}
update_lists() {
  local attempt
  for attempt in 1 2 3; do
    if as_root apt-get -o Acquire::Retries=3 update >&2; then return; fi
    say "apt-get update failed (attempt $attempt)"
    sleep "$attempt"
  done
  # One broken repository among several must not stop us: the installation itself will tell.
}

trap allow_services_again EXIT
forbid_services
say "installing ${missing[*]} (no service is started)"
install_missing || { say "updating apt's lists first" && update_lists && install_missing; }
say "done: $(command -v redis-server), $(command -v mariadbd)"
