/** Chains of dependent GEMMs over the ranks of one node that share memory.
 *
 *  y_l = activation_l(y_(l-1) W_l + b_l), y_0 = x [M, in_0], every layer on the rank that owns its weights. The
 * CTA-pipelined way follows Liu, Andoorveedu, Das et al., arXiv 2607.07862: a consumer tile starts when its producer
 * tiles are there. Here the dependency is inside the consumer's loop over k, tile by tile, and an idle rank takes tiles
 * of another rank's layer. The other ways compute the same by what one would do instead, for comparison and for the
 * chooser.
 *
 *  On a device (params.device) numbers are bf16 between layers with f32 sums; x and y stay f32 in host memory. The ways
 * there are the sequential one (each layer on its owner, one after the other), micro-batches, chunks by the vendor's
 * library and cta; all but the library's give the same bits. Gradients of weights are summed there in f32 over the rows
 * of a call, and that is added to what the caller has.
 *
 *  With dtype bf16 on the host what callers give (x, dy, weights, biases) is bf16, sums are f32, and every value that
 * an operation of the bf16 kernels would store is rounded to nearest as there: what goes into an activation, what comes
 * out, and gradients between layers. The last sums, y and dx, are left to the caller to round, once, where it stores
 * them. Values are kept in f32 room.
 *
 *  Bits: every way but the two tensor-parallel ones gives the same bits as the sequential one, on any number of ranks;
 * the tensor-parallel ones sum over ranks (in rank order with flags, in MPI's order with the all-reduce). */
#ifndef ATOLL_CTAPIPE_H
#define ATOLL_CTAPIPE_H

#include "atoll/comm.h"
#include "atoll/device.h"
#include "atoll/mem.h"

ATOLL_BEGIN_C

enum { ATOLL_CHAIN_LAYERS = 16 }; /* at most */

typedef enum atoll_activation {
  ATOLL_ACTIVATION_NONE,
  ATOLL_ACTIVATION_RELU,
  ATOLL_ACTIVATION_GELU,     /* in its tanh form */
  ATOLL_ACTIVATION_GELU_ERF, /* x Phi(x) */
  ATOLL_ACTIVATION_SWIGLU    /* silu(x V) * (x W), V a second matrix of the layer (Shazeer 2020, 2002.05202); no bias */
} atoll_activation;

#define ATOLL_CHAIN_WAY_LIST(X)                                                                                        \
  X(SEQUENTIAL, "sequential")       /* rank 0 alone */                                                                 \
  X(MICROBATCH, "microbatch")       /* a stage a rank, chunks of rows by MPI_Isend and MPI_Irecv */                    \
  X(ROW_SPLIT, "row_split")         /* every rank all layers for its rows */                                           \
  X(COLUMN_SHARED, "column_shared") /* every rank its columns of each layer, all wait between layers */                \
  X(TP_ALLREDUCE, "tp_allreduce")   /* two layers: columns, rows, MPI_Allreduce */                                     \
  X(TP_FLAGS, "tp_flags")           /* two layers: columns, rows, sums exchanged by panel through flags */             \
  X(CTA, "cta")                     /* tiles as their inputs appear */                                                 \
  X(BLAS_CHUNKS, "blas_chunks")     /* devices only: chunks of rows by the vendor's library, flags set by queues */

typedef enum atoll_chain_way {
#define ATOLL_CHAIN_ENUM(name, text) ATOLL_CHAIN_##name,
  ATOLL_CHAIN_WAY_LIST(ATOLL_CHAIN_ENUM)
#undef ATOLL_CHAIN_ENUM
      ATOLL_CHAIN_WAYS
} atoll_chain_way;
ATOLL_API const char *atoll_chain_way_name(atoll_chain_way way);

typedef struct atoll_chain_layer {
  int64_t in, out;
  atoll_activation activation;
  int bias;
} atoll_chain_layer;

typedef struct atoll_chain_params {
  int64_t rows; /* the most a run has */
  int layers;
  atoll_chain_layer layer[ATOLL_CHAIN_LAYERS];
  int claims;     /* an idle rank takes tiles of others' layers. 0: in the cta and micro-batch ways weights are read by
                     their owners alone, and the chooser takes only these or the sequential one. Default 1 */
  int backward;   /* two layers, the second without activation: room for gradients and weights turned. Default 0 */
  double timeout; /* s a rank waits for another before all give up; default 60 */
  atoll_dtype dtype;    /* f32, the default, or bf16 */
  atoll_device *device; /* borrowed until destroy: each layer on its owner's device, of a plug-in with kernels for
                           chains (ctapipe_device.h). NULL, the default: on the ranks' cores */
} atoll_chain_params;
ATOLL_API void atoll_chain_params_init(atoll_chain_params *p);

/** How one run is cut. */
typedef struct atoll_chain_cut {
  int64_t panel;  /* rows of a tile, 8..256; 0: chosen from the shape */
  int64_t chunks; /* microbatch: chunks of rows; 0: chosen from the shape */
} atoll_chain_cut;

typedef struct atoll_chain atoll_chain;

/** Collective on comm (borrowed), whose ranks share a node. Layer l belongs to rank l * ranks / layers. Symmetric
 * memory holds each rank's packed weights, the tiles and flags of its layers' inputs and two outputs; mem (borrowed)
 * is charged with them, but not with what lies on a device. USAGE: layers whose widths do not meet. Others as
 * atoll_symmetric_create(). */
ATOLL_API atoll_err atoll_chain_create(atoll_comm *comm, atoll_mem *mem, const atoll_chain_params *params,
                                       atoll_chain **out);
ATOLL_API void atoll_chain_destroy(atoll_chain **chain); /* collective */
ATOLL_API int atoll_chain_owner(const atoll_chain *chain, int layer);
/** Local: what atoll_chain_bytes() will say on that rank of so many. */
ATOLL_API atoll_err atoll_chain_measure(const atoll_chain_params *params, int rank, int ranks, size_t *bytes);
/** Bytes of this rank's segment, and those of it that hold packed weights which other ranks may read when claims are
 * allowed. */
ATOLL_API size_t atoll_chain_bytes(const atoll_chain *chain, size_t *weights);
/** Instruction set of the products: "avx512", "avx2" or "plain"; on a device its kind. Static. */
ATOLL_API const char *atoll_chain_vectors(const atoll_chain *chain);

/** Collective, in the chain's dtype: w(i, o) = w[i * in_stride + o * out_stride] and bias [out] (NULL: zeros) are
 * packed by the owner; the other ranks may pass NULL. */
ATOLL_API atoll_err atoll_chain_set_layer(atoll_chain *chain, int layer, const void *w, int64_t in_stride,
                                          int64_t out_stride, const void *bias);
/** Likewise V of a SwiGLU layer. USAGE: another layer. */
ATOLL_API atoll_err atoll_chain_set_gate(atoll_chain *chain, int layer, const void *v, int64_t in_stride,
                                         int64_t out_stride);

/** Collective: one run of `rows` rows. x [rows, in] row-major holds the same numbers on every rank. *y [rows, out] is
 * borrowed, readable by every rank until its next run of the chain. `cut` may be NULL.
 *
 *  TIMEOUT, PEER_LOST: a rank did not come, does not advance or (PEER_LOST) died; the message names rank, panel, tile
 * and epoch. Every rank that waits leaves within the timeout, and the chain refuses further runs. UNSUPPORTED:
 * tensor-parallel ways of chains that are not two layers of f32; ways that the host, or the device, does not have. */
ATOLL_API atoll_err atoll_chain_run(atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut, int64_t rows,
                                    const void *x, const float **y);

/** The same, but y is sharded: this rank gets rows [*begin, *end) of it, and may come back before the others have
 * theirs, as row_split and tp_flags on the host do; *y still points to the first row of all. Rows are dealt out in
 * whole panels, so a rank may have none. The next collective call on the chain waits for who is still in this one. */
ATOLL_API atoll_err atoll_chain_run_sharded(atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut,
                                            int64_t rows, const void *x, const float **y, int64_t *begin, int64_t *end);

/** s the last run spent in its layers on this rank's device, without moving x and y; 0 on the host. */
ATOLL_API double atoll_chain_device_seconds(const atoll_chain *chain);
/** How devices' memory is shared: atoll_symmetric_transport() of it, or of the host's. */
ATOLL_API const char *atoll_chain_transport(const atoll_chain *chain);

/** Where gradients of weights are added, in memory that all ranks of the chain share (symmetric.h): each rank names the
 * same places as it addresses them. */
typedef struct atoll_chain_gradients {
  float *dw[2], *db[2]; /* [out, in], [out] of each layer; db NULL: it has no bias */
  float *dgate;         /* [out, in] of V of the first layer; NULL: it has none */
} atoll_chain_gradients;

/** Collective: gradients of the last run, given dy [rows, out] (the same numbers on every rank). Those of weights are
 * added to what lies in `to` (borrowed); *dx [rows, in] is borrowed and readable by every rank until its next backward
 * of the chain. The run and this may each be sequential, cta or, on the host, row_split or column_shared (which here
 * splits rows, too), in any combination and with the same bits: sums over rows continue what was there, row by row.
 * With cta the layers turned are a chain from dy to dx, and the gradients of weights are tiles that whoever has nothing
 * better to do takes. Errors as atoll_chain_run(); USAGE: a place is missing, or the run was of another way. */
ATOLL_API atoll_err atoll_chain_backward(atoll_chain *chain, atoll_chain_way way, const void *dy,
                                         const atoll_chain_gradients *to, const float **dx);

typedef struct atoll_chain_setting {
  atoll_chain_way way;
  atoll_chain_cut cut;
} atoll_chain_setting;

/** Settings worth measuring for `rows` rows; fills at most `most` and returns how many. same_bits leaves out the
 * tensor-parallel ways. Local. */
ATOLL_API int atoll_chain_settings(const atoll_chain *chain, int64_t rows, int same_bits, atoll_chain_setting *list,
                                   int most);

typedef struct atoll_chain_choice {
  atoll_chain_setting setting;
  double
      seconds[ATOLL_CHAIN_WAYS]; /* of the best finalist of each way: its median, or where it left before the end, how
                                    far its median was behind the best one's then, times the latter's; 0: it had none,
                                    which row_split, column_shared and cta have unless they were not measured at all */
  int remembered;                /* 1: from the file */
} atoll_chain_choice;

/** Collective: the fastest setting for runs of `rows` rows on this machine, the sequential way included, so a shape too
 * small to share falls back to it: what is done before ranks could meet is not even measured otherwise. Measured once
 * (some seconds; up to half a minute where runs are long and close) and remembered by processor, ranks and shape in the
 * YAML file `path` ("": nowhere); NULL: chains.yaml in ATOLL_CACHE, XDG_CACHE_HOME/atoll or ~/.cache/atoll. A file that
 * cannot be used is a warning. Weights must be set before. */
ATOLL_API atoll_err atoll_chain_choose(atoll_chain *chain, int64_t rows, int same_bits, const char *path,
                                       atoll_chain_choice *out);

/** The same for runs that are followed by backward of the same way, which are timed together, of rows of zeros: what is
 * added to `to` (as for atoll_chain_backward()) is nothing, as long as weights are finite. Takes no memory of its own
 * where the first layer reads no more columns than the second one makes. Only ways with the sequential bits. USAGE: a
 * chain without backward. */
ATOLL_API atoll_err atoll_chain_choose_training(atoll_chain *chain, int64_t rows, const atoll_chain_gradients *to,
                                                const char *path, atoll_chain_choice *out);

/** Local: what the file, named as there, holds now; none is an empty one. Errors of one that cannot be used as
 * atoll_yaml_load() and its readers. */
typedef struct atoll_chain_choices atoll_chain_choices;
ATOLL_API atoll_err atoll_chain_choices_open(const char *path, atoll_chain_choices **out);
ATOLL_API void atoll_chain_choices_close(atoll_chain_choices **choices);
/** 1 and *out when there is a choice for runs of `rows` rows on so many ranks of this machine, made with the same
 * same_bits. Dtype, claims and layers of params count, and whether they have an activation; biases and backward do not.
 */
ATOLL_API int atoll_chain_remembered(const atoll_chain_choices *choices, const atoll_chain_params *params, int ranks,
                                     int64_t rows, int same_bits, atoll_chain_choice *out);
/** Likewise one made for training. */
ATOLL_API int atoll_chain_remembered_training(const atoll_chain_choices *choices, const atoll_chain_params *params,
                                              int ranks, int64_t rows, atoll_chain_choice *out);

/** Local. Seconds that a run would take if every rank had a core to itself, as fast as the one on which the sequential
 * way took `sequential` seconds: for machines with fewer cores than ranks. CTA is simulated event by event, by the
 * scheduler that runs it, on clocks instead of cores; micro-batches follow from when a stage and its input are free.
 * Time goes by multiply-adds; copying x, flags, messages and shared caches cost nothing, so it is a lower bound.
 * UNSUPPORTED: other ways, and chains on a device. */
ATOLL_API atoll_err atoll_chain_model(const atoll_chain *chain, atoll_chain_way way, const atoll_chain_cut *cut,
                                      int64_t rows, double sequential, double *seconds);

/** A tile that this rank computed. */
typedef struct atoll_chain_event {
  int layer;         /* -1: x copied into tiles */
  int64_t row, col;  /* of its first element */
  double begin, end; /* s of atoll_clock_now() */
} atoll_chain_event;
/** Local: records the tiles of the runs that follow (on = 0: no more); the list is borrowed until the next run. Only
 * the CTA way and the sequential one record. */
ATOLL_API atoll_err atoll_chain_trace(atoll_chain *chain, int on);
ATOLL_API int64_t atoll_chain_events(const atoll_chain *chain, const atoll_chain_event **events);

ATOLL_END_C
#endif
