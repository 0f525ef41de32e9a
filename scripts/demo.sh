#!/bin/sh
# scripts/demo.sh - a simulated cluster to look at: the start of one run's trace, its end, then a few seeds.
set -eu
cd "$(dirname "$0")/.."
trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
echo '$ build/pelago sim --seed 7 --trace'
build/pelago sim --seed 7 --trace >"$trace"
sed -n 1,40p "$trace"
echo "... ($(wc -l <"$trace") lines)"
tail -n 15 "$trace"
echo
echo '$ build/pelago sim --seeds 1..20'
build/pelago sim --seeds 1..20
