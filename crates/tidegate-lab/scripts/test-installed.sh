#!/usr/bin/env bash
# Makes the image with a program, and tests its services in a root of their own, as far as this machine can:
# `test-installed.sh image PROGRAM`. More arguments are those of `cargo test`.
set -euo pipefail

what=$1 program=$2
here=$(dirname "$(realpath "$0")")
name="test of the $what"
source "$here/install.sh"
skip() { say "$*, so this test is left out" && exit 0; }

[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
command -v unshare >/dev/null || skip "unshare (util-linux) is not here"
case $what in
  image)
    command -v buildah >/dev/null || install_packages buildah || skip "buildah is not here"
    trap 'buildah rmi tidegate-test >/dev/null' EXIT
    "$here/image.sh" "$program" tidegate-test
    ;;
esac
cargo test "${@:3}" --test pipeline "installed::$what" -- --ignored
