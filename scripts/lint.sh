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

# unicode.inc is written by tools/gen_unicode.py.
mapfile -t c_files < <(find src tests bench \( -name '*.[ch]' -o -name '*.inc' \) ! -name unicode.inc | sort)
mapfile -t shell_files < <(grep -rlE '^#!/bin/(ba)?sh' scripts tools experiments .ci | sort)
mapfile -t python_files < <(find tools tests experiments bench -name '*.py' | sort)
# The analyzer goes first where it has not been: what it leaves out when the nodes of a function are spent are further ways
# to lines it has seen. The default, 225,000 nodes, takes four times as long.
tidy_options=(--quiet --config-file=.clang-tidy)
for word in -Xclang -analyzer-config -Xclang max-nodes=50000; do tidy_options+=("--extra-arg=$word"); done
tidy() {
    find src -name '*.c' -print0 | xargs -0 -P "$jobs" -n 4 clang-tidy -p build "${tidy_options[@]}" 2>/dev/null
}
# A NULL that is read behind 2^24 ways, and an error of the plain kind.
tidy_self_test() {
    local folder said code=0 i
    folder=$(mktemp -d)
    {
        echo 'int pl_next(int); int pl_f(const int *p, int k); int pl_f(const int *p, int k) { int sum = 0;'
        for ((i = 0; i < 24; i++)); do echo "if (pl_next($i) > k) sum += pl_next(sum);"; done
        echo 'if (k == 7) p = 0; sum += pl_next(sum); return sum + *p; }'
        echo 'int pl_g(int k); int pl_g(int k) { return k == 3 || k == 3; }'
    } >"$folder/x.c"
    said=$(clang-tidy "${tidy_options[@]}" "$folder/x.c" -- -std=c11 2>/dev/null) && code=1
    [[ $said == *core.NullDereference* && $said == *misc-redundant-expression* ]] || code=1
    rm -rf "$folder"
    return $code
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
check "clang-tidy sees faults" tidy_self_test
check "clang-tidy" tidy
check "shellcheck" shellcheck "${shell_files[@]}"
check "python compiles" python_compiles
check "docs/results.md is made of its lines" experiments/tables.py --check
tools/report.py
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
