#!/bin/bash
# scripts/bench_cluster.sh [--short] [--row NAME,...] - everything a real cluster must show, one line of JSON a row.
#
# Rows of bench/cluster.py (quiet, kills, storm, crowd, syncer-kills, partition, stale, edge, lines), and: merge (pelago bench merge), link (bench/link.sh), wan
# (bench/wan.sh), connections, hostile, private (bench/*.py). --short: the forms that take seconds. The last line counts rows.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
short=() rows=
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=(--short) ;;
    --row) rows=${2:?--row needs a list} && shift ;;
    *) echo "usage: scripts/bench_cluster.sh [--short] [--row NAME,...]" >&2 && exit 2 ;;
    esac
    shift
done
own=quiet,kills,syncer-kills,partition,stale,edge,lines
[ ${#short[@]} -gt 0 ] || own=quiet,kills,crowd,partition,stale,edge,lines
out=$(mktemp)
trap 'rm -f "$out"' EXIT
wanted() { [ -z "$rows" ] || [[ ,$rows, == *,$1,* ]]; }
for row in ${own//,/ }; do if wanted "$row"; then bench/cluster.py "${short[@]}" --row "$row"; fi; done | tee -a "$out"
if wanted merge; then build/pelago bench merge --threads 2 --json | tee -a "$out"; fi
if wanted link; then bench/link.sh "${short[@]}" | tee -a "$out"; fi
if wanted wan; then bench/wan.sh "${short[@]}" | tee -a "$out"; fi
for row in connections hostile private; do
    if wanted $row; then "bench/$row.py" "${short[@]}" | tee -a "$out"; fi
done
passed=$(grep -c '"verdict": "pass"' "$out") failed=$(grep -c '"verdict": "miss"' "$out")
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
