#!/bin/sh
# scripts/build.sh [release|clang|asan|hooks|cov|fuzz] - configure where needed, then compile.
#
# Each kind has its own folder. A folder is configured anew when a source file has come or gone or the options
# differ, so adding a file needs no edit of any meson.build. WERROR=true makes warnings errors, as CI does. TARGETS names
# what is wanted, where that is not everything. What is not measured is optimized little.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-release}
folder=build-$kind
set -- -Dwerror="${WERROR:-false}"
case $kind in
release) folder=build ;;
clang) set -- "$@" -Doptimization=1 && export CC=clang ;;
asan) set -- "$@" -Db_sanitize=address,undefined -Db_lundef=false ;;
hooks) set -- "$@" -Dtest_hooks=true ;;
cov) set -- "$@" -Dcoverage=true -Doptimization=0 ;;
fuzz) set -- "$@" -Doptimization=1 -Dfuzz=true -Db_lundef=false && export CC=clang ;;
*)
    echo "scripts/build.sh: no such kind of build: $kind" >&2
    exit 2
    ;;
esac

inputs=$folder/inputs.txt
wanted=$(echo "$*" && find src tests -name '*.c' | LC_ALL=C sort)
if [ ! -f "$folder/build.ninja" ] || [ "$wanted" != "$(cat "$inputs" 2>/dev/null)" ]; then
    if [ -f "$folder/build.ninja" ]; then set -- --reconfigure "$@"; fi
    log=$(meson setup "$folder" "$@") || { echo "$log"; exit 1; }
    echo "$wanted" >"$inputs"
fi
# shellcheck disable=SC2086  # words are meant to split
exec ninja --quiet -C "$folder" ${JOBS:+-j "$JOBS"} ${TARGETS:-}
