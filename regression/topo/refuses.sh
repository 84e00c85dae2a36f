# Bad input ends with its exit status and a message that names the file; nothing is written, and the real machine is never shown instead.
. "${0%/*}/../lib/case.sh"
good=$(sourcefile modules/topo/test/data/fakecpukinds.xml)
expect 66 atoll-topo absent.xml
says "absent.xml"
head -c 1000 "$good" >cut.xml
expect 65 atoll-topo cut.xml
says "cut.xml:"
sed 's/version="2.0"/version="3.0"/' "$good" >three.xml
expect 67 atoll-topo three.xml
says "three.xml:3: topology version 3.0; expected 2.x"
mkdir empty
expect 66 atoll-topo empty
says "neither cluster.yaml nor a .xml file"
expect 64 atoll-topo "topo.synthetic=4x(pack:2 core:8"
says "is not closed"
expect 64 atoll-topo topo.backand=xml
says "topo.backend"
expect 64 atoll-topo "$good" topo.synthetic=core:2
says "expected one of them"
expect 68 atoll-topo "$good" topo.device=gpu
says "has no GPU"
expect 64 env HWLOC_SYNTHETIC="pack:2 core:2 pu:1" "$(atoll atoll-topo)"
says "describe another machine"
expect 0 env HWLOC_XMLFILE=/nonexistent HWLOC_SYNTHETIC="pack:2 core:2 pu:1" "$(atoll atoll-topo)" "$good"
says "fakecpukinds"
expect 74 atoll-topo "$good" --svg nowhere/a.svg
says "nowhere/a.svg"
expect 66 atoll-topo "$good" --diff absent.h5
says "absent.h5"
[ -e a.svg ] && fail "a file was left"
exit 0
