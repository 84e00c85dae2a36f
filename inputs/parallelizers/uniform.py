#!/usr/bin/env python3
"""A parallelizer for plan.extern: uniform data parallelism, as Atoll's own `grid` does it.

Reads a greeting and requests as JSON lines, answers each with the points that fit. Only the standard library is used.
    atoll-plan JOB.yaml plan.parallelizer=extern plan.extern="python3 inputs/parallelizers/uniform.py"
"""
import json
import sys


def say(message):
    print(json.dumps(message, separators=(",", ":")), flush=True)


def plan(request, layers):
    """All devices of the shape are replicas of the slice; each policy that fits is a point."""
    shape, part, limit = request["island"], request["slice"], request["memory_limit"]
    cost = {(c["class"], c["policy"]): c for c in request["costs"]}
    data = shape["nodes"] * shape["per_node"]
    points, missing = [], None
    for policy, need in request["exact_bytes"].items():
        if limit is not None and need > limit:
            missing = min(need - limit, missing or need)
            continue
        mine = [cost[layers[i], policy] for i in range(part["first"], part["last"])]
        forward = sum(c["forward"] for c in mine)
        backward = sum(c["backward"] for c in mine)
        points.append({"policy": policy, "data": data, "forward": forward, "backward": backward,
                       "t": (forward + backward) / data, "d": sum(c["update"] for c in mine) + request["reduce"],
                       "bytes": need, "source": max((c["source"] for c in mine), key=SURE.index)})
    answer = {"id": request["id"], "points": points}
    return answer if points else {**answer, "missing": missing, "why": "every policy needs more memory"}


SURE = ["measured", "interpolated", "analytic"]
hello = json.loads(sys.stdin.readline())
say({"type": "hello", "protocol": 1, "name": "uniform data parallelism"})
for line in sys.stdin:
    say(plan(json.loads(line), hello["model"]["layers"]))
