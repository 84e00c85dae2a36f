/* Is this text an hwloc v2 topology, whole and well-formed?
 *
 *  hwloc's importer cannot be asked that: a missing file makes it describe the real machine, a truncated one is
 * reported on standard error or half accepted, depending on which of its two parsers is installed. So the text is
 * walked once before hwloc sees it: tags must nest and close, the root must be <topology> of version 2, and there must
 * be an object. The grammar is the part of XML that hwloc writes (no CDATA, no processing instructions but the first).
 *
 *  Objects are looked at as well, because hwloc 2.9 crashes on some damage: each object that holds processors must be
 * of a known type and carry well-formed sets, a hardware thread exactly one bit, and a child's processors must be among
 * its parent's. Every refusal names file and line. */
#include "topo_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 512

typedef struct walk {
  const char *path, *p, *end;
  int line;
} walk;

static void advance(walk *w, const char *to) {
  for (; w->p < to; w->p++)
    w->line += *w->p == '\n';
}

static const char *find(walk *w, const char *word) {
  size_t n = strlen(word);
  for (const char *p = w->p; p + n <= w->end; p++)
    if (memcmp(p, word, n) == 0)
      return p;
  return NULL;
}

/* End of a tag that starts at '<', quotes respected; NULL when the text ends first. */
static const char *tag_end(walk *w) {
  char quote = 0;
  for (const char *p = w->p; p < w->end; p++) {
    if (quote)
      quote = *p == quote ? 0 : quote;
    else if (*p == '"' || *p == '\'')
      quote = *p;
    else if (*p == '>')
      return p;
    else if (*p == '<' && p > w->p)
      return NULL;
  }
  return NULL;
}

static void attribute(const char *tag, const char *end, const char *name, char *out, size_t n) {
  size_t len = strlen(name);
  out[0] = 0;
  for (const char *p = tag; p + len + 2 < end; p++)
    if (isspace((unsigned char)p[0]) && strncmp(p + 1, name, len) == 0 && p[len + 1] == '=' &&
        (p[len + 2] == '"' || p[len + 2] == '\'')) {
      const char *from = p + len + 3, *to = memchr(from, p[len + 2], (size_t)(end - from));
      size_t k = to ? (size_t)(to - from) : 0;
      if (k >= n)
        k = n - 1;
      memcpy(out, from, k);
      out[k] = 0;
      return;
    }
}

/* Object types that hold processors, and those that need not. */
static int holds_processors(const char *type) {
  static const char *const with[] = {"Machine", "Package",  "Socket", "Die",      "Core",
                                     "PU",      "NUMANode", "Group",  "MemCache", NULL};
  static const char *const without[] = {"Bridge", "PCIDev", "OSDev", "Misc", NULL};
  for (int i = 0; with[i]; i++)
    if (strcmp(type, with[i]) == 0)
      return 1;
  for (int i = 0; without[i]; i++)
    if (strcmp(type, without[i]) == 0)
      return 0;
  size_t len = strlen(type);
  return type[0] == 'L' && isdigit((unsigned char)type[1]) && len > 5 && strcmp(type + len - 5, "Cache") == 0 ? 1 : -1;
}

/* A set in hwloc's form, "0x00ff" or "0xf...f,0x1"; hwloc's own parser accepts almost anything. */
static int set_of(const char *text, hwloc_bitmap_t set) {
  return *text && strspn(text, "0123456789abcdefx,f.") == strlen(text) && strstr(text, "0x") &&
                 hwloc_bitmap_sscanf(set, text) == 0
             ? 0
             : -1;
}

/* `within`: processors of the nearest enclosing object that has some, NULL for the outermost. own receives this
 * object's, or is empty. */
static atoll_err check_object(const walk *w, const char *tag, const char *end, hwloc_const_bitmap_t within,
                              hwloc_bitmap_t own) {
  static const char *const required[] = {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"};
  char type[24], text[4096];
  attribute(tag, end, "type", type, sizeof type);
  int holds = holds_processors(type);
  hwloc_bitmap_zero(own);
  if (holds < 0)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: found an object of type '%s', expected one that hwloc 2 knows", w->path,
                      w->line, type);
  if (holds == 0)
    return ATOLL_OK;
  for (int i = 3; i >= 0; i--) { /* the processors last, so that they stay in own */
    attribute(tag, end, required[i], text, sizeof text);
    if (set_of(text, own) != 0)
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: %s of the %s is '%.40s', expected a set such as \"0x000000ff\"", w->path,
                        w->line, required[i], type, text);
  }
  int bits = hwloc_bitmap_weight(own);
  if (strcmp(type, "PU") == 0 && bits != 1)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: the cpuset of a PU has %d processors, expected 1", w->path, w->line, bits);
  if (!within && bits < 1)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: the cpuset of the %s holds no processor", w->path, w->line, type);
  if (within && !hwloc_bitmap_isincluded(own, within))
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: the cpuset of the %s is not within that of the object around it", w->path,
                      w->line, type);
  return ATOLL_OK;
}

typedef struct open_tag {
  char name[24];
  int line;
  hwloc_bitmap_t set; /* of an object that holds processors, else NULL */
} open_tag;

static atoll_err check(const char *path, const char *text, size_t bytes, open_tag *open_tags, int *depth_out,
                       hwloc_bitmap_t own) {
  walk w = {path, text, text + bytes, 1};
  int depth = 0, objects = 0, roots = 0;
#define name(i)   open_tags[i].name
#define opened(i) open_tags[i].line
  if (bytes == 0)
    return atoll_fail(ATOLL_CORRUPT, "%s is empty; expected hwloc topology XML", path);
  if (memchr(text, 0, bytes))
    return atoll_fail(ATOLL_CORRUPT, "%s is not XML: it holds NUL bytes", path);
  const char *first = text;
  while (first < w.end && isspace((unsigned char)*first))
    first++;
  if (first == w.end || *first != '<')
    return atoll_fail(ATOLL_CORRUPT, "%s is not XML: it starts with '%.12s', expected '<?xml' or '<topology'", path,
                      first < w.end ? first : "");
  while (w.p < w.end) {
    const char *open = memchr(w.p, '<', (size_t)(w.end - w.p));
    if (!open) {
      advance(&w, w.end);
      break;
    }
    advance(&w, open);
    if (w.end - w.p >= 4 && memcmp(w.p, "<!--", 4) == 0) {
      const char *to = find(&w, "-->");
      if (!to)
        return atoll_fail(ATOLL_CORRUPT, "%s:%d: the comment is not closed", path, w.line);
      advance(&w, to + 3);
      continue;
    }
    const char *close = tag_end(&w);
    if (!close) {
      if (depth)
        return atoll_fail(ATOLL_CORRUPT,
                          "%s:%d: the tag is cut off, inside <%s> of line %d: the file is truncated or damaged", path,
                          w.line, name(depth - 1), opened(depth - 1));
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: the tag is cut off: the file is truncated or damaged", path, w.line);
    }
    const char *q = w.p + 1;
    if (*q == '?' || *q == '!') {
      advance(&w, close + 1);
      continue;
    }
    int closing = *q == '/', empty = close[-1] == '/';
    q += closing;
    size_t len = 0;
    while (q + len < close && (isalnum((unsigned char)q[len]) || strchr("_-:.", q[len])))
      len++;
    if (len == 0 || len >= sizeof name(0))
      return atoll_fail(ATOLL_CORRUPT, "%s:%d: '<%.16s' is no tag of a topology", path, w.line, q);
    if (closing) {
      if (!depth || strncmp(name(depth - 1), q, len) != 0 || name(depth - 1)[len])
        return atoll_fail(ATOLL_CORRUPT, "%s:%d: found </%.*s>, expected </%s> for line %d", path, w.line, (int)len, q,
                          depth ? name(depth - 1) : "nothing", depth ? opened(depth - 1) : 0);
      hwloc_bitmap_free(open_tags[--depth].set);
      *depth_out = depth;
    } else {
      if (depth == 0) {
        if (roots++)
          return atoll_fail(ATOLL_CORRUPT, "%s:%d: text after the end of the topology", path, w.line);
        if (len != 8 || strncmp(q, "topology", 8) != 0)
          return atoll_fail(ATOLL_CORRUPT,
                            "%s:%d: found <%.*s>, expected <topology version=\"2.0\">: this is not hwloc XML", path,
                            w.line, (int)len, q);
        char version[16];
        attribute(q, close, "version", version, sizeof version);
        if (!version[0])
          return atoll_fail(
              ATOLL_UNSUPPORTED,
              "%s:%d: <topology> has no version: hwloc 1 XML; expected version 2 (lstopo --of xml of hwloc 2)", path,
              w.line);
        if (version[0] != '2' || (version[1] && version[1] != '.'))
          return atoll_fail(ATOLL_UNSUPPORTED,
                            "%s:%d: topology version %s; expected 2.x (with hwloc 3: lstopo --export-xml-flags v2)",
                            path, w.line, version);
      }
      int object = len == 6 && strncmp(q, "object", 6) == 0;
      objects += object;
      if (object) {
        hwloc_const_bitmap_t within = NULL;
        for (int i = depth - 1; i >= 0 && !within; i--)
          within = open_tags[i].set;
        ATOLL_TRY(check_object(&w, q, close, within, own));
      }
      if (!empty) {
        if (depth == DEPTH)
          return atoll_fail(ATOLL_CORRUPT, "%s:%d: more than %d nested tags", path, w.line, DEPTH);
        memcpy(name(depth), q, len);
        name(depth)[len] = 0;
        open_tags[depth].set = object && !hwloc_bitmap_iszero(own) ? hwloc_bitmap_dup(own) : NULL;
        opened(depth++) = w.line;
        *depth_out = depth;
      }
    }
    advance(&w, close + 1);
  }
  if (depth)
    return atoll_fail(ATOLL_CORRUPT, "%s:%d: the file ends inside <%s> of line %d: it is truncated", path, w.line,
                      name(depth - 1), opened(depth - 1));
  if (!roots || !objects)
    return atoll_fail(ATOLL_CORRUPT, "%s: no %s in the file; expected hwloc topology XML", path,
                      roots ? "<object>" : "<topology>");
  return ATOLL_OK;
}
#undef name
#undef opened

atoll_err topo_xml_check(const char *path, const char *text, size_t bytes) {
  open_tag *open_tags = calloc(DEPTH, sizeof *open_tags);
  hwloc_bitmap_t own = hwloc_bitmap_alloc();
  int depth = 0;
  atoll_err err = open_tags && own ? check(path, text, bytes, open_tags, &depth, own)
                                   : atoll_fail(ATOLL_NOMEM, "no memory to check %s", path);
  for (int i = 0; open_tags && i < depth; i++)
    hwloc_bitmap_free(open_tags[i].set);
  free(open_tags);
  hwloc_bitmap_free(own);
  return err;
}
