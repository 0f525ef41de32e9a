#!/bin/bash
# scripts/fuzz.sh [SECONDS] [TARGET...] - run the libFuzzer targets of tests/fuzz, each for so long (default 60).
#
# Known inputs come from tests/fuzz/corpus/TARGET; what is found new stays in build-asan/corpus/TARGET.
# Add an input that found a bug to the first folder: it is then tried in every run.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
scripts/build.sh asan
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(find tests/fuzz -name 'fuzz_*.c' -printf '%f\n' | sed 's/\.c$//' | sort)
fi

run_target() {
    local known=tests/fuzz/corpus/$1 work=build-asan/corpus/$1 log=build-asan/$1.log
    mkdir -p "$known" "$work"
    rm -f "build-asan/$1.failed"
    if build-asan/tests/fuzz/"$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build-asan/$1-" "$work" "$known" >"$log" 2>&1; then
        echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no crash"
    else
        touch "build-asan/$1.failed"
        tail -n 40 "$log"
        echo "$1: FAILED; repeat with: build-asan/tests/fuzz/$1 \$(ls -t build-asan/$1-* | head -n 1)"
    fi
}
export -f run_target
export seconds
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'run_target {}'
failed=0
for target in "${targets[@]}"; do
    [ ! -e "build-asan/$target.failed" ] || failed=$((failed + 1))
done
echo "$((${#targets[@]} - failed)) passed, $failed failed"
[ "$failed" -eq 0 ] && [ ${#targets[@]} -gt 0 ]
