#!/usr/bin/env bash
# Installs Debian's redis-server and mariadb-server for the lab, with what a cluster of Galera needs, without starting
# them: the lab runs servers of its own, in temporary folders, and a system service would only sit on the standard
# ports. Of the package prometheus only promtool is taken, which tests check the metrics with.
set -euo pipefail

name=servers
source "$(dirname "$0")/install.sh"
policy=/usr/sbin/policy-rc.d
saved=$policy.before-tidegate

missing=()
PATH=$PATH:/usr/sbin:/sbin
command -v redis-server >/dev/null || missing+=(redis-server)
command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null || missing+=(mariadb-server)
command -v setpriv >/dev/null || missing+=(util-linux)
[ -e /usr/lib/galera/libgalera_smm.so ] || missing+=(galera-4)
# How a node of Galera is sent all data, and what the script that does it looks at ports and processes with.
command -v rsync >/dev/null || missing+=(rsync)
command -v ss >/dev/null || missing+=(iproute2)
command -v ps >/dev/null || missing+=(procps)
wanted=("${missing[@]}")
command -v promtool >/dev/null || wanted+=(promtool)
if [ "${#wanted[@]}" -eq 0 ]; then
  say "already installed: $(command -v redis-server), $(command -v mariadbd), $(command -v promtool), galera-4"
  exit 0
fi
needs_debian "${wanted[@]}"

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

# Out of its package, without installing that: it would bring a service along.
fetch_promtool() {
  (cd "$folder" && apt-get -o Acquire::Retries=3 -o APT::Sandbox::User=root download prometheus >&2) || return
  dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar --extract --directory "$folder" ./usr/bin/promtool
  as_root install -D --mode 755 "$folder/usr/bin/promtool" /usr/local/bin/promtool
}

if [ "${#missing[@]}" -gt 0 ]; then
  trap allow_services_again EXIT
  forbid_services
  install_packages "${missing[@]}"
  allow_services_again
  trap - EXIT
fi
if ! command -v promtool >/dev/null; then
  folder=$(mktemp --directory)
  trap 'rm -rf "$folder"' EXIT
  say "taking promtool out of the package prometheus"
  fetch_promtool || { say "updating apt's lists first" && update_lists && fetch_promtool; }
fi
say "done: $(command -v redis-server), $(command -v mariadbd), $(command -v promtool), galera-4"
