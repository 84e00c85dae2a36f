/* A file that is not a whole hwloc v2 topology is refused by name; it is never answered with the real machine. */
#include "topo_test.h"

#define HEAD "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
#define ROOT "<topology version=\"2.0\">\n"
#define SETS                                                                                                           \
  "cpuset=\"0x1\" complete_cpuset=\"0x1\" allowed_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "            \
  "allowed_nodeset=\"0x1\""
#define BODY                                                                                                           \
  "<object type=\"Machine\" os_index=\"0\" " SETS " gp_index=\"1\"><object type=\"NUMANode\" os_index=\"0\" " SETS     \
  " gp_index=\"2\" local_memory=\"1024\"/>"                                                                            \
  "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "                         \
  "complete_nodeset=\"0x1\" gp_index=\"3\"/></object>\n"

static const struct {
  const char *name, *text, *word;
  atoll_err code;
} table[] = {
    {"empty", "", "is empty", ATOLL_CORRUPT},
    {"blank", "  \n\n", "is not XML", ATOLL_CORRUPT},
    {"prose", "this is no topology", "is not XML", ATOLL_CORRUPT},
    {"html", "<html><body/></html>", "expected <topology", ATOLL_CORRUPT},
    {"version 1", HEAD "<topology>\n" BODY "</topology>\n", "hwloc 1", ATOLL_UNSUPPORTED},
    {"version 3", HEAD "<topology version=\"3.0\">\n" BODY "</topology>\n", "version 3.0; expected 2.x",
     ATOLL_UNSUPPORTED},
    {"version 20", HEAD "<topology version=\"20.0\">\n" BODY "</topology>\n", "version 20.0", ATOLL_UNSUPPORTED},
    {"not closed", HEAD ROOT BODY, "truncated", ATOLL_CORRUPT},
    {"cut tag", HEAD ROOT "<object type=\"Mach", "cut off", ATOLL_CORRUPT},
    {"cut comment", HEAD "<!-- hello", "comment is not closed", ATOLL_CORRUPT},
    {"crossed tags", HEAD ROOT "<object type=\"Misc\"><info></object></info></topology>", "expected </info>",
     ATOLL_CORRUPT},
    {"closing first", HEAD "</topology>", "expected </nothing>", ATOLL_CORRUPT},
    {"two roots", HEAD ROOT BODY "</topology>" ROOT BODY "</topology>", "after the end", ATOLL_CORRUPT},
    {"no objects", HEAD ROOT "</topology>", "no <object>", ATOLL_CORRUPT},
    {"only a declaration", HEAD, "no <topology>", ATOLL_CORRUPT},
    {"machine without sets", HEAD ROOT "<object type=\"Machine\" os_index=\"0\" gp_index=\"1\"/></topology>",
     "of the Machine is ''", ATOLL_CORRUPT},
    {"machine without threads",
     HEAD ROOT "<object type=\"Machine\" os_index=\"0\" " SETS " gp_index=\"1\"/></topology>", ".xml", ATOLL_CORRUPT},
    {"unknown object", HEAD ROOT "<object type=\"Teapot\" os_index=\"0\" " SETS " gp_index=\"1\"/></topology>",
     "type 'Teapot'", ATOLL_CORRUPT},
    {"thread outside the machine",
     HEAD ROOT "<object type=\"Machine\" " SETS
               "><object type=\"PU\" os_index=\"3\" cpuset=\"0x8\" complete_cpuset=\"0x8\" nodeset=\"0x1\" "
               "complete_nodeset=\"0x1\"/></object></topology>",
     "not within", ATOLL_CORRUPT},
    {"two threads in one",
     HEAD ROOT "<object type=\"Machine\" " SETS
               "><object type=\"PU\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" "
               "complete_nodeset=\"0x1\"/></object></topology>",
     "has 2 processors", ATOLL_CORRUPT},
};

static void each_is_refused(void **state) {
  (void)state;
  char folder[512], path[600];
  scratch("xml", folder, sizeof folder);
  snprintf(path, sizeof path, "%s/node.xml", folder);
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    write_file(folder, "node.xml", table[i].text, strlen(table[i].text));
    refuses(path, NULL, table[i].code, table[i].word);
    refuses(path, NULL, table[i].code, "node.xml");
  }
  write_file(folder, "node.xml", HEAD ROOT BODY "</topology>\n", strlen(HEAD ROOT BODY "</topology>\n"));
  atoll_topo *t = load_topo(path, NULL); /* the table's good twin */
  assert_int_equal(t->node[0].threads, 1);
  atoll_topo_destroy(&t);
}

static void missing_and_folders(void **state) {
  (void)state;
  char folder[512], path[600];
  scratch("xml-none", folder, sizeof folder);
  snprintf(path, sizeof path, "%s/absent.xml", folder);
  refuses(path, NULL, ATOLL_NOINPUT, "absent.xml");
  refuses(folder, NULL, ATOLL_NOINPUT, "neither cluster.yaml nor a .xml file");
  write_file(folder, "a.xml", "<x", 2);
  refuses(folder, NULL, ATOLL_CORRUPT, "a.xml");
}

/* Cut a real file everywhere: no length but the whole is accepted. */
static void no_truncation_is_accepted(void **state) {
  (void)state;
  char *text, folder[512], path[600];
  size_t bytes;
  assert_int_equal(atoll_file_read(DATA "fakecpukinds.xml", &text, &bytes), ATOLL_OK);
  scratch("xml-cut", folder, sizeof folder);
  snprintf(path, sizeof path, "%s/cut.xml", folder);
  size_t whole = bytes;
  while (text[whole - 1] == '\n')
    whole--;
  for (size_t n = 0; n<whole; n += n + 400> whole ? 1 : 37) {
    write_file(folder, "cut.xml", text, n);
    refuses(path, NULL, ATOLL_CORRUPT, "cut.xml");
  }
  free(text);
}

/* Flipped bytes: an error, or some topology of the file; never a crash, never this machine. */
static void flipped_bytes_do_no_harm(void **state) {
  (void)state;
  char *text, folder[512], path[600];
  size_t bytes;
  assert_int_equal(atoll_file_read(DATA "fakecpukinds.xml", &text, &bytes), ATOLL_OK);
  scratch("xml-flip", folder, sizeof folder);
  snprintf(path, sizeof path, "%s/flip.xml", folder);
  uint32_t seed = 12345;
  for (int k = 0; k < 400; k++) {
    seed = seed * 1664525u + 1013904223u;
    size_t at = seed % bytes;
    char keep = text[at];
    text[at] = (char)(keep ^ (1 << (seed >> 29)));
    write_file(folder, "flip.xml", text, bytes);
    atoll_topo_params p = params_of(path, NULL);
    atoll_topo *t = NULL;
    if (atoll_topo_discover(NULL, &p, &t) == ATOLL_OK) {
      assert_string_equal(t->backend, "xml");
      assert_int_equal(t->node[0].bindable, 0);
    } else {
      assert_non_null(strstr(atoll_err_message(), "flip"));
    }
    atoll_topo_destroy(&t);
    text[at] = keep;
  }
  free(text);
}

/* The variables that divert every hwloc program do not divert this one. */
static void environment_does_not_divert(void **state) {
  (void)state;
  setenv("HWLOC_XMLFILE", "/nonexistent/x.xml", 1);
  setenv("HWLOC_SYNTHETIC", "pack:7 core:1 pu:1", 1);
  atoll_topo *t = load_topo(DATA "fakecpukinds.xml", NULL);
  assert_int_equal(t->node[0].cores, 2);
  atoll_topo_destroy(&t);
  unsetenv("HWLOC_XMLFILE");
  atoll_topo_params p = params_of(NULL, NULL);
  assert_int_equal(atoll_topo_discover(NULL, &p, &t), ATOLL_USAGE);
  assert_non_null(strstr(atoll_err_message(), "HWLOC_SYNTHETIC"));
  unsetenv("HWLOC_SYNTHETIC");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_refused), cmocka_unit_test(missing_and_folders),
                                     cmocka_unit_test(no_truncation_is_accepted),
                                     cmocka_unit_test(flipped_bytes_do_no_harm),
                                     cmocka_unit_test(environment_does_not_divert)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
