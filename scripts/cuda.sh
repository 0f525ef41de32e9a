#!/bin/bash
# scripts/cuda.sh - build/libpelago_cuda.so, the back end for NVIDIA GPUs. Needs nvcc and cuBLAS; pelago itself does not.
#
# NVCC: the compiler. ARCH: what to build for, as nvcc is told (default: 8.0 and 9.0, and what newer GPUs compile for themselves).
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if [ ! -x "$nvcc" ]; then
    echo "scripts/cuda.sh: there is no nvcc; NVIDIA's CUDA toolkit has it, and NVCC=... says where it is." >&2
    exit 1
fi
read -ra arch <<<"${ARCH:--gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90]}"
objects=build/cuda library=build/libpelago_cuda.so
newest() { # LIBRARY
    local file
    for file in src/model/cuda/*.cu src/model/cuda/*h src/model/ops.h scripts/cuda.sh; do
        [ "$1" -nt "$file" ] || return 1
    done
}
if newest "$library"; then
    echo "$library is there already."
    exit 0
fi
rm -rf "$objects"
mkdir -p "$objects"
compile() { # SOURCE
    "$nvcc" -std=c++20 -O3 "${arch[@]}" -Xcompiler -fPIC,-fvisibility=hidden,-Wall -Isrc -c "$1" \
        -o "$objects/$(basename "$1" .cu).o"
}
pids=()
for source in src/model/cuda/*.cu; do
    compile "$source" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid"
done
"$nvcc" -shared -cudart static -Xcompiler -fPIC -o "$library.new" "$objects"/*.o -lcublas
mv "$library.new" "$library"
echo "$library is built."
