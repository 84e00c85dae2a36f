/* Pending operations, marks and events: what the two host devices have in common. */
#include "device_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atoll/clock.h"
#include "wait.h"

void pending_init(pending *p) {
  memset(p, 0, sizeof *p);
  atomic_init(&p->refs, 1);
  atomic_init(&p->state, PENDING_NEW);
  pthread_mutex_init(&p->lock, NULL);
}

pending *pending_hold(pending *p) {
  atomic_fetch_add(&p->refs, 1);
  return p;
}

void pending_drop(pending *p) {
  if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
    return;
  pthread_mutex_destroy(&p->lock);
  p->destroy(p);
}

/* Under p->lock. */
static void finish(pending *p, atoll_err err, const char *message) {
  p->err = err;
  if (err)
    snprintf(p->message, sizeof p->message, "%s", message);
  atomic_store_explicit(&p->state, PENDING_DONE, memory_order_release);
}

atoll_err pending_start(pending *p) {
  pthread_mutex_lock(&p->lock);
  atoll_err err = p->start(p);
  if (err)
    finish(p, err, atoll_err_message());
  else
    atomic_store_explicit(&p->state, PENDING_STARTED, memory_order_release);
  pthread_mutex_unlock(&p->lock);
  return err;
}

void pending_skip(pending *p, atoll_err err, const char *message) {
  pthread_mutex_lock(&p->lock);
  finish(p, err, message);
  pthread_mutex_unlock(&p->lock);
}

int pending_test(pending *p) {
  int state = atomic_load_explicit(&p->state, memory_order_acquire);
  if (state != PENDING_STARTED)
    return state == PENDING_DONE;
  if (pthread_mutex_trylock(&p->lock) != 0) /* somebody else is polling it */
    return 0;
  if (atomic_load(&p->state) == PENDING_STARTED) {
    atoll_err err = ATOLL_OK;
    if (p->test(p, &err))
      finish(p, err, atoll_err_message());
  }
  state = atomic_load(&p->state);
  pthread_mutex_unlock(&p->lock);
  return state == PENDING_DONE;
}

atoll_err pending_wait(pending *p) {
  if (!pending_test(p)) {
    waiter w = wait_begin();
    while (!pending_test(p))
      wait_step(&w);
    wait_end(&w);
  }
  return p->err;
}

atoll_err pending_list_add(pending_list *l, pending *p) {
  if (l->n == l->cap) {
    int cap = l->cap ? 2 * l->cap : 8;
    pending **at = realloc(l->at, (size_t)cap * sizeof *at);
    if (!at)
      return atoll_fail(ATOLL_NOMEM, "list of %d pending operations", cap);
    l->at = at;
    l->cap = cap;
  }
  l->at[l->n++] = pending_hold(p);
  return ATOLL_OK;
}

atoll_err pending_list_append(pending_list *to, const pending_list *from) {
  for (int i = 0; i < from->n; i++)
    ATOLL_TRY(pending_list_add(to, from->at[i]));
  return ATOLL_OK;
}

void pending_list_clear(pending_list *l) {
  for (int i = 0; i < l->n; i++)
    pending_drop(l->at[i]);
  free(l->at);
  *l = (pending_list){NULL, 0, 0};
}

void sticky_set(sticky *s, atoll_err err, const char *message) {
  if (!err || s->err)
    return;
  s->err = err;
  snprintf(s->message, sizeof s->message, "%s", message);
}

int pending_list_reap(pending_list *l, sticky *s) {
  int kept = 0;
  for (int i = 0; i < l->n; i++) {
    pending *p = l->at[i];
    if (!pending_test(p)) {
      l->at[kept++] = p;
      continue;
    }
    sticky_set(s, p->err, p->message);
    pending_drop(p);
  }
  l->n = kept;
  return kept == 0;
}

mark *mark_create(void) {
  mark *m = calloc(1, sizeof *m);
  if (m)
    atomic_init(&m->refs, 1);
  return m;
}

mark *mark_hold(mark *m) {
  atomic_fetch_add(&m->refs, 1);
  return m;
}

void mark_drop(mark *m) {
  if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
    return;
  pending_list_clear(&m->ops);
  free(m);
}

int mark_done(mark *m) {
  if (!atomic_load_explicit(&m->reached, memory_order_acquire))
    return 0;
  for (int i = 0; i < m->ops.n; i++)
    if (!pending_test(m->ops.at[i]))
      return 0;
  return 1;
}

void mark_failure(mark *m, sticky *s) {
  sticky_set(s, m->failed.err, m->failed.message);
  for (int i = 0; i < m->ops.n; i++)
    sticky_set(s, m->ops.at[i]->err, m->ops.at[i]->message);
}

atoll_err host_event_create(void *self, void **e) {
  (void)self;
  host_event *event = calloc(1, sizeof *event);
  if (!event)
    return atoll_fail(ATOLL_NOMEM, "event: %zu bytes", sizeof *event);
  pthread_mutex_init(&event->lock, NULL);
  *e = event;
  return ATOLL_OK;
}

void host_event_destroy(void *e) {
  host_event *event = e;
  mark_drop(event->m);
  pthread_mutex_destroy(&event->lock);
  free(event);
}

void host_event_set(host_event *e, mark *taken) {
  pthread_mutex_lock(&e->lock);
  mark *old = e->m;
  e->m = taken;
  pthread_mutex_unlock(&e->lock);
  mark_drop(old);
}

mark *host_event_mark(host_event *e) {
  pthread_mutex_lock(&e->lock);
  mark *m = e->m ? mark_hold(e->m) : NULL;
  pthread_mutex_unlock(&e->lock);
  return m;
}

atoll_err host_event_sync(void *e) {
  mark *m = host_event_mark(e);
  if (!m)
    return ATOLL_OK;
  if (!mark_done(m)) {
    waiter w = wait_begin();
    while (!mark_done(m))
      wait_step(&w);
    wait_end(&w);
  }
  sticky s = {ATOLL_OK, ""};
  mark_failure(m, &s);
  mark_drop(m);
  if (s.err)
    atoll_err_set_message(s.message);
  return s.err;
}

int host_event_done(void *e) {
  mark *m = host_event_mark(e);
  int done = !m || mark_done(m);
  mark_drop(m);
  return done;
}

#define LATE_MAX 0.02 /* s; a longer one is a stall, not the end of a sleep */
atoll_err host_run_paced(const host_device *d, atoll_task task, void *args) {
  if (d->pace <= 0 || d->pace == 1)
    return task(args, NULL);
  /* A sleep ends late, by much on a busy machine. What one task lasted too long the next ones last less, so that many
   * short tasks keep the pace as exactly as one long one. */
  static _Thread_local double late;
  double wall = atoll_clock_now(), cpu = atoll_clock_process_cpu();
  atoll_err err = task(args, NULL);
  double until = wall + d->pace * (atoll_clock_process_cpu() - cpu) - late, now;
  while ((now = atoll_clock_now()) < until)
    atoll_clock_sleep(until - now);
  late = now - until < LATE_MAX ? now - until : LATE_MAX;
  return err;
}
