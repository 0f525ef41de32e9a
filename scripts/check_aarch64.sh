#!/bin/bash
# scripts/check_aarch64.sh [--short] - the merge and the codecs give the same bits on aarch64 (under qemu) as here, and the
# trainer's portable back end does there what the reference does.
#
# Needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user. Compiles base, codec and optim twice, runs the
# seeded digests of tests/e2e/merge_digest.c on both, here on every level of instructions, and compares them line by line.
# Then every operation of the model at every shape of tests/support/op_*.c, on aarch64 (tests/grad/ops_elsewhere.c); about a
# minute of one core. --short leaves out the longest arrays and the operations: seconds instead of minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
arg=
case ${1:-} in
'') ;;
--short) arg=short ;;
*) echo "usage: scripts/check_aarch64.sh [--short]" >&2 && exit 2 ;;
esac
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "scripts/check_aarch64.sh: $tool is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user" >&2; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/include"
ln -s /usr/include/xxhash.h "$work/include/xxhash.h"

# digest COMPILER FILE...: a static program
digest() {
    local out=$1 compiler=$2
    shift 2
    "$compiler" -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -Isrc -isystem "$work/include" -static -pthread -o "$out" \
        tests/e2e/merge_digest.c "$@" -lm
}

plain=$(find src/base src/codec src/optim -name '*.c' ! -name '*_avx2.c' ! -name '*_avx512.c' ! -name pack.c | sort)
# shellcheck disable=SC2086  # words are meant to split
digest "$work/arm" aarch64-linux-gnu-gcc $plain
qemu-aarch64 "$work/arm" $arg >"$work/arm.txt"
scripts/build.sh release
gcc -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off -Isrc -static -pthread -o "$work/here" tests/e2e/merge_digest.c \
    -Wl,--start-group build/src/libpl_{optim,optim_avx2,optim_avx512,codec,codec_avx2,codec_avx512,base,libc}.a -Wl,--end-group -lm
passed=0 failed=0
for level in portable avx2 avx512; do
    if PELAGO_CPU=$level "$work/here" $arg >"$work/here.txt" && cmp -s "$work/arm.txt" "$work/here.txt"; then
        echo "ok      $level and aarch64: $(wc -l <"$work/arm.txt") digests" && passed=$((passed + 1))
    else
        echo "FAILED  $level and aarch64 differ" && failed=$((failed + 1))
        diff "$work/arm.txt" "$work/here.txt" | head -5 || true
    fi
done
printf '{"row": "equality-aarch64", "figure": %d, "bar": "0 levels whose digests differ", "verdict": "%s", "levels": %d, "digests": %d}\n' \
    "$failed" "$([ "$failed" -eq 0 ] && echo pass || echo miss)" $((passed + failed)) "$(wc -l <"$work/arm.txt")"
[ "$arg" = short ] && exit $((failed > 0))

# The model as src/meson.build compiles it: reassociation and contraction are what could go wrong elsewhere.
model_flags=(-O3 -fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -freciprocal-math -ffp-contract=fast)
# arm OUT OPTION|FILE...
arm() {
    local out=$1
    shift
    aarch64-linux-gnu-gcc -std=c11 -D_GNU_SOURCE -Isrc -Itests/support -isystem "$work/include" -pthread -o "$out" "$@"
}
mapfile -t base < <(find src/base -name '*.c' | sort)
mapfile -t model < <(find src/model -name '*.c' ! -path '*/x86/*' | sort)
mapfile -t cases < <(find tests/support -name 'op_*.c' ! -name op_main.c | sort)
arm "$work/base.o" -r -nostdlib -O2 -ffp-contract=off "${base[@]}"
arm "$work/model.o" -r -nostdlib "${model_flags[@]}" "${model[@]}"
arm "$work/ops" -static -O2 -ffp-contract=off tests/grad/ops_elsewhere.c "${cases[@]}" "$work/model.o" "$work/base.o" -lm
qemu-aarch64 "$work/ops" | tee "$work/ops.txt" || true
good=$(grep -c '^ok ' "$work/ops.txt" || true) bad=$(grep -c '^FAILED ' "$work/ops.txt" || true)
# A program that ended early has said less.
[ "$((good + bad))" -eq "$(grep -o '&op_' tests/support/op_cases.h | wc -l)" ] || bad=$((bad + 1))
failed=$((failed + bad))
printf '{"row": "operations-aarch64", "figure": %d, "bar": "0 operations that differ from the reference", "verdict": "%s", "operations": %d}\n' \
    "$bad" "$([ "$bad" -eq 0 ] && echo pass || echo miss)" $((good + bad))
[ "$failed" -eq 0 ]
