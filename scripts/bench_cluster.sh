#!/bin/bash
# scripts/bench_cluster.sh [--short] [--list] [--row NAME,...] - everything a real cluster must show, lines of JSON for each row.
#
# Rows of bench/cluster.py: quiet, kills, crowd, storm, syncer-kills, partition, stale, edge, lines, durability. Others: memory,
# connections (bench/connections.py), merge (pelago bench merge), link (bench/link.sh), wan (bench/wan.sh), hostile, private
# (bench/*.py), aarch64 (scripts/check_aarch64.sh). Without --row all of them but storm and syncer-kills, whose full forms take
# half an hour and more each (make soak), and with --short, the forms that take seconds, all but storm, crowd and lines, which
# have none that shows anything in so short a time. --list names the rows and does nothing. A table of what came of each row,
# and a count, end it (scripts/rows.sh); it leaves with 1 when a row failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/rows.sh
short=() list=false rows=
all=quiet,kills,crowd,storm,syncer-kills,partition,stale,edge,lines,durability,memory,connections,merge,link,wan,hostile,private,aarch64
while [ $# -gt 0 ]; do
    case $1 in
    --short) short=(--short) ;;
    --list) list=true ;;
    --row) rows=${2:?--row needs a list} && shift ;;
    *) echo "usage: scripts/bench_cluster.sh [--short] [--list] [--row NAME,...]" >&2 && exit 2 ;;
    esac
    shift
done
leave_out=,storm,syncer-kills,
[ ${#short[@]} -eq 0 ] || leave_out=,storm,crowd,lines,
names=()
for name in ${all//,/ }; do
    if [ -n "$rows" ] || [[ $leave_out != *,$name,* ]]; then names+=("$name"); fi
done
if [ -n "$rows" ]; then
    for name in ${rows//,/ }; do
        [[ ,$all, == *,$name,* ]] || { echo "scripts/bench_cluster.sh: there is no row '$name'; there are ${all//,/, }" >&2; exit 2; }
    done
    read -ra names <<<"${rows//,/ }"
fi
if $list; then
    printf '%s\n' "${names[@]}"
    exit 0
fi
for name in "${names[@]}"; do
    case $name in
    merge) row merge build/pelago bench merge --threads 2 --json "${short[@]}" ;;
    link | wan) row "$name" "bench/$name.sh" "${short[@]}" ;;
    memory | connections) row "$name" bench/connections.py "${short[@]}" --row "$name" ;;
    hostile | private) row "$name" "bench/$name.py" "${short[@]}" ;;
    aarch64) row aarch64 scripts/check_aarch64.sh "${short[@]}" ;;
    *) row "$name" bench/cluster.py "${short[@]}" --row "$name" ;;
    esac
done
rows_end
