/* Programs for a device: the same loops, as kernels. A kernel is a function of the variables of its statement that it
 * names, so that what a statement prints between rt_kernel_begin() and rt_kernel_end() needs to know nothing of where
 * it runs. All else, the tree, sizes, where values are, functions of the user, stays with the host; memory is what both
 * see. The text of kernels is CUDA C and C at once; for a C compiler, "rt_call_<kernel>" calls one with its arguments.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"

rt_scope rt_scope_open(const rt_emitter *em) { return (rt_scope){em->sizes, em->views, em->knowns}; }

void rt_scope_close(rt_emitter *em, rt_scope scope) {
  em->sizes = scope.sizes;
  em->views = scope.views;
  em->knowns = scope.knowns;
}

void rt_know(rt_emitter *em, const char *type, const char *name) {
  if (!em->kernels || em->kernel.out) /* what a kernel declares is its own */
    return;
  if (em->knowns == em->known_room) {
    int room = em->known_room ? 2 * em->known_room : 64;
    rt_known *more = realloc(em->known, (size_t)room * sizeof *more);
    if (!more) {
      em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
      return;
    }
    em->known = more;
    em->known_room = room;
  }
  em->known[em->knowns++] = (rt_known){type, name};
}

void rt_kernel_begin(rt_emitter *em) {
  FILE *body = open_memstream(&em->kernel.text, &em->kernel.bytes);
  em->kernel.scope = rt_scope_open(em);
  em->kernel.depth = em->depth;
  em->kernel.out = em->out;
  if (body) {
    em->out = body;
    em->depth = 1;
  } else {
    em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
  }
}

static int is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static int names(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *p = text; (p = strstr(p, name)); p += n)
    if (!is_word(p[n]) && (p == text || !is_word(p[-1])))
      return 1;
  return 0;
}

static void print_kernel(rt_emitter *em, const char *name, int n, const rt_known *arguments) {
  FILE *f = em->kernels;
  fprintf(f, "RT_KERNEL %s(", name);
  for (int k = 0; k < n; k++)
    fprintf(f, "%s%s %s", k ? ", " : "", arguments[k].type, arguments[k].name);
  fprintf(f, ") {\n%s}\n#ifndef __CUDACC__\nvoid rt_call_%s(const void *const *a) {\n  (void)a;\n  %s(",
          em->kernel.text, name, name);
  for (int k = 0; k < n; k++)
    fprintf(f, "%s*(%s const *)a[%d]", k ? ", " : "", arguments[k].type, k);
  fputs(");\n}\n#endif\n", f);
}

void rt_kernel_end(rt_emitter *em, const char *threads) {
  const char *name = rt_text(em, "k%d_%d", em->number, em->made++), *list = NULL;
  rt_known *used = calloc((size_t)em->knowns + 1, sizeof *used);
  int n = 0;
  if (em->out != em->kernel.out)
    (void)fclose(em->out);
  em->out = em->kernel.out;
  em->kernel.out = NULL;
  em->depth = em->kernel.depth;
  rt_scope_close(em, em->kernel.scope);
  if (!used || !em->kernel.text)
    em->err = atoll_fail(ATOLL_NOMEM, "emission: no memory");
  for (int k = 0; em->err == ATOLL_OK && k < em->knowns; k++)
    if (names(em->kernel.text, em->known[k].name)) {
      list = list ? rt_text(em, "%s, &%s", list, em->known[k].name) : rt_text(em, "&%s", em->known[k].name);
      used[n++] = em->known[k];
    }
  if (em->err == ATOLL_OK)
    print_kernel(em, name, n, used);
  rt_open(em, "%s", "");
  rt_line(em, "const void *const a[] = {%s};", list ? list : "0");
  rt_line(em, "if (r->launch(r, \"%s\", %s, %d, a))", name, threads, n);
  rt_line(em, "  return r->error(r);");
  rt_close(em);
  free(used);
  free(em->kernel.text);
  em->kernel.text = NULL;
}

void rt_open_elements(rt_emitter *em, int axes, const atoll_sym *const *shape, const char *const *at, int lanes) {
  const char *of = lanes ? " / RT_LANES" : "", *rest = "at";
  rt_open(em, "for (int64_t at = rt_thread()%s; at < %s; at += rt_threads()%s)", of, rt_count(em, axes, shape, 0), of);
  for (int k = axes - 1; k >= 0; k--) {
    const char *n = rt_size(em, shape[k]);
    rt_line(em, k ? "const int64_t %s = %s %% %s;" : "const int64_t %s = %s;", at[k], rest, n);
    rt_line(em, "(void)%s;", at[k]);
    rest = rt_text(em, "%s / %s", rest, n);
  }
}

void rt_wait(rt_emitter *em) {
  if (!em->kernels)
    return;
  rt_line(em, "if (r->wait(r))");
  rt_line(em, "  return r->error(r);");
}

void rt_copy(rt_emitter *em, const char *to, const char *from, const char *bytes) {
  if (!em->kernels) {
    rt_line(em, "memcpy(%s, %s, (size_t)%s);", to, from, bytes);
    return;
  }
  rt_line(em, "if (r->copy(r, %s, %s, (int64_t)(%s)))", to, from, bytes);
  rt_line(em, "  return r->error(r);");
}
