#!/bin/bash
# scripts/test.sh [release|asan|hooks|cov] [SUITE...] - build, then run the tests: all suites (unit, proto, fault, grad, e2e)
# or those named. One test by name: meson test -C build NAME -v. The last line counts single test cases.
#
# Random tests start from the code's own seed (scripts/seed.sh); FRESH=20 runs all but e2e 20 times with new seeds.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=${1:-release}
shift || true
scripts/build.sh "$kind"
folder=build-$kind
[ "$kind" != release ] || folder=build
suites=()
for suite in "$@"; do suites+=(--suite "$suite"); done

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
code=0
repeat=()
if [ -n "${FRESH:-}" ]; then
    unset PL_SEED
    repeat=(--repeat "$FRESH" --no-suite e2e)
else
    PL_SEED=$(scripts/seed.sh)
    export PL_SEED
    echo "random tests from seed $PL_SEED"
fi
meson test -C "$folder" --no-rebuild --print-errorlogs "${repeat[@]}" "${suites[@]}" || code=$?
log=$folder/meson-logs/testlog.txt
passed=0 failed=0 skipped=0
if [ -f "$log" ]; then
    passed=$(grep -c '^ok ' "$log" || true)
    failed=$(grep -c '^not ok ' "$log" || true)
    # What was left out, and why: whole tests, and parts of some.
    skipped=$(grep -c '"result": "SKIP"' "${log%.txt}.json" || true)
    sed -nE 's/^\{"name": "[^"]* ([^" ]+)", "stdout": "(skipped: |1\.\.0 # SKIP )?(.*)\\n", "result": "SKIP".*/skipped  \1: \3/p' \
        "${log%.txt}.json"
    grep -E '^left out: |^# [a-z0-9]+ skipped: ' "$log" | sort -u || true
fi
echo "$skipped tests skipped"
# meson shows which case failed; cmocka's reason, with file and line, is in the log.
if [ "$failed" -gt 0 ]; then grep -A 5 '^not ok ' "$log"; fi
# A test that crashed or ran out of time has no "not ok" line; it still counts.
if [ $code -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
if [ $((passed + failed)) -eq 0 ]; then
    echo "scripts/test.sh: no test ran" >&2
    failed=1 code=1
fi
echo "$passed passed, $failed failed"
exit $code
