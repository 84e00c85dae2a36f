/* Recorded machines: one hwloc XML file, or a folder of them with an optional cluster.yaml (cluster.c). */
#include "topo_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/file.h"

static void stem(const char *path, char *out, size_t n) {
  const char *slash = strrchr(path, '/');
  topo_text(out, n, slash ? slash + 1 : path);
  size_t len = strlen(out);
  if (len > 4 && strcmp(out + len - 4, ".xml") == 0)
    out[len - 4] = 0;
}

atoll_err topo_xml_load(const char *path, const char *name, atoll_topo_host *host) {
  char own[64];
  if (!name) {
    stem(path, own, sizeof own);
    name = own;
  }
  char *text = NULL;
  size_t bytes = 0;
  if (atoll_file_is_dir(path))
    return atoll_fail(ATOLL_NOINPUT, "%s is a directory; expected one hwloc XML file", path);
  ATOLL_TRY(atoll_file_read(path, &text, &bytes));
  atoll_err err = topo_xml_check(path, text, bytes);
  hwloc_topology_t t = NULL;
  if (err == ATOLL_OK && hwloc_topology_init(&t) != 0)
    err = atoll_fail(ATOLL_NOMEM, "hwloc_topology_init: %s", strerror(errno));
  if (err == ATOLL_OK) {
    hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    /* The bytes, not the path: hwloc never opens a file, so it cannot fall back for want of one. The buffer's length
     * counts its NUL. */
    if (hwloc_topology_set_xmlbuffer(t, text, (int)bytes + 1) != 0)
      err =
          atoll_fail(ATOLL_CORRUPT, "%s: hwloc %x cannot parse it: %s", path, hwloc_get_api_version(), strerror(errno));
    else if (hwloc_topology_load(t) != 0)
      err = atoll_fail(ATOLL_CORRUPT, "%s: hwloc %x refuses the topology: %s", path, hwloc_get_api_version(),
                       strerror(errno));
    else if (hwloc_topology_is_thissystem(t) && !getenv("HWLOC_THISSYSTEM"))
      err = atoll_fail(ATOLL_CORRUPT, "%s: hwloc answered with the machine this runs on, so it did not read the file",
                       path);
    else if (hwloc_bitmap_iszero(hwloc_topology_get_topology_cpuset(t)))
      err = atoll_fail(ATOLL_CORRUPT, "%s: the topology has no hardware threads", path);
    else
      err = topo_read_hwloc(t, name, host);
  }
  if (t)
    hwloc_topology_destroy(t);
  free(text);
  return err;
}

static atoll_err xml_probe(const atoll_topo_params *params, const char **why_not) {
  *why_not = params->path[0] ? NULL : "topo.path is not set";
  return params->path[0] ? ATOLL_OK : ATOLL_UNAVAILABLE;
}

static int by_name(const void *a, const void *b) {
  return atoll_topo_compare_names(*(char *const *)a, *(char *const *)b);
}

static atoll_err load_folder(const char *folder, atoll_topo_hosts *out) {
  char path[1024];
  ATOLL_TRY(atoll_path_join(path, sizeof path, folder, "cluster.yaml"));
  if (atoll_file_exists(path))
    return topo_cluster_load(folder, path, out);
  char **names = NULL;
  size_t n = 0;
  ATOLL_TRY(atoll_file_list(folder, &names, &n));
  if (n > 1)
    qsort(names, n, sizeof *names, by_name);
  atoll_err err = ATOLL_OK;
  for (size_t i = 0; i < n && err == ATOLL_OK; i++) {
    size_t len = strlen(names[i]);
    if (len < 5 || strcmp(names[i] + len - 4, ".xml") != 0 || names[i][0] == '.')
      continue;
    atoll_topo_host *host;
    err = atoll_path_join(path, sizeof path, folder, names[i]);
    if (err == ATOLL_OK)
      err = topo_hosts_add(out, &host);
    if (err == ATOLL_OK)
      err = topo_xml_load(path, NULL, host);
  }
  atoll_file_list_free(&names, n);
  if (err == ATOLL_OK && out->count == 0)
    err = atoll_fail(ATOLL_NOINPUT, "%s holds neither cluster.yaml nor a .xml file", folder);
  return err;
}

static atoll_err xml_load(const atoll_topo_params *params, const atoll_topo_place *place, atoll_topo_hosts *out) {
  (void)place;
  if (!params->path[0])
    return atoll_fail(ATOLL_USAGE, "topo.backend=xml needs topo.path, a file or a folder");
  if (atoll_file_is_dir(params->path))
    return load_folder(params->path, out);
  size_t len = strlen(params->path);
  if (len > 5 && (strcmp(params->path + len - 5, ".yaml") == 0)) {
    char folder[ATOLL_OPT_STRING_MAX];
    topo_text(folder, sizeof folder, params->path);
    char *slash = strrchr(folder, '/');
    if (slash)
      *slash = 0;
    return topo_cluster_load(slash ? folder : ".", params->path, out);
  }
  atoll_topo_host *host;
  ATOLL_TRY(topo_hosts_add(out, &host));
  return topo_xml_load(params->path, NULL, host);
}

const atoll_topo_backend topo_backend_xml = {
    .name = "xml", .priority = 30, .per_node = 0, .probe = xml_probe, .load = xml_load, .devices = NULL};
