#include "atoll/topo.h"

#include <stddef.h>

#define AT(field) offsetof(atoll_topo_params, field)

static const atoll_opt_def defs[] = {
    {"backend", ATOLL_OPT_ENUM, AT(backend), "auto", "auto|live|xml|synthetic", "",
     "where the topology comes from; auto: xml when path is set, synthetic when synthetic is set, else live"},
    {"path", ATOLL_OPT_STRING, AT(path), "", NULL, "",
     "xml: an hwloc v2 XML file, a folder of them, or a cluster.yaml"},
    {"synthetic", ATOLL_OPT_STRING, AT(synthetic), "", NULL, "",
     "synthetic: e.g. \"4x(pack:2 core:8 memory=64GiB), 2x(core:4)\""},
    {"device", ATOLL_OPT_ENUM, AT(device), "auto", "auto|cpu|gpu", "",
     "what ranks compute on; auto: GPUs where a device backend drives them"},
    {"ranks_per_node", ATOLL_OPT_INT, AT(ranks_per_node), "0", "0..65536", "ranks",
     "without a launcher: CPU devices per node; 0 = one per package"},
    {"probe", ATOLL_OPT_BOOL, AT(probe), "true", NULL, "", "measure rates and links that are not declared"},
    {"probe_seconds", ATOLL_OPT_SECONDS, AT(probe_seconds), "3", "0.05..3600", "s", "limit of all probes together"},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL}};

const atoll_opt_table atoll_topo_options = {"topo", defs};

void atoll_topo_params_init(atoll_topo_params *p) { (void)atoll_opt_defaults(&atoll_topo_options, p); }
