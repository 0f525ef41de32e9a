#!/bin/bash
# check_pure.sh [FOLDER] - proves on the objects of a release build (default: build) that core, wire and store are
# pure: they call only mem*, our own functions and the assert handler, allocate nothing and own no writable memory.
# In core's sources no floating-point type occurs, so that decisions are made in integers.
# check_pure.sh --self-test - proves that each kind of impurity is seen.
set -euo pipefail
cd "$(dirname "$0")/.."

# What a pure object may need. The __*_chk forms and __stack_chk_fail are the compiler's hardening.
allowed='mem(cpy|move|set|cmp)|__mem(cpy|move|set)_chk|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|pl_[a-z0-9_]+'
# Ours, but not pure: they reach the allocator or change the state of the process.
impure='pl_alloc_[a-z0-9_]+|pl_assert_set_handler|pl_mutant_choose'

# check_object FILE - prints what is wrong with it.
check_object() {
    nm -u "$1" | awk '{print $NF}' | grep -vxE "$allowed" | sed "s|^|$1: calls |" || true
    nm -u "$1" | awk '{print $NF}' | grep -xE "$impure" | sed "s|^|$1: calls |" || true
    # Writable sections; constants with addresses in them (.data.rel.ro) are read-only once loaded.
    objdump -h "$1" | awk -v file="$1" '
        $2 ~ /^\.(data|bss|tdata|tbss)/ && $2 !~ /^\.data\.rel\.ro/ && $3 !~ /^0+$/ {
            print file ": owns writable memory, 0x" $3 " bytes in " $2 }'
}

# check_source FILE - prints floating-point types outside comments.
check_source() {
    gcc -fpreprocessed -dD -E -P "$1" 2>/dev/null | grep -nwE 'float|double|_Float16' | sed "s|^|$1: floating point: |" ||
        true
}

self_test() {
    local folder wrong=0 expected got
    folder=$(mktemp -d)
    # verdict EXPECTED CODE: does the snippet (not) get complaints?
    verdict() {
        expected=$1
        echo "$2" >"$folder/x.c"
        gcc -O2 -fPIE -fno-common -c "$folder/x.c" -o "$folder/x.o"
        got=$({ check_object "$folder/x.o" && check_source "$folder/x.c"; } | wc -l)
        if [ "$got" != "$expected" ]; then
            echo "self-test: expected $expected complaints, got $got: $2"
            wrong=1
        fi
    }
    verdict 0 'int pl_g(int); int pl_f(int a) { /* no double here */ return pl_g(a); }'
    verdict 0 'static const char *const t[] = {"a", "b"}; const char *pl_f(int i) { return t[i]; }'
    verdict 1 '#include <stdlib.h>
               void *pl_f(void) { return malloc(3); }'
    verdict 1 '#include <time.h>
               long pl_f(void) { return (long)time(0); }'
    verdict 1 'void *pl_alloc_zero(int); void *pl_f(void) { return pl_alloc_zero(1); }'
    verdict 1 'int pl_f(void) { static int n; return n++; }'
    verdict 1 'static int t[] = {1, 2}; int *pl_f(void) { return t; }'
    verdict 1 'static _Thread_local int n; int pl_f(void) { return n++; }'
    verdict 1 'int pl_f(int a) { return a > (int)(double)a; }'
    rm -rf "$folder"
    return $wrong
}

if [ "${1:-}" = --self-test ]; then
    self_test
    exit
fi
folder=${1:-build}
count=0
complaints=$(mktemp)
trap 'rm -f "$complaints"' EXIT
for layer in core wire store; do
    objects=("$folder/src/libpl_$layer.a.p/"*.o)
    if [ ! -e "${objects[0]}" ]; then
        echo "purity: no objects of $layer in $folder" >>"$complaints"
        continue
    fi
    for object in "${objects[@]}"; do
        check_object "$object" >>"$complaints"
        count=$((count + 1))
    done
done
for source in src/core/*.[ch]; do check_source "$source" >>"$complaints"; done
if [ -s "$complaints" ]; then
    cat "$complaints"
    exit 1
fi
echo "purity: $count objects of core, wire and store, nothing impure"
