#!/bin/sh
# scripts/build.sh [release|clang|asan|hooks|cov] - configure where needed, then compile.
#
# Each kind has its own folder. A folder is configured anew when a source file has come or gone or the options
# differ, so adding a file needs no edit of any meson.build. WERROR=true makes warnings errors, as CI does. TARGETS names
# what is wanted, where that is not everything. What is not measured is optimized little. The one build with sanitizers is
# clang's and has the fuzz targets too: it serves as the second compiler, for the tests and for fuzzing.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-release}
folder=build-$kind
set -- -Dwerror="${WERROR:-false}"
case $kind in
release) folder=build ;;
clang) set -- "$@" -Doptimization=1 && export CC=clang ;;
asan) set -- "$@" -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false -Dfuzz=true && export CC=clang ;;
hooks) set -- "$@" -Dtest_hooks=true ;;
cov) set -- "$@" -Dcoverage=true -Doptimization=0 ;;
*)
    echo "scripts/build.sh: no such kind of build: $kind" >&2
    exit 2
    ;;
esac

inputs=$folder/inputs.txt
wanted=$(echo "$*" && find src tests -name '*.c' | LC_ALL=C sort)
[ -f "$folder/build.ninja" ] || echo "building in $folder; the first time takes some minutes"
if [ ! -f "$folder/build.ninja" ] || [ "$wanted" != "$(cat "$inputs" 2>/dev/null)" ]; then
    if [ -f "$folder/build.ninja" ]; then set -- --reconfigure "$@"; fi
    log=$(meson setup "$folder" "$@") || { echo "$log"; exit 1; }
    echo "$wanted" >"$inputs"
fi
quiet=--quiet
if [ -t 1 ]; then quiet=; fi # a person sees how far it is, in one line
# shellcheck disable=SC2086  # words are meant to split
exec ninja $quiet -C "$folder" ${JOBS:+-j "$JOBS"} ${TARGETS:-}
