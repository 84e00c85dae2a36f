#!/usr/bin/env python3
"""The whole sweep of attention decoding: `atoll-bench decode` and its peers in turns, and one table of all.

    python3 decode_sweep.py --bench build/bin/atoll-bench --out sweep --minutes 25

sweep.py says how it goes on where it stopped. Pieces of one row follow each other, so that what else a machine does
meets all of them. Rows go from one text to many, and those that take longer than --seconds are left out and named.
Peers are run by the Python that runs this script, which needs jax, torch and numpy. The table is sweep.md and
sweep.json in --out.
"""
import os
import sys

import peer
import sweep
from sweep import cell, markdown

HERE = os.path.dirname(os.path.abspath(__file__))
HEADS, WIDTH = 8, 64


def options():
    p = sweep.options(__doc__, minutes=25)
    p.add_argument("--lengths", type=peer.numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--windows", type=peer.numbers, default=[0, 256, 512, 1024])
    p.add_argument("--batches", type=peer.numbers, default=[1, 4, 16])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--programs", default="atoll,jax,torch,model", help="of atoll, jax, torch and model, a small Llama")
    return p.parse_args()


def seconds_of(length, window, batch, rate=8e9):
    """Of one run of the recurrent program: it reads what each token sees, at the rate of a slow machine's memory."""
    seen = sum(min(t + 1, window or length) for t in range(length))
    return 2 * 4 * HEADS * WIDTH * batch * seen / rate


def command(a, path, program, length, window, batch):
    row = ["--lengths", str(length), "--windows", str(window), "--batches", str(batch), "--threads", str(a.threads)]
    repeats = a.repeat if seconds_of(length, window, batch) < a.seconds / 4 else 1
    if program == "atoll":
        return [a.bench, "decode", "--part", "attention", *row, "--repeats", str(repeats), "--json", path]
    if program == "model":
        return [a.bench, "decode", "--part", "model", "--model-lengths", str(length), *row[2:], "--repeats", "1",
                "--json", path]
    tokens = max(16, int(2e9 / (4096 * batch * length)))  # of a padded cache: some 8 GB are read
    return [sys.executable, os.path.join(HERE, f"decode_{program}.py"), *row, "--repeat", str(a.repeat), "--tokens",
            str(tokens), "--json", path]


def rows_of(a):
    """Programs and rows in order; a model reads its weights besides, so that only its shorter texts are in."""
    programs = a.programs.split(",")
    for batch in a.batches:
        for length in a.lengths:
            for window in a.windows:
                if window < length:  # else it is causal
                    yield from ((program, length, window, batch) for program in programs if program != "model")
    for length in a.lengths if "model" in programs else []:
        for window in a.windows:
            if length <= 1024 and window < length:
                yield "model", length, window, 1


def figures(pieces, *row):
    """One row of the table, or None: milliseconds a token of all programs, and ratios to the best of the peers."""
    ours = pieces.load("atoll", *row).get("rows")
    if not ours:
        return None
    found = {key: ours[0].get(key) for key in ("T", "window", "batch", "ms_per_token_tiled", "ms_per_token_padded",
                                               "bandwidth_fraction", "peak_kv_bytes", "dram_bytes_per_second")}
    found["peers"] = {r["program"]: r["ms_per_token"]
                      for program in ("jax", "torch") for r in pieces.load(program, *row).get("rows", [])}
    if found["peers"]:
        found["against_best_peer"] = min(found["peers"].values()) / found["ms_per_token_tiled"]
    return found


def merge(a, pieces):
    rows = [r for batch in a.batches for length in a.lengths for window in a.windows
            if (r := figures(pieces, length, window, batch))]
    models = [r for length in a.lengths for window in a.windows
              for r in pieces.load("model", length, window, 1).get("model", [])]
    names = sorted({name for r in rows for name in r["peers"]})
    lines = [markdown("T", "window", "batch", "recurrent", "padded", *names, "x best peer", "of bandwidth",
                      "keys and values MB"), "|" + "---|" * (8 + len(names))]
    for r in rows:
        lines.append(markdown(
            str(r["T"]), str(r["window"] or "causal"), str(r["batch"]), cell(r["ms_per_token_tiled"]),
            cell(r["ms_per_token_padded"]), *(cell(r["peers"].get(n)) for n in names),
            cell(r.get("against_best_peer"), 2), cell(r["bandwidth_fraction"], 2), cell(r["peak_kv_bytes"] / 1e6, 2)))
    if models:
        lines += ["", "| Llama of 8 layers: T | window | ms a token | of bandwidth |", "|---|---|---|---|"]
        lines += [markdown(str(r["T"]), str(r["window"] or "causal"), cell(r["ms_per_token"], 2),
                           cell(r["bandwidth_fraction"], 2)) for r in models]
    pieces.table(lines, {"rows": rows, "model": models})


def main():
    a = options()
    pieces = sweep.Pieces(a)
    for row in rows_of(a):
        seconds = seconds_of(*row[1:])
        if seconds <= a.seconds:
            pieces.run(lambda path: command(a, path, *row), *row)
        elif row[0] == "atoll":
            pieces.missing.append(f"left out: T {row[1]}, window {row[2]}, batch {row[3]}: {seconds:.0f} s a run")
    merge(a, pieces)


if __name__ == "__main__":
    main()
