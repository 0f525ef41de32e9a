#!/bin/bash
# scripts/lint.sh - everything about the code that can be checked without running it. The last line counts checks.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release
jobs=${JOBS:-$(nproc)}
passed=0 failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
        passed=$((passed + 1))
    else
        echo "FAILED  $name"
        failed=$((failed + 1))
    fi
}

mapfile -t c_files < <(find src tests -name '*.[ch]' | sort)
mapfile -t shell_files < <(grep -rlE '^#!/bin/(ba)?sh' scripts tools experiments .ci | sort)
mapfile -t python_files < <(find tools tests experiments bench -name '*.py' | sort)
tidy() {
    find src -name '*.c' -print0 | xargs -0 -P "$jobs" -n 4 clang-tidy -p build --quiet 2>/dev/null
}
formatted() {
    local file wrong=0
    for file in "${c_files[@]}"; do
        clang-format --dry-run -Werror "$file" 2>/dev/null || { echo "not formatted: $file" && wrong=1; }
    done
    return $wrong
}
python_compiles() {
    python3 -c 'import sys; [compile(open(f).read(), f, "exec") for f in sys.argv[1:]]' "${python_files[@]}"
}

check "the layer check sees breaches" tools/check_layers.py --self-test
check "layers: include direction and libraries" tools/check_layers.py
check "the purity check sees impurities" tools/check_pure.sh --self-test
check "purity of core, wire and store" tools/check_pure.sh build
check "format (make format repairs)" formatted
check "clang-tidy" tidy
check "shellcheck" shellcheck "${shell_files[@]}"
check "python compiles" python_compiles
tools/report.py
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
