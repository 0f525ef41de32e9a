#!/bin/bash
# scripts/check_cuda.sh - every operation, the whole model and 200 steps of training on this machine's NVIDIA GPU.
#
# The same tests as on the processor's back ends (tests/grad), with build/libpelago_cuda.so in reach; those against PyTorch are
# left out where PYTHON (default python3) has none. Leaves with 77 where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
export LD_LIBRARY_PATH=$PWD/build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
python=${PYTHON:-python3} passed=0 failed=0
if ! build/tests/grad/model_dump backends | grep -qx cuda; then
    build/pelago bench trainer --model 1m --backend cuda || true
    exit 77
fi
check() { # NAME COMMAND...
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        printf '%s\n' "$said" | tail -40
        echo "FAILED  $name"
    fi
}
for suite in rows heads product; do
    check "operations: $suite" "build/tests/test_ops_$suite"
done
if "$python" -c 'import torch' 2>/dev/null; then
    check "gradients against PyTorch" "$python" tests/grad/model_vs_torch.py build/tests/grad/model_dump grad
    check "200 steps against PyTorch" "$python" tests/grad/model_vs_torch.py build/tests/grad/model_dump train
fi
build/pelago bench trainer --model 14m --batch 8 --seq 256 --backend cuda
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
