#!/bin/bash
# scripts/demo.sh - a small model trained for about a minute, then a simulated cluster: one round in full, what breaks
# and how it comes back.
set -euo pipefail
cd "$(dirname "$0")/.."
trace=$(mktemp)
work=$(mktemp -d)
trap 'rm -rf "$trace" "$work"' EXIT

echo "A model of a million parameters learns to read tales, on this machine alone:"
echo "\$ build/pelago train --model 1m --data builtin:tales --tokens 2M --out run"
build/pelago train --model 1m --data builtin:tales --tokens "${DEMO_TOKENS:-2M}" --out "$work/run"
echo
echo "\$ build/pelago sample run --tokens 120"
build/pelago sample "$work/run" --tokens 120
echo

run=(build/pelago sim --seed 7 --learners 4 --shards 1 --fragments 4 --quorum 1 --period 8 --apply 0
    --step 1s --latency 20ms --faults 33 --fault-mean 30s)
show() { cut -c1-118; }

echo "Four learners train one model; a syncer merges its four fragments. Everything but the protocol is simulated:"
echo "\$ ${run[*]} --trace"
"${run[@]}" --trace >"$trace"

echo
echo "One round of one fragment: asked ahead of time, copied and pushed, merged, made durable, announced."
round=$(sed -n 's/.*round.merge fragment=2 round=\([0-9.]*\) contributors=4.*/\1/p' "$trace" | sed -n 2p)
version=$(awk -v r="round=$round" '$0 ~ "outcome.merged fragment=2 " r " " { print $NF; exit }' "$trace")
grep -E "fragment=2 round=$round |version.publish fragment=2 $version " "$trace" | grep -vE 'gets|sends' | show

echo
echo "What broke until 200 s (world), and what the syncer and the learners made of it:"
awk '$1 < 200' "$trace" | grep -E 'world|syncer\.boot|learner\.(lost|join)|outcome\.discard' | show

echo
echo "Then no more faults; the run reaches its budget and ends with the same bits everywhere:"
grep -E 'run\.(closing|done)' "$trace" | show
grep '^seed' "$trace"

echo
echo "\$ build/pelago sim --seeds 1..20      (other clusters, other faults, every rule checked after every event)"
build/pelago sim --seeds 1..20 | grep -v '^reproduce'
