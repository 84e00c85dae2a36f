#!/usr/bin/env python3
"""A parallelizer for plan.extern: uniform data parallelism, as Atoll's own `grid` does it.

Reads a greeting and requests as JSON lines, answers each with the points that fit. Only the standard library is used.
    atoll-plan JOB.yaml plan.parallelizer=extern plan.extern="python3 inputs/parallelizers/uniform.py"
"""
import json
import sys

SURE = ["measured", "interpolated", "analytic"]


def say(message):
    print(json.dumps(message, separators=(",", ":")), flush=True)


def plan(request, layers):
    """All devices of the shape are replicas of the slice; each policy that fits is a point."""
    shape, part, limit = request["island"], request["slice"], request["memory_limit"]
    cost = {(c["class"], c["policy"]): c for c in request["costs"]}
    data = shape["nodes"] * shape["per_node"]
    if request["context"]["data"] not in (0, data):
        return {"points": [], "why": "cuts over data only"}
    points = []
    for policy, need in request["exact_bytes"].items():
        mine = [cost[layers[i], policy] for i in range(part["first"], part["last"])]
        forward, backward, update = (sum(c[key] for c in mine) for key in ("forward", "backward", "update"))
        points.append({"policy": policy, "data": data, "forward": forward, "backward": backward,
                       "t": (forward + backward) / data, "d": update + request["reduce"], "bytes": need,
                       "source": max((c["source"] for c in mine), key=SURE.index)})
    fitting = [p for p in points if limit is None or p["bytes"] <= limit]
    return {"points": fitting} if fitting else {"points": [], "missing": min(p["bytes"] for p in points) - limit}


hello = json.loads(sys.stdin.readline())
say({"type": "hello", "protocol": 1, "name": "uniform data parallelism"})
for line in sys.stdin:
    request = json.loads(line)
    say({"id": request["id"], **plan(request, hello["model"]["layers"])})
