/* From libyaml events to a tree.
 *
 * What a person writes in a job, plan or cluster file is a small part of YAML, and the rest of it is where surprises
 * live: aliases that expand without bound, tags that change types, second documents that are silently dropped. Each of
 * these is refused with file and line. Limits on bytes, depth and number of values bound the time and memory that a
 * hostile or mistaken file can cost. */
#include "yaml_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "text_impl.h"

#define CHUNK_BYTES   ((size_t)64 << 10)
#define KEY_MAX_BYTES 255
#define STRING_TAG    "tag:yaml.org,2002:str"

struct yaml_chunk {
  struct yaml_chunk *next;
  size_t used, size;
  _Alignas(16) char data[];
};

void *yaml_alloc(struct yaml_document *document, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  struct yaml_chunk *chunk = document->chunks;
  if (!chunk || chunk->size - chunk->used < bytes) {
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    chunk = malloc(sizeof *chunk + size);
    if (!chunk)
      return NULL;
    chunk->used = 0;
    chunk->size = size;
    chunk->next = document->chunks;
    document->chunks = chunk;
  }
  void *p = chunk->data + chunk->used;
  chunk->used += bytes;
  return p;
}

static void document_destroy(struct yaml_document *document) {
  if (!document)
    return;
  for (struct yaml_chunk *chunk = document->chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    free(chunk);
  }
  free(document);
}

static const char *document_copy(struct yaml_document *document, const char *s, size_t n) {
  char *copy = yaml_alloc(document, n + 1);
  if (copy) {
    memcpy(copy, s, n);
    copy[n] = 0;
  }
  return copy;
}

/* ---- building ---- */

struct reader {
  yaml_parser_t parser;
  struct yaml_document *document;
  const char *text; /* whole input */
  size_t bytes;
  atoll_yaml *root;
  atoll_yaml *stack[YAML_MAX_DEPTH];
  int depth;
  int documents;
  const char *key; /* read and waiting for its value */
  int key_line;
};

static int line_of(const yaml_event_t *event) {
  return (int)(event->start_mark.line < INT_MAX ? event->start_mark.line + 1 : INT_MAX);
}

static atoll_err no_memory(const struct reader *r) {
  return atoll_fail(ATOLL_NOMEM, "%s: out of memory after %zu values", r->document->file, r->document->nodes);
}

static int line_at(const struct reader *r, size_t offset) {
  int line = 1;
  for (size_t i = 0; i < offset && i < r->bytes; i++)
    line += r->text[i] == '\n';
  return line;
}

/* Does line `line` (from 1) begin with blanks that include a tab? The commonest mistake, and libyaml does not name it.
 */
static int indented_by_tab(const struct reader *r, int line) {
  const char *s = r->text, *end = r->text + r->bytes;
  for (int l = 1; l < line; l++) {
    s = memchr(s, '\n', (size_t)(end - s));
    if (!s)
      return 0;
    s++;
  }
  for (; s < end && (*s == ' ' || *s == '\t'); s++)
    if (*s == '\t')
      return 1;
  return 0;
}

static atoll_err syntax_error(const struct reader *r) {
  const yaml_parser_t *p = &r->parser;
  const char *file = r->document->file, *problem = p->problem ? p->problem : "malformed YAML";
  if (p->error == YAML_MEMORY_ERROR)
    return no_memory(r);
  if (p->error == YAML_READER_ERROR)
    return atoll_fail(ATOLL_USAGE, "%s:%d: %s (byte %zu), expected UTF-8 text", file, line_at(r, p->problem_offset),
                      problem, p->problem_offset);
  int line = (int)p->problem_mark.line + 1;
  const char *hint = indented_by_tab(r, line) ? "; the line is indented by a tab, expected blanks" : "";
  if (p->context)
    return atoll_fail(ATOLL_USAGE, "%s:%d: not YAML: %s, %s begun at line %zu%s", file, line, problem, p->context,
                      p->context_mark.line + 1, hint);
  return atoll_fail(ATOLL_USAGE, "%s:%d: not YAML: %s%s", file, line, problem, hint);
}

static atoll_err add_node(struct reader *r, enum yaml_kind kind, int line, atoll_yaml **out) {
  if (r->document->nodes >= YAML_MAX_NODES)
    return atoll_fail(ATOLL_USAGE, "%s:%d: more than %zu values", r->document->file, line, YAML_MAX_NODES);
  atoll_yaml *node = yaml_alloc(r->document, sizeof *node);
  if (!node)
    return no_memory(r);
  memset(node, 0, sizeof *node);
  node->kind = kind;
  node->line = line;
  node->document = r->document;
  r->document->nodes++;
  if (!r->depth) {
    r->root = node;
  } else {
    atoll_yaml *parent = r->stack[r->depth - 1];
    node->parent = parent;
    if (parent->kind == YAML_MAP) {
      node->key = r->key;
      node->line = r->key_line;
      r->key = NULL;
    }
    if (parent->count == parent->capacity) {
      size_t capacity = parent->capacity ? 2 * parent->capacity : 8;
      atoll_yaml **children = yaml_alloc(r->document, capacity * sizeof *children);
      if (!children)
        return no_memory(r);
      if (parent->count)
        memcpy(children, parent->children, parent->count * sizeof *children);
      parent->children = children;
      parent->capacity = capacity;
    }
    parent->children[parent->count++] = node;
  }
  *out = node;
  return ATOLL_OK;
}

static atoll_err refuse_extras(const struct reader *r, const yaml_event_t *event, const yaml_char_t *anchor,
                               const yaml_char_t *tag, int is_scalar) {
  char found[128];
  if (anchor)
    return atoll_fail(ATOLL_USAGE,
                      "%s:%d: found the anchor %s, expected a plain value: anchors and aliases are not read here",
                      r->document->file, line_of(event), core_quote((const char *)anchor, found, sizeof found));
  if (tag && !(is_scalar && (!strcmp((const char *)tag, STRING_TAG) || !strcmp((const char *)tag, "!"))))
    return atoll_fail(ATOLL_USAGE, "%s:%d: found the tag %s, expected a plain value: only !!str is read here",
                      r->document->file, line_of(event), core_quote((const char *)tag, found, sizeof found));
  return ATOLL_OK;
}

static int expects_key(const struct reader *r) {
  return r->depth && r->stack[r->depth - 1]->kind == YAML_MAP && !r->key;
}

static atoll_err on_scalar(struct reader *r, const yaml_event_t *event) {
  const char *text = (const char *)event->data.scalar.value;
  size_t n = event->data.scalar.length;
  int line = line_of(event);
  char found[128];
  ATOLL_TRY(refuse_extras(r, event, event->data.scalar.anchor, event->data.scalar.tag, 1));
  if (memchr(text, 0, n))
    return atoll_fail(ATOLL_USAGE, "%s:%d: found a NUL character in a value, expected text", r->document->file, line);
  const char *copy = document_copy(r->document, text, n);
  if (!copy)
    return no_memory(r);
  if (expects_key(r)) {
    if (n > KEY_MAX_BYTES)
      return atoll_fail(ATOLL_USAGE, "%s:%d: found the key %s of %zu bytes, expected at most %d", r->document->file,
                        line, core_quote(copy, found, sizeof found), n, KEY_MAX_BYTES);
    r->key = copy;
    r->key_line = line;
    return ATOLL_OK;
  }
  atoll_yaml *node;
  ATOLL_TRY(add_node(r, YAML_SCALAR, line, &node));
  node->text = copy;
  node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  return ATOLL_OK;
}

static atoll_err on_open(struct reader *r, const yaml_event_t *event, enum yaml_kind kind) {
  int line = line_of(event);
  if (kind == YAML_MAP)
    ATOLL_TRY(refuse_extras(r, event, event->data.mapping_start.anchor, event->data.mapping_start.tag, 0));
  else
    ATOLL_TRY(refuse_extras(r, event, event->data.sequence_start.anchor, event->data.sequence_start.tag, 0));
  if (expects_key(r))
    return atoll_fail(ATOLL_USAGE, "%s:%d: found %s as a key, expected a word", r->document->file, line,
                      kind == YAML_MAP ? "a mapping" : "a list");
  if (r->depth == YAML_MAX_DEPTH)
    return atoll_fail(ATOLL_USAGE, "%s:%d: nested deeper than %d levels", r->document->file, line, YAML_MAX_DEPTH);
  atoll_yaml *node;
  ATOLL_TRY(add_node(r, kind, line, &node));
  r->stack[r->depth++] = node;
  return ATOLL_OK;
}

static int by_key_then_line(const void *a, const void *b) {
  const atoll_yaml *x = *(atoll_yaml *const *)a, *y = *(atoll_yaml *const *)b;
  int order = strcmp(x->key, y->key);
  return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sorted rather than pairwise, so that a mapping of a million keys is refused or accepted in bounded time. */
static atoll_err refuse_repeated(const struct reader *r, const atoll_yaml *map) {
  if (map->count < 2)
    return ATOLL_OK;
  atoll_yaml **sorted = malloc(map->count * sizeof *sorted);
  if (!sorted)
    return no_memory(r);
  memcpy(sorted, map->children, map->count * sizeof *sorted);
  qsort(sorted, map->count, sizeof *sorted, by_key_then_line);
  const atoll_yaml *first = NULL, *again = NULL;
  for (size_t i = 1; i < map->count; i++)
    if (!strcmp(sorted[i - 1]->key, sorted[i]->key) && (!again || sorted[i]->line < again->line)) {
      first = sorted[i - 1];
      again = sorted[i];
    }
  free(sorted);
  if (!again)
    return ATOLL_OK;
  char path[512];
  return atoll_fail(ATOLL_USAGE, "%s:%d: %s is given again, first at line %d; expected each key once",
                    r->document->file, again->line, yaml_path(again, path, sizeof path), first->line);
}

static atoll_err on_event(struct reader *r, const yaml_event_t *event, int *done) {
  char found[128];
  switch (event->type) {
  case YAML_DOCUMENT_START_EVENT:
    if (r->documents++)
      return atoll_fail(ATOLL_USAGE, "%s:%d: found a second document, expected one per file", r->document->file,
                        line_of(event));
    return ATOLL_OK;
  case YAML_ALIAS_EVENT:
    return atoll_fail(
        ATOLL_USAGE, "%s:%d: found the alias %s, expected a plain value: anchors and aliases are not read here",
        r->document->file, line_of(event), core_quote((const char *)event->data.alias.anchor, found, sizeof found));
  case YAML_SCALAR_EVENT:
    return on_scalar(r, event);
  case YAML_SEQUENCE_START_EVENT:
    return on_open(r, event, YAML_LIST);
  case YAML_MAPPING_START_EVENT:
    return on_open(r, event, YAML_MAP);
  case YAML_MAPPING_END_EVENT:
    ATOLL_TRY(refuse_repeated(r, r->stack[r->depth - 1]));
    r->depth--;
    return ATOLL_OK;
  case YAML_SEQUENCE_END_EVENT:
    r->depth--;
    return ATOLL_OK;
  case YAML_STREAM_END_EVENT:
  case YAML_NO_EVENT:
    *done = 1;
    return ATOLL_OK;
  default:
    return ATOLL_OK;
  }
}

static atoll_err read_events(struct reader *r) {
  atoll_err err = ATOLL_OK;
  for (int done = 0; !done && err == ATOLL_OK;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&r->parser, &event))
      return syntax_error(r);
    err = on_event(r, &event, &done);
    yaml_event_delete(&event);
  }
  return err;
}

atoll_err atoll_yaml_parse(const char *name, const char *text, size_t bytes, atoll_yaml **root) {
  if (bytes > YAML_MAX_BYTES)
    return atoll_fail(ATOLL_USAGE, "%s: has %zu bytes, expected at most %zu", name, bytes, YAML_MAX_BYTES);
  struct reader r = {.text = text, .bytes = bytes};
  const char *nul = bytes ? memchr(text, 0, bytes) : NULL;
  if (nul)
    return atoll_fail(ATOLL_USAGE, "%s:%d: found a NUL byte (byte %zu), expected UTF-8 text", name,
                      line_at(&r, (size_t)(nul - text)), (size_t)(nul - text));
  r.document = calloc(1, sizeof *r.document);
  if (r.document)
    r.document->file = document_copy(r.document, name, strlen(name));
  if (!r.document || !r.document->file || !yaml_parser_initialize(&r.parser)) {
    document_destroy(r.document);
    return atoll_fail(ATOLL_NOMEM, "%s: out of memory", name);
  }
  /* The encoding is fixed: guessing would read a file with the mark of UTF-16 as something else. */
  yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
  size_t mark = bytes >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
  r.text += mark;
  r.bytes -= mark;
  yaml_parser_set_input_string(&r.parser, (const unsigned char *)r.text, r.bytes);
  atoll_err err = read_events(&r);
  yaml_parser_delete(&r.parser);
  /* Nothing but comments: a mapping without keys, so that what is required is reported as missing. */
  if (err == ATOLL_OK && r.root && r.root->kind == YAML_SCALAR && !*r.root->text && !r.root->quoted) {
    r.root->kind = YAML_MAP;
    r.root->line = 1;
  }
  if (err == ATOLL_OK && !r.root) {
    atoll_yaml *empty;
    err = add_node(&r, YAML_MAP, 1, &empty);
  }
  if (err != ATOLL_OK) {
    document_destroy(r.document);
    return err;
  }
  *root = r.root;
  return ATOLL_OK;
}

/* Read piece by piece up to one byte beyond the limit, so that pipes work and a huge file costs nothing. */
atoll_err yaml_read_file(const char *path, char **data, size_t *bytes) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return atoll_fail(ATOLL_NOINPUT, "open %s: %s", path, strerror(errno));
  core_text text = {0};
  char piece[16384];
  atoll_err err = ATOLL_OK;
  while (err == ATOLL_OK) {
    ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      err = atoll_fail(ATOLL_NOINPUT, "read %s: %s", path, strerror(errno));
    if (got <= 0)
      break;
    core_text_add(&text, piece, (size_t)got);
    if (text.failed)
      err = atoll_fail(ATOLL_NOMEM, "read %s: out of memory at %zu bytes", path, text.size);
    else if (text.size > YAML_MAX_BYTES)
      err = atoll_fail(ATOLL_USAGE, "%s: has more than %zu bytes, which is the limit", path, YAML_MAX_BYTES);
  }
  close(fd);
  if (err == ATOLL_OK && !text.data && !(text.data = calloc(1, 1)))
    err = atoll_fail(ATOLL_NOMEM, "read %s: out of memory", path);
  if (err != ATOLL_OK) {
    free(text.data);
    return err;
  }
  *data = text.data;
  *bytes = text.size;
  return ATOLL_OK;
}

atoll_err atoll_yaml_load(const char *path, atoll_yaml **root) {
  char *data;
  size_t bytes;
  ATOLL_TRY(yaml_read_file(path, &data, &bytes));
  atoll_err err = atoll_yaml_parse(path, data, bytes, root);
  free(data);
  return err;
}

void atoll_yaml_destroy(atoll_yaml **root) {
  if (!root || !*root)
    return;
  document_destroy((*root)->document);
  *root = NULL;
}
