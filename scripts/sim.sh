#!/bin/bash
# scripts/sim.sh A..B [OPTION...]     simulate these seeds on all cores; further options go to `pelago sim`
# scripts/sim.sh recorded [OPTION...] every seed of tests/sim/seeds.txt: those that ever failed
# scripts/sim.sh fresh N [OPTION...]  N seeds of this code's own (scripts/seed.sh); which ones is printed
#
# BINARY=build-hooks/pelago runs another build. The last line counts seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${BINARY:-build/pelago}
jobs=${JOBS:-$(nproc)}
[ -x "$binary" ] || { echo "$binary is missing: run make build first" >&2; exit 1; }
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

what=${1:?usage: scripts/sim.sh A..B | recorded | fresh N}
shift
ranges=()
if [ "$what" = recorded ]; then
    # The first word of a line is the seed; the rest says what it found.
    mapfile -t ranges < <(sed -n 's/^\([0-9][0-9]*\).*/\1..\1/p' tests/sim/seeds.txt)
else
    if [ "$what" = fresh ]; then
        total=${1:?usage: scripts/sim.sh fresh N}
        shift
        # Every change of the code looks elsewhere; a seed that fails is recorded and stays.
        first=$(($(scripts/seed.sh) % 10000000000 * 1000))
    else
        [[ $what =~ ^[0-9]+(\.\.[0-9]+)?$ ]] || { echo "scripts/sim.sh: seeds are written A..B, not $what" >&2; exit 2; }
        first=${what%%..*}
        total=$((${what##*..} - first + 1))
        [ "$total" -gt 0 ] || { echo "scripts/sim.sh: no seeds in $what" >&2; exit 2; }
    fi
    echo "seeds $first..$((first + total - 1))"
    share=$(((total + jobs - 1) / jobs))
    for ((from = first; from < first + total; from += share)); do
        to=$((from + share - 1))
        ranges+=("$from..$((to < first + total ? to : first + total - 1))")
    done
fi

run_range() {
    local range=$1 code=0
    shift
    "$binary" sim --seeds "$range" "$@" >"$logs/$range" 2>&1 || code=$?
    local summary
    summary=$(grep -E '^[0-9]+ seeds, [0-9]+ failed' "$logs/$range" || true)
    if [ $code -eq 0 ] && [ -n "$summary" ]; then
        echo "$summary"
    else
        echo "exit $code for seeds $range:"
        tail -n 30 "$logs/$range"
    fi
    # A range that did not come to its end counts as one failure.
    echo "${summary:-1 seeds, 1 failed}" >"$logs/summary.$range"
}
export -f run_range
export binary logs
if [ ${#ranges[@]} -gt 0 ]; then
    printf '%s\n' "${ranges[@]}" | xargs -P "$jobs" -I{} bash -c 'run_range "$@"' - {} "$@"
fi
# Two rules are statistical: quality and merged95 judge a share, and a random draw may lie just outside. Of fresh seeds, up
# to 2 in 1,000 of that kind are shown and noted; more, or any other failure, fails. Recorded and chosen seeds get no such
# allowance.
noted=0
if [ "$what" = fresh ]; then
    noted=$(cat "$logs"/*..* 2>/dev/null | grep -cE '^seed [0-9]+: exit 5 correctness: (without faults: )?(quality|merged95)' || true)
    [ "$noted" -le $(((total + 499) / 500)) ] || noted=0
fi
read -r passed failed < <(cat "$logs"/summary.* | awk '{ n += $1; f += $3 } END { print n - f, f + 0 }')
[ "$noted" -eq 0 ] || echo "noted: $noted of $total fresh seeds just outside a statistical bound"
failed=$((failed - noted))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
