#!/usr/bin/env bash
# Puts all files of the image into a folder: `image-root.sh PROGRAM FOLDER`. deploy/Dockerfile and image.sh call this script.
set -euo pipefail

program=$1 root=$2
authorities=/etc/ssl/certs/ca-certificates.crt zones=/usr/share/zoneinfo
for needed in "$authorities" "$zones/UTC"; do
  [ -e "$needed" ] || { echo "image: $needed is missing: apt-get install ca-certificates tzdata" >&2 && exit 1; }
done

rm -rf "$root"
install -D --strip "$program" "$root/usr/local/bin/tidegate"
# The loader and the shared libraries, at the paths where the loader looks for them.
ldd "$program" | grep -oE '/[^ ]+' | while read -r library; do install -D "$library" "$root$library"; done
# Whom TLS trusts: Redis, webhooks, and the collector of traces.
install -D --mode 644 "$authorities" "$root$authorities"
# Times without an offset are local times, which the variable TZ chooses.
mkdir -p "$root$zones"
tar --create --directory "$zones" --exclude=./posix --exclude=./right --exclude=./localtime . | tar --extract --directory "$root$zones"
echo 'tidegate:x:65532:65532:Tidegate:/:/usr/sbin/nologin' >"$root/etc/passwd"
