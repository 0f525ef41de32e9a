#!/bin/sh
# list.sh FOLDER GLOB - FOLDER/name of the matching files, one a line, sorted; nothing when there are none.
# FOLDER is relative to the meson.build that asks.
set -eu
LC_ALL=C
export LC_ALL
cd "${MESON_SOURCE_ROOT:-.}/${MESON_SUBDIR:-}"
[ -d "$1" ] || exit 0
find "$1" -maxdepth 1 -type f -name "$2" | sort
