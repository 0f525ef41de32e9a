#!/bin/bash
# scripts/rows.sh - to be sourced: runs rows of a table of measurements, one command each, and counts what they say.
#
#   row NAME COMMAND...    runs it and shows its lines; remembers what came of it
#   rows_end               says what came of all; false when a row failed, or nothing passed
#
# A row says its verdicts in lines of JSON: "pass", "miss", "not judged" (a figure for the reader, or a speed in a form too
# short to judge one) or "not measured" (something it compares with is not there). A row fails when it missed a bar, when
# it says no verdict at all, and when it leaves with anything but 0; 77 says that this machine cannot run it: skipped.
rows_passed=0 rows_failed=0 rows_unjudged=0 rows_unmeasured=0 rows_table='' rows_skipped=()

rows_count() { grep -c "\"verdict\": *\"$1\"" "$2" || true; }

row() {
    local name=$1 out begin=$SECONDS code=0 passed missed unjudged unmeasured why=
    shift
    out=$(mktemp)
    "$@" | tee "$out"
    code=${PIPESTATUS[0]}
    passed=$(rows_count pass "$out") missed=$(rows_count miss "$out")
    unjudged=$(rows_count 'not judged' "$out") unmeasured=$(rows_count 'not measured' "$out")
    rm -f "$out"
    if [ "$code" -eq 77 ]; then
        rows_skipped+=("$name") why='skipped: this machine cannot run it'
    elif [ "$missed" -gt 0 ]; then
        why="FAILED: $missed missed"
    elif [ "$code" -ne 0 ]; then
        missed=1 why="FAILED: it left with $code"
    elif [ $((passed + unjudged + unmeasured)) -eq 0 ]; then
        missed=1 why='FAILED: it said no verdict'
    fi
    rows_passed=$((rows_passed + passed)) rows_failed=$((rows_failed + missed))
    rows_unjudged=$((rows_unjudged + unjudged)) rows_unmeasured=$((rows_unmeasured + unmeasured))
    [ "$unmeasured" -eq 0 ] || why="$why${why:+; }$unmeasured not measured"
    rows_table+=$(printf '%-14s %4d s %3d passed %3d not judged  %s' "$name" $((SECONDS - begin)) "$passed" "$unjudged" "$why")$'\n'
}

rows_end() {
    printf '\n%s' "$rows_table"
    echo "$rows_unjudged not judged, $rows_unmeasured not measured, ${#rows_skipped[@]} skipped${rows_skipped[*]:+: ${rows_skipped[*]}}"
    echo "$rows_passed passed, $rows_failed failed"
    [ "$rows_failed" -eq 0 ] && [ "$rows_passed" -gt 0 ]
}
