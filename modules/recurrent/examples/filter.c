#include <stdio.h>

#include "atoll/recurrent.h"

static atoll_err show(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user, (void)out;
  return printf("t=%d %.4f\n", (int)point[0], ((const double *)in->data)[0]) < 0 ? ATOLL_IO : ATOLL_OK;
}

int main(void) {
  const double samples[] = {8, 0, 0, 4, 0, 0, 0, 0};
  const atoll_rec_binding run[] = {{"T", 8, NULL}, {"x", 0, samples}};
  atoll_rec *c = NULL;
  atoll_rec_program *p = NULL;
  if (atoll_rec_create(1, &c) != ATOLL_OK)
    return 1;
  atoll_rec_dim(c, "t", 0);
  atoll_rt *x = atoll_rec_input(c, "x", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt *y = atoll_rec_tensor(c, "y", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt_def(y, "t==0", x);
  atoll_rt_def(y, "true", atoll_rt_add(atoll_rt_scale(atoll_rt_at(y, "t-1"), 0.5), x));
  atoll_rt_sink(atoll_rt_name(atoll_rt_mean(atoll_rt_at(y, "max(0,t-3):t+1"), 0), "mean"), "show", show, NULL);
  atoll_err err = atoll_rec_compile(c, &(atoll_rec_params){.least = 8}, &p);
  if (err == ATOLL_OK)
    err = atoll_rec_run(p, run, 2);
  if (err == ATOLL_OK)
    err = atoll_rec_report(p, run, 2, stdout);
  if (err != ATOLL_OK)
    fprintf(stderr, "%s\n", atoll_err_message());
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return err == ATOLL_OK ? 0 : 1;
}
