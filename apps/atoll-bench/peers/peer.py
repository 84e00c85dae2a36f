"""What the peers of the benchmarks share: options, timing, inputs that programs in any language can make, rows of JSON."""
import argparse
import json
import resource
import statistics
import sys
import time

import numpy as np

PERIOD = 64  # tokens after which the inputs of decoding repeat


def options(description, threads=1):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=threads, help="default %(default)s")
    p.add_argument("--repeat", type=int, default=3, help="timed runs of each row; the median is printed")
    p.add_argument("--json", help="write the rows to this file instead of standard output")
    return p


def numbers(text):
    """A comma-separated list of integers."""
    return [int(word) for word in text.split(",")]


def decode_options(description):
    p = options(description)
    p.add_argument("--lengths", type=numbers, default=[512, 2048, 8192], help="T")
    p.add_argument("--windows", type=numbers, default=[0, 512], help="0: causal")
    p.add_argument("--batches", type=numbers, default=[1, 4])
    p.add_argument("--tokens", type=int, default=0,
                   help="time no more than so many of the T, which differ no more than a mean over them shows; 0: all")
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--head-dim", type=int, default=64)
    return p


def hashed(count):
    """f32 [count] in [-0.5, 0.5): the top 24 bits of the 32-bit product i x 2654435761, over 2^24, less one half."""
    bits = (np.arange(count, dtype=np.uint64) * 2654435761 % 2**32).astype(np.uint32) >> 8
    return bits.astype(np.float32) / np.float32(2**24) - np.float32(0.5)


def decode_inputs(batch, heads, dim):
    """Queries, keys and values [3, PERIOD, batch, heads, dim]: token t takes entry t mod PERIOD."""
    return hashed(3 * PERIOD * batch * heads * dim).reshape(3, PERIOD, batch, heads, dim)


def rl_options(description):
    p = options(description)
    p.add_argument("--algorithms", default="reinforce,ppo", type=lambda text: text.split(","),
                   help="of reinforce, reinforce_n, ppo")
    p.add_argument("--environments", type=numbers, default=[128, 512, 2048])
    p.add_argument("--lengths", type=numbers, default=[125, 500], help="T, steps of an episode")
    p.add_argument("--observation", type=int, default=4)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--n", type=int, default=8, help="steps of an n-step return")
    p.add_argument("--iterations", type=int, default=5, help="of one timed run")
    return p


def rl_start(environments, observation):
    """First observations [environments, observation] of the near-free environment. A step with action a in {0, 1} is
    x <- 0.9 x + 0.1 (2 a - 1), its reward 1 - mean(x^2)."""
    return hashed(environments * observation).reshape(environments, observation)


GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, EPOCHS, RATE = 0.99, 0.95, 0.2, 0.01, 0.5, 4, 1e-3
HORIZON = 1 / (1 - GAMMA)  # unit of values


def median_seconds(run, repeat):
    """run() once untimed (compiles, warms up), its seconds, then the median of `repeat` more."""
    begin = time.perf_counter()
    run()
    first = time.perf_counter() - begin
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return first, statistics.median(seconds)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def emit(rows, path):
    text = json.dumps({"rows": rows}, indent=2) + "\n"
    if path:
        with open(path, "w") as file:
            file.write(text)
    else:
        sys.stdout.write(text)
