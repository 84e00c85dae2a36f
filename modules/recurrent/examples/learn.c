#include <stdio.h>

#include "atoll/recurrent.h"

static atoll_err show(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)out;
  if (point[0] % 50 == 0)
    printf("i=%d %s %.5f\n", (int)point[0], (const char *)user, ((const double *)in->data)[0]);
  return ATOLL_OK;
}

/* What is to be learnt: wanted[t] of wanted[t-1] and u[t]. */
static atoll_err world(void *user, const int64_t *point, const atoll_rt_view *in, const atoll_rt_view *out) {
  (void)user, (void)point;
  ((double *)out->data)[0] = 0.8 * ((const double *)in[0].data)[0] + 0.5 * ((const double *)in[1].data)[0];
  return ATOLL_OK;
}

int main(void) {
  const double u[] = {1, 0, 0, 1, 0, 0, 0, 0};
  const atoll_rec_binding run[] = {{"I", 101, NULL}, {"u", 0, u}};
  atoll_rec *c = NULL;
  atoll_rec_program *p = NULL;
  atoll_rt *grad[2];
  if (atoll_rec_create(1, &c) != ATOLL_OK)
    return 1;
  atoll_rec_dim(c, "i", 0);
  atoll_rec_dim(c, "t", 8);
  atoll_rt *in = atoll_rec_input(c, "u", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt *wanted = atoll_rec_tensor(c, "wanted", ATOLL_F64, "t", ATOLL_SCALAR);
  atoll_rt *seen[] = {atoll_rt_at(wanted, "t-1"), in};
  atoll_rt_def(wanted, "t==0", atoll_rt_scale(in, 0.5));
  atoll_rt_def(wanted, "true", atoll_rec_call(c, "world", world, NULL, NULL, ATOLL_F64, ATOLL_SCALAR, 2, seen));
  atoll_rt *a = atoll_rec_tensor(c, "a", ATOLL_F64, "i", ATOLL_SCALAR);
  atoll_rt *b = atoll_rec_tensor(c, "b", ATOLL_F64, "i", ATOLL_SCALAR);
  atoll_rt *h = atoll_rec_tensor(c, "h", ATOLL_F64, "i,t", ATOLL_SCALAR);
  atoll_rt_def(h, "t==0", atoll_rt_mul(b, in));
  atoll_rt_def(h, "true", atoll_rt_add(atoll_rt_mul(a, atoll_rt_at(h, "t=t-1")), atoll_rt_mul(b, in)));
  atoll_rt *error = atoll_rt_square(atoll_rt_sub(h, wanted));
  atoll_rt *loss = atoll_rt_sum(atoll_rt_at(error, "t=0:T"), 0);
  atoll_rt_gradients(loss, 2, (atoll_rt *[]){a, b}, grad);
  atoll_rt_def(a, "i==0", atoll_rec_const(c, ATOLL_F64, 0));
  atoll_rt_def(b, "i==0", atoll_rec_const(c, ATOLL_F64, 0.1));
  atoll_rt_adam(a, grad[0], "i", 0.02, 0.9, 0.999, 1e-8);
  atoll_rt_def(b, "true", atoll_rt_at(atoll_rt_sub(b, atoll_rt_scale(grad[1], 0.1)), "i=i-1"));
  atoll_rt_sink(loss, "loss", show, "loss");
  atoll_rt_sink(a, "a", show, "a");
  atoll_rt_sink(b, "b", show, "b");
  atoll_err err = atoll_rec_compile(c, NULL, &p);
  if (err == ATOLL_OK)
    err = atoll_rec_run(p, run, 2);
  if (err != ATOLL_OK)
    fprintf(stderr, "%s\n", atoll_err_message());
  atoll_rec_program_destroy(&p);
  atoll_rec_destroy(&c);
  return err == ATOLL_OK ? 0 : 1;
}
