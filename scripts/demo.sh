#!/bin/bash
# scripts/demo.sh - about a minute: four learners train one model over TLS, one of them is killed and comes back, and the model
# writes a little. DEMO_TIME and DEMO_TOKENS make it longer or shorter.
set -euo pipefail
cd "$(dirname "$0")/.."
run=build/demo # it stays until the next demo, to look at
rm -rf "$run"
killer=
finish() {
    if [ -n "$killer" ]; then kill "$killer" 2>/dev/null || true; fi
}
trap finish EXIT

pid_of() { sed -n "/\"name\": \"$1\"/,/}/s/.*\"pid\": \([0-9][0-9]*\).*/\1/p" "$run/run.json"; }

# Waits until all four take part, and a while longer; then one gets no chance to say goodbye.
kill_one() {
    until build/pelago status "$run" 2>/dev/null | grep -q 'alive 4 of 4'; do sleep 1; done
    sleep "${DEMO_KILL_AFTER:-15}"
    kill -9 "$(pid_of learner-3)"
}

echo "A syncer and four learners, each a process of its own, train one model of a million parameters on this machine."
echo "After some seconds learner-3 is killed (kill -9). The others do not wait for it, and it comes back by itself:"
echo
words=(run --learners 4 --threads 1 --model 1m --batch 4 --seq 128 --data builtin:tales
    --tokens "${DEMO_TOKENS:-3M}" --time "${DEMO_TIME:-55s}" --eval-tokens 20k)
echo "\$ build/pelago ${words[*]} --out $run"
kill_one &
killer=$!
build/pelago "${words[@]}" --out "$run"
echo
echo "\$ build/pelago sample $run --tokens 120"
build/pelago sample "$run" --tokens 120
