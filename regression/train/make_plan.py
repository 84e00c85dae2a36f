"""make_plan.py TEMPLATE MICRO_BATCH PIPELINE...   writes a plan by hand to standard output.

TEMPLATE is a saved plan of the same job on the same ranks: its head (digests, batch) is taken over. A PIPELINE is its stages, separated by '/'; a stage is
FIRST-LAST:RANKS*COUNT,...: its layers (half-open) and its replicas, each one rank, or several tensor ranks joined by '+', and how many micro-batches it takes, in
ascending order of micro-batches; then, if it is not plain, ':' and the algorithm of its MLPs.
Predictions are left out, as by a person.
"""
import re
import sys

template, micro_batch, pipelines = open(sys.argv[1]).read(), int(sys.argv[2]), sys.argv[3:]
head = dict(re.findall(r"^(\w+): (.+)$", template, re.M))
layers = max(int(p.rsplit("-", 1)[1].split(":")[0]) for p in pipelines)
count = int(head["global_batch"]) // micro_batch
out = ["version: 1", 'schedule: "1f1b"']
out += ["%s: %s" % (k, head[k]) for k in ("world", "seq", "global_batch")]
out += ["micro_batches: %d" % count, "sum_leaves: %d" % count]
out += ["%s: %s" % (k, head[k]) for k in ("dtype", "model", "islands") if k in head]
out += ["source: by-hand", "pipelines:"]
first, used, places = 0, set(), []
for p, pipeline in enumerate(pipelines):
    stages = pipeline.split("/")
    mine = sum(int(r.split("*")[1]) for r in stages[0].split(":")[1].split(","))
    out += ["  - first_micro_batch: %d" % first, "    micro_batches: %d" % mine, "    stages:"]
    for s, stage in enumerate(stages):
        span, replicas, *mlp = stage.split(":")
        a, b = map(int, span.split("-"))
        places += [(p, s, layer) for layer in range(a, b)]
        out += ["      - chunks:", "          - [%d, %d]" % (a, b), "        in_flight: %d" % (len(stages) - s), "        ranges:",
                "          - layers: [%d, %d]" % (a, b), "            policy: eager_flash", "            mlp: %s" % (mlp or ["plain"])[0]]
        out += ["            offload_%s: 0.0" % k for k in ("weights", "gradients", "optimizer", "activations")]
        out += ["        replicas:"]
        at = first
        for replica in replicas.split(","):
            ranks, n = replica.split("*")
            ranks, n = list(map(int, ranks.split("+"))), int(n)
            used.update(ranks)
            out += ["          - island: 0", "            ranks: %s" % ranks, "            devices: %s" % ranks]
            out += ["            tensor: %d" % len(ranks), "            context: 1", "            expert: 1", "            sequence_parallel: false", "            zero: 0"]
            out += ["            micro_batch: %d" % micro_batch, "            first_micro_batch: %d" % at, "            micro_batches: %d" % n]
            at += n
    first += mine
out += ["tied:", "  - param: 0", "    uses:"]
for p in range(len(pipelines)):
    for layer in (0, layers - 1):
        stage = next(s for q, s, l in places if q == p and l == layer)
        out += ["      - pipeline: %d" % p, "        stage: %d" % stage, "        layer: %d" % layer]
out += ["idle: [%s]" % ", ".join(str(r) for r in range(int(head["world"])) if r not in used)]
print("\n".join(out))
