/* What the files of weights share.
 *   open          finding out what a path is; parts of an index; logical tensors of a file
 *   safetensors   reading and writing that format
 *   llmc llama2c  the two raw formats
 *   names         tables: names in files, names in Atoll, how a tensor is turned
 *   config        config.json; sizes told by shapes
 *   values        element types; transposes and rotary order
 *   model         the model that a file holds, and what a file says of a model */
#ifndef ATOLL_WEIGHTS_IMPL_H
#define ATOLL_WEIGHTS_IMPL_H

#include "atoll/weights.h"

#include <jansson.h>

#include "atoll/file.h"

#define WEIGHTS_NDIM_MAX 8

typedef enum weights_type { TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_OTHER } weights_type;

/* A tensor as the file has it. */
typedef struct weights_raw {
  const char *name; /* borrowed from the part's header, or owned by `names` */
  const char *type_name;
  weights_type type;
  int ndim;
  int64_t shape[WEIGHTS_NDIM_MAX];
  const unsigned char *data;
  uint64_t begin, end; /* bytes in the data section */
} weights_raw;

/* How a file's tensor becomes Atoll's. The transforms of writing are the inverse ones. */
typedef enum weights_turn {
  TURN_NONE,
  TURN_TRANSPOSE, /* [in, out] */
  TURN_ROPE_Q,    /* rows of each head are pairs (i, i + 1); Atoll's are halves */
  TURN_ROPE_K,
} weights_turn;

typedef enum weights_role {
  ROLE_PARAM,
  ROLE_EXTRA,   /* a parameter that the published file has and the model does not use */
  ROLE_HEAD,    /* a parameter when it differs from the embedding, which is named by `model` */
  ROLE_SAME,    /* must equal the parameter named by `model`, and is not stored again */
  ROLE_IGNORED, /* no parameter: buffers of the program that wrote the file */
} weights_role;

typedef struct weights_rule {
  const char *model; /* "h.%d.ln_1.weight" */
  const char *file;  /* name in safetensors */
  weights_turn turn; /* there; raw formats have Atoll's names and their own turn */
  weights_turn raw_turn;
  weights_role role;
} weights_rule;

typedef struct weights_family {
  const char *name;
  const char *prefix;          /* of the file's names; files of the bare model lack it */
  const char *probe;           /* a tensor that tells the family */
  const weights_rule *rule;    /* ends with file NULL */
  const char *const (*old)[2]; /* older endings of names and today's, ends with NULL */
} weights_family;

const weights_family *weights_family_find(const char *name);
const weights_family *weights_family_at(int i); /* NULL at the end */
/* The rule of a file's name and its layer (0 without one); NULL when there is none. */
const weights_rule *weights_rule_find(const weights_family *f, const char *name, int *layer);
const weights_rule *weights_rule_of_model(const weights_family *f, const char *name, int *layer);
/* name with the layer put in; INTERNAL when it does not fit. */
atoll_err weights_rule_name(const char *pattern, int layer, char *buf, size_t n);

typedef struct weights_part {
  char *path;
  const void *map;
  size_t bytes;
  int borrowed;
  json_t *header;
} weights_part;

typedef struct weights_entry { /* of a logical tensor */
  int raw;
  weights_turn turn;
} weights_entry;

struct atoll_weights {
  const char *format;
  weights_part *part;
  int parts;
  weights_raw *raw;
  int raws;
  char **names; /* of raw formats */
  atoll_weights_item *item;
  weights_entry *entry;
  int items;
  atoll_weights_config config;
};

atoll_err weights_add_raw(atoll_weights *w, const weights_raw *raw);
/* A raw format's tensor under Atoll's name. */
atoll_err weights_add_named(atoll_weights *w, const char *pattern, int layer, weights_type type, int ndim, int64_t rows,
                            int64_t cols, const unsigned char *data);

/* Readers: fill raw tensors and config from part p. */
atoll_err weights_read_safetensors(atoll_weights *w, weights_part *p);
atoll_err weights_read_llmc(atoll_weights *w, weights_part *p);
atoll_err weights_read_llama2c(atoll_weights *w, weights_part *p);
int weights_is_llama2c(const unsigned char *data, size_t bytes);
#define WEIGHTS_LLMC_MAGIC 20240326

/* config.json or the metadata, into the fields it names. */
atoll_err weights_config_read(const char *name, json_t *root, atoll_weights_config *c);
json_t *weights_config_object(const atoll_weights_config *c); /* NULL: no memory */
/* What the shapes of logical tensors tell, where config says nothing; MISMATCH where it says otherwise. */
atoll_err weights_config_infer(atoll_weights *w, const char *path);
/* Heads of keys, once there are heads. */
atoll_err weights_config_keys(atoll_weights *w, const char *path);

uint32_t weights_u32(const unsigned char *p);
uint64_t weights_u64(const unsigned char *p);
void weights_put_u32(unsigned char *p, uint32_t v);
size_t weights_type_bytes(weights_type t);
int64_t weights_elements(int ndim, const int64_t *shape);
/* "768 x 3072" */
const char *weights_shape_text(int ndim, const int64_t *shape, char *buf, size_t n);
void weights_decode(weights_type t, const unsigned char *from, int64_t n, float *to);
/* rows x cols as Atoll has it; inverse: from Atoll to the file. heads of this tensor. */
void weights_turn_values(weights_turn turn, int inverse, int64_t rows, int64_t cols, int64_t heads, const float *from,
                         float *to);
int64_t weights_turn_heads(weights_turn turn, const atoll_weights_config *c);

/* Writing. */
atoll_err weights_put_values(atoll_file_writer *f, const float *v, int64_t n, atoll_dtype dtype);
atoll_err weights_source_find(const atoll_weights_source *s, const char *pattern, int layer, int ndim, int64_t rows,
                              int64_t cols, int *index);
/* Tensor `pattern` of a raw format, read, turned and written. */
atoll_err weights_put_named(atoll_file_writer *f, const atoll_weights_source *s, const atoll_weights_config *c,
                            const char *pattern, int layer, int ndim, int64_t rows, int64_t cols, atoll_dtype dtype);

#endif
