#!/usr/bin/env bash
# The GPU kernel compiles without a warning for every generation it is written for that this nvcc knows.
set -eu
if ! nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null); then
  echo "skipped: no nvcc"
  exit 77
fi
arch=()
for sm in 80 90 100; do
  if "$nvcc" --list-gpu-code | grep -qx "sm_$sm"; then
    arch+=(-gencode "arch=compute_$sm,code=sm_$sm")
  fi
done
echo '#include "tile_gemm.cuh"' > kernel.cu
"$nvcc" -std=c++17 -O3 -Werror all-warnings -I "$ATOLL_SOURCE_DIR/modules/ctapipe/backends/cuda" "${arch[@]}" \
  -c -o kernel.o kernel.cu
echo "compiled for ${arch[*]}"
