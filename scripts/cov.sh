#!/bin/bash
# scripts/cov.sh [MINIMUM] - branch coverage of wire, core and store by the tests and a few simulated seeds.
#
# Fails under MINIMUM percent (default 95). An assertion is no branch, and a line that says PL_DEFENSIVE is left
# out: it guards against what cannot happen. build-cov/html/index.html shows every line.
set -euo pipefail
cd "$(dirname "$0")/.."
minimum=${1:-95}
TARGETS="pelago $(find tests -name 'test_*.c' | sed -nE 's#.*/(test_(base|wire|core|store|sim)_.*)\.c#tests/\1#p' | tr '\n' ' ')" \
    scripts/build.sh cov
find build-cov -name '*.gcda' -delete
code=0
mkdir -p build-cov/html
mapfile -t tests < <(meson test -C build-cov --list 2>/dev/null | sed 's|.* / ||' | grep -E '^(base|wire|core|store|sim)_')
meson test -C build-cov --no-rebuild --print-errorlogs "${tests[@]}" || code=1
meson test -C build-cov --no-rebuild --print-errorlogs --suite proto || code=1
BINARY=build-cov/pelago scripts/sim.sh "${COV_SEEDS:-1..40}" || code=1
gcovr --root . --object-directory build-cov build-cov/src --filter 'src/(wire|core|store)/' \
    --exclude-unreachable-branches --exclude-branches-by-pattern '.*(PL_DEFENSIVE|pl_assert).*' \
    --branches --fail-under-branch "$minimum" --html-details build-cov/html/index.html --print-summary --txt || code=1
exit $code
