#!/bin/bash
# scripts/mutants.sh [quick] - prove that the simulator finds every planted fault of tests/sim/mutants.txt.
#
#   (nothing)  search seeds 1..500 for each mutant; each must be found
#   quick      what CI does: its recorded seed and 20 fresh ones; at least one of them must find it. A change of the
#              timing moves what a seed means: where the recorded one misses, the line says so; record another
#
# Without a mutant the seed must pass, else finding it would prove nothing. The simulator's exit code says
# what caught it: 3 assert, 4 liveness, 5 correctness.
set -euo pipefail
cd "$(dirname "$0")/.."
TARGETS=pelago scripts/build.sh hooks
binary=build-hooks/pelago
mode=${1:-search}
jobs=${JOBS:-$(nproc)}
fresh=$(($(scripts/seed.sh) % 10000000000 * 1000))
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# try MUTANT SEED - 0: found, 1: not found, otherwise the run itself went wrong. `code` keeps the exit code.
try() {
    code=0
    "$binary" sim --mutant "$1" --seed "$2" >"$logs/$1.$2" 2>&1 || code=$?
    case $code in
    0) return 1 ;;
    3 | 4 | 5) return 0 ;;
    *)
        echo "mutant $1, seed $2: unexpected exit code $code"
        tail -n 5 "$logs/$1.$2"
        touch "$logs/failed.$1"
        return 2
        ;;
    esac
}

search() {
    local seed caught
    for ((seed = 1; seed <= 500; seed++)); do
        if try "$1" "$seed"; then
            caught=$code
            if try 0 "$seed"; then
                echo "seed $seed fails without a mutant: that is a bug of ours, and proves nothing about mutant $1"
                touch "$logs/failed.$1"
                continue
            fi
            printf 'mutant %3d  found by seed %3d (exit %d)  %s\n' "$1" "$seed" "$caught" "$3"
            return
        fi
    done
    printf 'mutant %3d  NOT FOUND in 500 seeds  %s\n' "$1" "$3"
    touch "$logs/failed.$1"
}

quick() {
    local seed hits=0 caught=missed
    if try 0 "$2"; then
        echo "mutant $1: its recorded seed $2 fails without it; fix that first, or record another seed"
        touch "$logs/failed.$1"
    fi
    if try "$1" "$2"; then caught="found, exit $code"; fi
    for ((seed = fresh; seed < fresh + 20; seed++)); do
        if try "$1" "$seed"; then hits=$((hits + 1)); fi
    done
    if [ "$caught" = missed ] && [ "$hits" -eq 0 ]; then touch "$logs/failed.$1"; fi
    printf 'mutant %3d  seed %4d: %s; %2d of 20 fresh seeds find it  %s\n' "$1" "$2" "$caught" "$hits" "$3"
}

export -f try search quick
export binary fresh logs
# Lines are "NUMBER SEED NAME"; # begins a comment.
sed -n '/^[0-9]/p' tests/sim/mutants.txt >"$logs/mutants"
# shellcheck disable=SC2016  # the words are expanded by the inner shell
xargs -P "$jobs" -L 1 bash -c "$mode"' "$1" "$2" "${*:3}"' - <"$logs/mutants"
total=$(wc -l <"$logs/mutants")
failed=$(find "$logs" -name 'failed.*' | wc -l)
echo "$((total - failed)) passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$total" -gt 0 ]
