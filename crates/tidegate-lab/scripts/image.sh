#!/usr/bin/env bash
# Builds the image with a program by buildah, without a registry: `image.sh PROGRAM NAME`. The image is then in the store of buildah and
# podman, and in target/image/NAME.tar for `docker load`.
set -euo pipefail

program=$1 image=$2
here=$(dirname "$(realpath "$0")")
name=image
source "$here/install.sh"
folder=$here/../../../target/image
command -v buildah >/dev/null || install_packages buildah

"$here/image-root.sh" "$program" "$folder/files"
# The stage that builds the program is not needed: its files are here.
sed -n '/^FROM scratch/,$p' "$here/../../../deploy/Dockerfile" >"$folder/Dockerfile"
# The format of OCI has no health check.
buildah build --quiet --format docker --build-context build="$folder" --file "$folder/Dockerfile" --tag "$image" "$folder" >/dev/null
rm -f "$folder/$image.tar"
buildah push --quiet "$image" "docker-archive:$folder/$image.tar:$image"
say "the image $image, target/image/$image.tar: $(du --human-readable "$folder/$image.tar" | cut -f 1)"
