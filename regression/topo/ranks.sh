# Under a launcher every rank gets its device: by node name, else spread over the declared nodes; measurements stay out of the islands.
. "${0%/*}/../lib/case.sh"
cluster=$(sourcefile inputs/clusters/mixed-2x2)
run mpi 4 atoll-topo "$cluster" --islands
says "ranks 0 1"
says "ranks 2 3"
run mpi 4 atoll-topo "$cluster"
says "spread over 4 of its 4 nodes in order"
run "${ATOLL_MPIRUN[@]}" -np 1 -x SLURMD_NODENAME=n3 atoll-topo "$cluster" --islands : -np 2 -x SLURMD_NODENAME=n0 atoll-topo "$cluster" --islands
says "2 x Atoll example CPU, fast  1 GiB  200 GFLOP/s  1 node  ranks 1 2"
says "1 x Atoll example CPU, slow  1 GiB  100 GFLOP/s  1 node  ranks 0"
expect 66 mpi 2 atoll-topo absent.xml
says "absent.xml"
run mpi 2 atoll-topo --probe topo.probe_seconds=0.5 --yaml
says "gemm_f32:"
says "latency:"
