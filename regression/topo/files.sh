# YAML and HDF5 read back to the same topology, a stranger reads the HDF5 file with h5py, the drawing is XML, and differences are told.
. "${0%/*}/../lib/case.sh"
cluster=$(sourcefile inputs/clusters/a100-v100)
run atoll-topo "$cluster" --yaml
cp "$ATOLL_LAST_OUT" a.yaml
run atoll-topo "$cluster" --hdf5 a.h5 --svg a.svg
run atoll-topo a.yaml --diff a.h5
says "no difference"
run atoll-topo a.h5 --diff "$cluster"
says "no difference"
run atoll-topo a.h5 --explain
says "a and b are apart"
expect 76 atoll-topo a.yaml --diff "$(sourcefile inputs/clusters/mixed-2x2)"
says "node v1 | n3: kind: 'v100' | 'slow'"
sed 's/gemm_f32: "13500"/gemm_f32: "27000"/' a.yaml >b.yaml
expect 76 atoll-topo a.yaml --diff b.yaml
says "node v0 device 0: f32 rate: 13500 | 27000 GFLOP/s"
grep -q '<svg' a.svg || fail "a.svg is no drawing"
run env -i PATH="$PATH" /usr/bin/env python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("a.svg")'
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
  cat >look.py <<'P'
import h5py
f = h5py.File("a.h5", "r")
t = f["topology"]
model = [m.decode() if isinstance(m, bytes) else m for m in t["devices/model"][()]]
assert model == ["NVIDIA A100-SXM4-40GB"] * 8 + ["NVIDIA Tesla V100-PCIE-16GB"] * 4, model
d = t["devices/gemm_f32"]
assert d.shape == (12, 9) and d[0, 0] == 16000 and d[8, 0] == 13500 and d[0, 1] != d[0, 1]
assert d.attrs["units"] in (b"GFLOP s-1", "GFLOP s-1") and d.attrs["long_name"]
assert list(f["islands/island_of"][()]) == [0] * 8 + [1] * 4
P
  run /usr/bin/python3 look.py
fi
