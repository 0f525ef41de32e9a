#!/bin/bash
# tests/e2e/rows.sh - scripts/rows.sh counts what rows say, and a row that says nothing, breaks down or cannot run is seen;
# scripts/bench_cluster.sh knows its rows by name.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
failed=0
says() { printf '{"row": "x", "verdict": "%s"}\n' "$@"; }
breaks() { says pass && return "$1"; }
exit_with() { return "$1"; }
# expect EXIT-CODE LAST-LINE PATTERN: what the rows of stdin come to
expect() {
    local out code=0
    out=$(. scripts/rows.sh && eval "$(cat)" && rows_end) || code=$?
    if [ "$code" != "$1" ] || [ "$(tail -n 1 <<<"$out")" != "$2" ] || ! grep -qE -- "$3" <<<"$out"; then
        echo "FAILED: expected $1, '$2' and '$3', got $code and:" >&2
        echo "$out" >&2
        failed=1
    fi
}
expect 0 '2 passed, 0 failed' '^1 not judged, 1 not measured, 0 skipped$' <<<'row a says pass "not judged"; row b says pass "not measured"'
expect 1 '1 passed, 2 failed' '^a .*FAILED: 2 missed' <<<'row a says miss miss; row b says pass'
expect 1 '1 passed, 1 failed' '^b .*FAILED: it said no verdict' <<<'row a says pass; row b true'
expect 1 '1 passed, 1 failed' '^a .*FAILED: it left with 3' <<<'row a breaks 3'
expect 1 '1 passed, 1 failed' '^a .*FAILED: it left with 127' <<<'row a ./there-is-no-such-program 2>/dev/null; row b says pass'
expect 0 '1 passed, 0 failed' '^0 not judged, 0 not measured, 1 skipped: a$' <<<'row a exit_with 77; row b says pass; '
expect 1 '0 passed, 0 failed' '1 skipped: a' <<<'row a exit_with 77'

# Every row the header names can be asked for, and no other.
for name in $(scripts/bench_cluster.sh --list); do
    scripts/bench_cluster.sh --row "$name" --list | grep -qx "$name" || { echo "FAILED: --row $name selects nothing" >&2 && failed=1; }
done
for name in quiet storm syncer-kills durability memory merge link wan connections hostile private aarch64; do
    scripts/bench_cluster.sh --row "$name" --list | grep -qx "$name" || { echo "FAILED: there is no row $name" >&2 && failed=1; }
done
! scripts/bench_cluster.sh --row nonsense --list 2>/dev/null || { echo "FAILED: --row nonsense was taken" >&2 && failed=1; }
[ $failed = 0 ] && echo "rows: all good"
