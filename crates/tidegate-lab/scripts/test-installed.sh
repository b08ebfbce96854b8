#!/usr/bin/env bash
# Makes the image or the Debian package with a program, and tests its services in a root of their own, as far as this machine can:
# `test-installed.sh image|package PROGRAM`. More arguments are those of `cargo test`.
set -euo pipefail

what=$1 program=$2
here=$(dirname "$(realpath "$0")")
name="test of the $what"
source "$here/install.sh"
skip() { say "$*, so this test is left out" && exit 0; }
# What a server has: a Debian with systemd, to install the package in.
is_complete() { [ -x "$1/usr/bin/systemd-analyze" ]; }

[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
command -v unshare >/dev/null || skip "unshare (util-linux) is not here"
case $what in
  image)
    command -v buildah >/dev/null || install_packages buildah || skip "buildah is not here"
    trap 'buildah rmi tidegate-test >/dev/null' EXIT
    "$here/image.sh" "$program" tidegate-test
    ;;
  package)
    command -v apt-get >/dev/null || skip "apt-get, for debootstrap and cargo-deb, is not here"
    "$here/deb.sh" "$program" "$here/../../../target/deb-test.deb" --fast
    suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm)
    dir=${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/$suite is_complete=is_complete
    debian "$suite" systemd
    export TIDEGATE_DEBIAN_ROOT=$dir
    ;;
esac
cargo test "${@:3}" --test pipeline "installed::$what" -- --ignored
