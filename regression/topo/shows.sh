# Recorded and made-up clusters are shown, with their islands and the reasons.
. "${0%/*}/../lib/case.sh"
run atoll-topo
says "topology from live (this machine): 1 nodes"
run atoll-topo "$(sourcefile inputs/clusters/mixed-2x2)"
says "4 nodes, 4 devices"
says "node n0 ... n1 (2 equal nodes) kind fast"
run atoll-topo "$(sourcefile inputs/clusters/mixed-2x2)" --islands --explain
says "2 islands"
says "island a: 2 devices on 2 nodes (n0 n1): Atoll example CPU, fast (1 core), 2 GiB each, 200 GFLOP/s f32 each"
says "a and b are apart: kind of node 'fast' against 'slow'"
run atoll-topo "$(sourcefile inputs/clusters/a100-v100)" --islands
says "a  8 x NVIDIA A100-SXM4-40GB  40 GiB  16000 GFLOP/s  2 nodes  11 GB/s between"
says "b  4 x NVIDIA Tesla V100-PCIE-16GB  16 GiB  13500 GFLOP/s"
run atoll-topo "$(sourcefile modules/topo/test/data/power8gpudistances.xml)"
says "gpu 0002:01:00.0  NVIDIA Tesla P100-SXM2-16GB"
run atoll-topo "topo.synthetic=3x(pack:2 core:4 memory=8GiB)" topo.ranks_per_node=4
says "3 nodes, 12 devices"
run atoll-topo --help
says "topo.synthetic"
run atoll-topo --version
says "hwloc"
