#!/usr/bin/env bash
# Builds the program in tests/redisson with each version of Redisson in tests/redisson/versions, or with the given versions, and
# prints the folders of the builds.
set -euo pipefail

cd "$(git rev-parse --show-toplevel)"
folder=$PWD/target/redisson
builds=()
versions=("$@")
[ $# -gt 0 ] || read -ra versions <tests/redisson/versions
for version in "${versions[@]}"; do
    if [ ! -e "$folder/$version/classpath" ] || [ -n "$(find tests/redisson -newer "$folder/$version/classpath")" ]; then
        mkdir -p "$folder/$version"
        mvn --quiet --batch-mode -Dstyle.color=never --file tests/redisson/pom.xml -Dtarget="$folder/$version" \
            -Dredisson.version="$version" compile dependency:build-classpath \
            -Dmdep.outputFile="$folder/$version/classpath" >&2
    fi
    builds+=("$folder/$version")
done
echo "${builds[*]}"
