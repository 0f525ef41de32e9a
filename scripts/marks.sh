#!/bin/bash
# scripts/marks.sh [A..B] - which rare paths (PL_MARK in src/) no simulated seed takes (default 1..300).
#
# Prints the names of those never taken and leaves with 1 when there are any; the last line counts.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh hooks
seeds=${1:-1..300}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

grep -rhoE 'PL_MARK\("[^"]+"\)' src --include='*.c' | sed 's/.*"\(.*\)".*/\1/' | LC_ALL=C sort -u >"$logs/all"
if ! build-hooks/pelago sim --seeds "$seeds" --twice-percent 0 --marks >"$logs/run"; then
    grep -v '^mark ' "$logs/run" >&2 || true
    echo "scripts/marks.sh: a seed failed; repair that first" >&2
    exit 1
fi
sed -n 's/^mark \([^ ]*\) .*/\1/p' "$logs/run" | LC_ALL=C sort -u >"$logs/hit"
LC_ALL=C comm -23 "$logs/all" "$logs/hit" | tee "$logs/missed" | sed 's/^/never taken: /'
total=$(wc -l <"$logs/all")
missed=$(wc -l <"$logs/missed")
echo "$((total - missed)) passed, $missed failed"
[ "$missed" -eq 0 ] && [ "$total" -gt 0 ]
