"""reference_trainer.py START RUN CORPUS HELD   trains in float64 with formulas of its own and compares with what atoll-train did.

START and RUN are run directories: START holds the initial weights (train.steps=0), RUN the same job trained. The corpus has as many windows as the batch, so each step
sees all of it and the order of samples does not matter. One step of RUN was skipped on purpose.
"""
import glob
import math
import os
import re
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))
import gpt2_reference as r

start, run, corpus, held = sys.argv[1:]
with h5py.File(run + "/run.h5") as f:
    options = f["provenance/options"][()].decode()
    metrics = {n: f["metrics"][n][...] for n in f["metrics"]}


def option(section, key):
    body = re.search(r"^%s:\n((?: .*\n?)+)" % section, options, re.M).group(1)
    return float(re.search(r"^  %s: (.+)$" % key, body, re.M).group(1).strip('"'))


def weights(directory):
    newest = sorted(glob.glob(directory + "/ckpt/step-*"))[-1]
    out = {}
    with h5py.File(newest + "/model.h5") as f:
        f["param"].visititems(lambda n, d: out.update({n: d[...].astype(np.float64)}) if isinstance(d, h5py.Dataset) else None)
    return out


def windows(path):
    b = np.frombuffer(open(path, "rb").read(), np.uint8).astype(int)
    n = (len(b) - 1) // r.S
    return b[:n * r.S].reshape(n, r.S), b[1:n * r.S + 1].reshape(n, r.S)


P = weights(start)
r.L, r.H, r.A, r.V, r.C = (int(option("model", k)) for k in ("layers", "width", "heads", "vocab", "context"))
r.S = int(option("train", "seq"))
r.F, r.D = 4 * r.H, r.H // r.A
rate, floor, warm, end = (option("train", k) for k in ("learning_rate", "min_learning_rate", "warmup_steps", "decay_steps"))
beta1, beta2, eps, decay, clip = (option("train", k) for k in ("beta1", "beta2", "eps", "weight_decay", "clip"))
m1, m2 = ({n: np.zeros_like(v) for n, v in P.items()} for _ in range(2))
updates = clipped = 0
skipped = set(np.nonzero(metrics["skipped"])[0])
assert len(skipped) == 1, skipped
worst = 0.0


def close(what, got, want, tolerance):
    global worst
    error = abs(got - want) / abs(want)
    worst = max(worst, error / tolerance)
    assert error <= tolerance, (what, got, want, error)


for step in range(int(option("train", "steps"))):
    x, y = windows(corpus)
    r.B, r.tokens = len(x), lambda: (x, y)
    losses, G = r.run(P)
    norm = math.sqrt(sum((g * g).sum() for g in G.values()))
    lr = rate * (step + 1) / warm if step < warm else floor if step >= end else floor + 0.5 * (1 + math.cos(math.pi * (step - warm) / (end - warm))) * (rate - floor)
    close("learning rate of step %d" % (step + 1), metrics["learning_rate"][step], lr, 1e-12)
    if step not in skipped:
        close("loss of step %d" % (step + 1), metrics["loss"][step], losses.mean(), 1e-6)
        close("norm of step %d" % (step + 1), metrics["gradient_norm"][step], norm, 1e-5)
        updates += 1
        clipped += norm > clip
        for n, p in P.items():
            g = G[n] * min(1, clip / norm)
            m1[n] = beta1 * m1[n] + (1 - beta1) * g
            m2[n] = beta2 * m2[n] + (1 - beta2) * g * g
            p -= lr * (m1[n] / (1 - beta1**updates) / (np.sqrt(m2[n] / (1 - beta2**updates)) + eps) + (decay if p.ndim == 2 else 0) * p)
    if step + 1 in metrics["validation_step"]:
        x, y = windows(held)
        r.B = len(x)
        close("validation after step %d" % (step + 1), metrics["validation_loss"][list(metrics["validation_step"]).index(step + 1)], r.run(P, False)[0].mean(), 1e-6)
assert 0 < clipped < updates, "the job must clip some steps and not others: %d of %d" % (clipped, updates)
final = weights(run)
assert sorted(final) == sorted(P)
for n, p in P.items():
    error = np.abs(final[n] - p).max()
    worst = max(worst, error / 1e-5)
    assert error <= 1e-5, (n, error)
print("%d updates, %d clipped; the largest error is %.2f of its tolerance" % (updates, clipped, worst))
