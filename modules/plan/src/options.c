#include "atoll/parallelizer_extern.h"
#include "atoll/plan.h"

#include <stddef.h>
#include <string.h>

#include "plan_impl.h"

#define FIELD(name) offsetof(atoll_plan_params, name)

static const atoll_opt_def defs[] = {
    {"micro_batch", ATOLL_OPT_INT, FIELD(micro_batch), "0", "0..1048576", "samples",
     "Samples per micro-batch; must divide train.global_batch; 0 = chosen."},
    {"stages", ATOLL_OPT_INT, FIELD(stages), "0", "0..65536", "stages", "Pipeline depth; 0 = chosen."},
    {"data_parallel", ATOLL_OPT_INT, FIELD(data_parallel), "0", "0..1048576", "replicas",
     "Replicas of each stage; 0 = chosen."},
    {"tensor_parallel", ATOLL_OPT_INT, FIELD(tensor_parallel), "0", "0..1024", "ranks",
     "Devices of a node that share every replica's matrices; must divide heads, key heads and the MLP's columns; 0 = "
     "chosen, stage by stage; 1 = none."},
    {"layers", ATOLL_OPT_INTS, FIELD(layers), "", NULL, "blocks",
     "Blocks of each stage by hand, e.g. 5,7; embedding and head go to the ends; empty = chosen."},
    {"policy", ATOLL_OPT_STRING, FIELD(policy), "auto", NULL, "",
     "What layers keep for backward, from all to their input alone: eager, eager_flash, exact20 (or exact), exact18, "
     "exact12, exact10, exact6, exact4, exact2 give the same bits; tempo, tempo_flash and exact16_lossy round what "
     "they "
     "keep; auto = the best of eager_flash, exact20 and exact4."},
    {"memory", ATOLL_OPT_BYTES, FIELD(memory), "0", "0..", "bytes",
     "Memory per rank that a plan may use; 0 = the device's."},
    {"memory_share", ATOLL_OPT_REAL, FIELD(memory_share), "0.9", "0.01..1", "",
     "Share of a device's memory that a plan may use."},
    {"sum_leaves", ATOLL_OPT_INT, FIELD(sum_leaves), "0", "0..1048576", "leaves",
     "Leaves of the gradient summation tree; plans with equal micro-batches and leaves agree bit for bit; 0 = 8, or as "
     "many as there are micro-batches, or enough for the replicas."},
    {"parallelizer", ATOLL_OPT_ENUM, FIELD(parallelizer), "grid", "grid|extern|mist", "",
     "Who plans a slice on an island: uniform degrees, the program plan.extern, or a tuner of all axes together."},
    {"extern", ATOLL_OPT_STRING, FIELD(extern_program), "", NULL, "",
     "Program, with arguments, that plans slices by JSON lines; see inputs/parallelizers."},
    {"extern_limit", ATOLL_OPT_SECONDS, FIELD(extern_limit), "10s", "0.001..86400", "seconds",
     "How long plan.extern may take for an answer."},
    {"extern_fallback", ATOLL_OPT_ENUM, FIELD(extern_fallback), "none", "none|grid", "",
     "What plans a slice when plan.extern fails: none is an error, grid is marked in the plan's source."},
    {"interstage", ATOLL_OPT_ENUM, FIELD(interstage), "dp", "dp|cbc|both", "",
     "Who splits layers over stages of fixed devices: an exact dynamic program, an integer program (CBC), or both, "
     "which must agree."},
    {"target", ATOLL_OPT_ENUM, FIELD(target), "train", "train|any", "",
     "Axes to plan with: those that train executes (pipeline, data and tensor parallelism), or all a parallelizer "
     "knows."},
    {"objective", ATOLL_OPT_ENUM, FIELD(objective), "throughput", "throughput|price", "",
     "What is best: most tokens per second, or the least price of a step; prices are declared in cluster.yaml."},
    {"max_price", ATOLL_OPT_REAL, FIELD(max_price), "0", "0..1e12", "",
     "No plan whose step costs more, rent of its devices and transfers between zones together; 0 = no limit."},
    {"min_throughput", ATOLL_OPT_REAL, FIELD(min_throughput), "0", "0..1e18", "tokens/s",
     "No slower plan; 0 = no limit."},
    {"experts", ATOLL_OPT_INT, FIELD(experts), "0", "0..65536", "experts",
     "Plan as if every block's MLP were so many experts (plan.parallelizer=mist, plan.target=any); 0 = a plain MLP."},
    {"expert_top", ATOLL_OPT_INT, FIELD(expert_top), "2", "1..65536", "experts", "Experts that a token visits."},
    {"mlp", ATOLL_OPT_ENUM, FIELD(mlp), "plain", "plain|cta|cta_own|auto", "",
     "How stages on several tensor ranks do their MLP: each rank a part of every matrix, or each matrix on a rank of "
     "its own and products pipelined by tiles, of which idle ranks take others' (cta), or only their own, so that no "
     "rank reads another's weights (cta_own); auto: matrices as with cta, and the way through them that each stage "
     "measures as the fastest when it begins (remembered), with the same bits."},
    {"pack_weights", ATOLL_OPT_ENUM, FIELD(pack_weights), "auto", "auto|yes|no", "",
     "Keep weights in the order in which products read them, from one micro-batch to the next, instead of bringing "
     "them into it for each: twice as much memory again as the weights take in f32, the same results. yes: where a "
     "rank has several micro-batches in a step, memory for it, and products that can; auto: if these have few tokens, "
     "too. Decided where the job runs, which knows its products: plans that atoll-plan makes keep none."},
    {"load", ATOLL_OPT_STRING, FIELD(load), "", NULL, "", "A saved plan to use instead of planning."},
    {NULL, ATOLL_OPT_BOOL, 0, NULL, NULL, NULL, NULL},
};

const atoll_opt_table atoll_plan_options = {"plan", defs};

const atoll_parallelizer *plan_parallelizer(const atoll_plan_params *p) {
  static const atoll_parallelizer *const by_option[] = {&atoll_parallelizer_grid, &atoll_parallelizer_extern,
                                                        &atoll_parallelizer_mist};
  return by_option[p->parallelizer];
}

void atoll_plan_params_init(atoll_plan_params *p) {
  memset(p, 0, sizeof *p);
  (void)atoll_opt_defaults(&atoll_plan_options, p);
}

atoll_err plan_policy(const atoll_plan_params *params, int *policy) {
  atoll_policy named;
  if (!params->policy[0] || !strcmp(params->policy, "auto"))
    *policy = -1;
  else if (atoll_policy_parse(params->policy, &named) == 0)
    *policy = (int)named;
  else
    return atoll_fail(ATOLL_USAGE, "plan.policy is '%s', expected auto or one of %s", params->policy,
                      atoll_policy_list());
  return ATOLL_OK;
}

int plan_tries_policy(int named, int p) { return named < 0 ? atoll_policy_automatic((atoll_policy)p) : p == named; }
