#include "change.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cluster ------------------------------------------------------------------------------------------------- */

static atoll_err copy_islands(const atoll_islands *from, atoll_islands **out) {
  atoll_islands *is = calloc(1, sizeof *is);
  if (!is)
    return atoll_fail(ATOLL_NOMEM, "no memory for %d islands", from->count);
  is->island = calloc((size_t)from->count + 1, sizeof *is->island);
  is->island_of = malloc(sizeof *is->island_of * (size_t)(from->devices + 1));
  int whole = is->island && is->island_of;
  for (int i = 0; whole && i < from->count; i++) {
    is->island[i] = from->island[i];
    is->island[i].device = malloc(sizeof(int) * (size_t)(from->island[i].devices + 1));
    whole = is->island[i].device != NULL;
    is->count = i + 1;
    if (whole)
      memcpy(is->island[i].device, from->island[i].device, sizeof(int) * (size_t)from->island[i].devices);
  }
  is->devices = from->devices;
  if (whole)
    memcpy(is->island_of, from->island_of, sizeof(int) * (size_t)from->devices);
  if (!whole) {
    atoll_islands_destroy(&is);
    return atoll_fail(ATOLL_NOMEM, "no memory for %d islands", from->count);
  }
  *out = is;
  return ATOLL_OK;
}

static int remove_node(const atoll_topo *topo, atoll_islands *is, const char *name) {
  int found = 0;
  for (int i = 0; i < topo->nodes; i++)
    if (!strcmp(topo->node[i].name, name)) {
      found = 1;
      for (int k = 0; k < topo->node[i].devices; k++)
        is->island_of[topo->node[i].first_device + k] = -1;
    }
  return found;
}

/* The last `count` devices that are still there; -1 all. */
static int remove_island(atoll_islands *is, const char *name, int64_t count) {
  for (int i = 0; i < is->count; i++)
    if (!strcmp(is->island[i].name, name)) {
      for (int k = is->island[i].devices - 1; k >= 0 && count != 0; k--)
        if (is->island_of[is->island[i].device[k]] >= 0) {
          is->island_of[is->island[i].device[k]] = -1;
          count--;
        }
      return count <= 0;
    }
  return 0;
}

static void close_up(const atoll_topo *topo, atoll_islands *is) {
  for (int i = 0; i < is->count; i++) {
    atoll_island *one = &is->island[i];
    int kept = 0, node = -1;
    one->nodes = 0;
    for (int k = 0; k < one->devices; k++) {
      int d = one->device[k];
      if (is->island_of[d] < 0)
        continue;
      one->device[kept++] = d;
      one->nodes += topo->device[d].node != node;
      node = topo->device[d].node;
    }
    one->devices = kept;
  }
}

atoll_err change_islands(const atoll_topo *topo, const atoll_islands *islands, const char *text, atoll_islands **out) {
  char words[1024];
  atoll_islands *is = NULL;
  if (strlen(text) >= sizeof words)
    return atoll_fail(ATOLL_USAGE, "--without, --with: the text is longer than %zu characters", sizeof words - 1);
  snprintf(words, sizeof words, "%s", text);
  ATOLL_TRY(copy_islands(islands, &is));
  for (char *save = NULL, *word = strtok_r(words, " ,\t", &save); word; word = strtok_r(NULL, " ,\t", &save)) {
    char *colon = strchr(word, ':');
    int64_t count = -1;
    int known;
    if (colon) {
      *colon = 0;
      known = atoll_parse_int(colon + 1, &count) == 0 && count > 0 && remove_island(is, word, count);
      *colon = ':';
    } else {
      known = remove_node(topo, is, word) || remove_island(is, word, -1);
    }
    if (!known) {
      atoll_islands_destroy(&is);
      return atoll_fail(
          ATOLL_USAGE,
          "--without, --with: found '%s', expected the name of a node or of an island, or ISLAND:COUNT with at "
          "most as many devices as it has",
          word);
    }
  }
  close_up(topo, is);
  *out = is;
  return ATOLL_OK;
}

/* ---- the plans --------------------------------------------------------------------------------------------------- */

static double change(double before, double after) { return before > 0 ? 100 * (after / before - 1) : 0; }

static void print_number(const char *what, double before, double after, const char *unit, FILE *f) {
  if (isnan(before) && isnan(after))
    return;
  fprintf(f, "  %-16s %12.6g   %12.6g %-9s", what, before, after, unit);
  if (before > 0 && !isnan(after))
    fprintf(f, " %+.1f %%", change(before, after));
  fprintf(f, "\n");
}

static void stage_text(const atoll_plan_stage *s, const atoll_islands *islands, char *text, size_t n) {
  const atoll_plan_replica *r = &s->replica[0];
  size_t at = (size_t)snprintf(text, n, "%d-%d on %s", s->chunk[0].first, s->chunk[0].last - 1,
                               islands->island[r->island].name);
  for (int k = 1; k < s->replicas && at < n; k++)
    if (s->replica[k].island != s->replica[k - 1].island)
      at += (size_t)snprintf(text + at, n - at, "+%s", islands->island[s->replica[k].island].name);
  if (at < n)
    snprintf(text + at, n - at, " x %d%s%.0d", s->replicas, r->ranks > 1 ? " tensor " : "",
             r->ranks > 1 ? r->tensor : 0);
}

void change_print(const atoll_plan *before, const atoll_plan_report *before_report, const atoll_plan *after,
                  const atoll_plan_report *after_report, const atoll_islands *islands, FILE *f) {
  const atoll_plan_pipeline *p = &before->pipeline[0], *q = &after->pipeline[0];
  int most = p->stages > q->stages ? p->stages : q->stages, same = 0;
  double tokens = (double)before->global_batch * (double)before->seq;
  fprintf(f, "Change                    before          after\n");
  print_number("step", before->step_seconds, after->step_seconds, "s", f);
  print_number("throughput", tokens / before->step_seconds, tokens / after->step_seconds, "tokens/s", f);
  print_number("price of a step", before_report ? before_report->price : NAN, after_report ? after_report->price : NAN,
               "", f);
  print_number("devices in use", before->world - before->idle_count, after->world - after->idle_count, "", f);
  print_number("devices idle", before->idle_count, after->idle_count, "", f);
  print_number("stages", p->stages, q->stages, "", f);
  print_number("replicas", p->stage[0].replicas, q->stage[0].replicas, "", f);
  print_number("micro-batch", (double)p->stage[0].replica[0].micro_batch, (double)q->stage[0].replica[0].micro_batch,
               "samples", f);
  for (int s = 0; s < most; s++) {
    char a[160] = "-", b[160] = "-";
    if (s < p->stages)
      stage_text(&p->stage[s], islands, a, sizeof a);
    if (s < q->stages)
      stage_text(&q->stage[s], islands, b, sizeof b);
    if (!strcmp(a, b))
      same++;
    else
      fprintf(f, "  stage %-3d layers %s  ->  %s\n", s, a, b);
  }
  if (same)
    fprintf(f, "  %d stage%s unchanged\n", same, same == 1 ? " is" : "s are");
}
