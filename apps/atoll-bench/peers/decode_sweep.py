#!/usr/bin/env python3
"""The whole sweep of attention decoding: `atoll-bench decode` and its peers in turns, and one table of all.

    python3 decode_sweep.py --bench build/bin/atoll-bench --out sweep --minutes 25

Each piece, one program at one length, window and batch, leaves a file in the folder --out and is not run again, so that
a sweep that was stopped, or that had no more minutes, goes on where it was. Pieces of one row follow each other, so that
what else a machine does meets all of them. Rows go from one text to many, and those that take longer than --seconds are
left out and named. Peers are run by the Python that runs this script, which needs jax, torch and numpy. The table is
sweep.md and sweep.json in --out.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import peer

HERE = os.path.dirname(os.path.abspath(__file__))
HEADS, WIDTH = 8, 64


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bench", required=True, help="the program atoll-bench")
    p.add_argument("--out", required=True, help="folder of pieces and tables")
    p.add_argument("--lengths", type=peer.numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--windows", type=peer.numbers, default=[0, 256, 512, 1024])
    p.add_argument("--batches", type=peer.numbers, default=[1, 4, 16])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--seconds", type=float, default=60, help="most of one run of a piece")
    p.add_argument("--minutes", type=float, default=25, help="no piece begins after so many; what is there is told")
    p.add_argument("--programs", default="atoll,jax,torch,model", help="of atoll, jax, torch and model, a small Llama")
    return p.parse_args()


def seconds_of(length, window, batch, rate=8e9):
    """Of one run of the recurrent program: it reads what each token sees, at the rate of a slow machine's memory."""
    seen = sum(min(t + 1, window or length) for t in range(length))
    return 2 * 4 * HEADS * WIDTH * batch * seen / rate


def command(a, program, length, window, batch, path):
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


def run(a, program, length, window, batch, log):
    """Whether the piece is there."""
    path = os.path.join(a.out, f"{program}-{length}-{window}-{batch}.json")
    if os.path.exists(path):
        return True
    log.write(f"{program} T {length} window {window} batch {batch}\n")
    log.flush()
    try:
        subprocess.run(command(a, program, length, window, batch, path + ".part"), stdout=log, stderr=log, check=True,
                       timeout=8 * a.seconds)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
        log.write(f"{e}\n")
        return False
    os.replace(path + ".part", path)
    return True


def pieces(a):
    """Programs and rows in order; a model reads its weights besides, so that only its shorter texts are in."""
    for batch in a.batches:
        for length in a.lengths:
            for window in a.windows:
                if window >= length:
                    continue  # it is causal
                for program in a.programs.split(","):
                    if program != "model":
                        yield program, length, window, batch
    for length in a.lengths if "model" in a.programs.split(",") else []:
        for window in a.windows:
            if length <= 1024 and window < length:
                yield "model", length, window, 1


def load(a, program, length, window, batch):
    path = os.path.join(a.out, f"{program}-{length}-{window}-{batch}.json")
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def figures(a, length, window, batch):
    """One row of the table, or None: milliseconds a token of all programs, and ratios to the best of the peers."""
    ours = load(a, "atoll", length, window, batch).get("rows")
    if not ours:
        return None
    row = {key: ours[0].get(key) for key in ("T", "window", "batch", "ms_per_token_tiled", "ms_per_token_padded",
                                             "bandwidth_fraction", "peak_kv_bytes", "dram_bytes_per_second")}
    row["peers"] = {r["program"]: r["ms_per_token"]
                    for program in ("jax", "torch") for r in load(a, program, length, window, batch).get("rows", [])}
    if row["peers"]:
        row["against_best_peer"] = min(row["peers"].values()) / row["ms_per_token_tiled"]
    return row


def cell(v, digits=3):
    return "" if v is None else f"{v:.{digits}f}" if isinstance(v, float) else str(v)


def merge(a, missing):
    rows = [r for batch in a.batches for length in a.lengths for window in a.windows
            if (r := figures(a, length, window, batch))]
    models = [r for length in a.lengths for window in a.windows
              for r in load(a, "model", length, window, 1).get("model", [])]
    names = sorted({name for r in rows for name in r["peers"]})
    lines = ["| T | window | batch | recurrent | padded | " + "".join(f"{n} | " for n in names) +
             "x best peer | of bandwidth | keys and values MB |", "|" + "---|" * (8 + len(names))]
    for r in rows:
        lines.append("| " + " | ".join([
            str(r["T"]), str(r["window"] or "causal"), str(r["batch"]), cell(r["ms_per_token_tiled"]),
            cell(r["ms_per_token_padded"]), *(cell(r["peers"].get(n)) for n in names),
            cell(r.get("against_best_peer"), 2), cell(r["bandwidth_fraction"], 2), cell(r["peak_kv_bytes"] / 1e6, 2)]) +
            " |")
    if models:
        lines += ["", "| Llama of 8 layers: T | window | ms a token | of bandwidth |", "|---|---|---|---|"]
        lines += [f"| {r['T']} | {r['window'] or 'causal'} | {r['ms_per_token']:.2f} | {r['bandwidth_fraction']:.2f} |"
                  for r in models]
    lines += ["", *missing]
    with open(os.path.join(a.out, "sweep.md"), "w") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(a.out, "sweep.json"), "w") as file:
        json.dump({"rows": rows, "model": models, "missing": missing}, file, indent=2)
    print("\n".join(lines))


def main():
    a = options()
    os.makedirs(a.out, exist_ok=True)
    ends, missing = time.monotonic() + 60 * a.minutes, []
    with open(os.path.join(a.out, "log"), "a") as log:
        for program, length, window, batch in pieces(a):
            name = f"{program} at T {length}, window {window}, batch {batch}"
            if seconds_of(length, window, batch) > a.seconds:
                missing += [f"left out: {name}: {seconds_of(length, window, batch):.0f} s a run"] * (program == "atoll")
            elif time.monotonic() > ends and not load(a, program, length, window, batch):
                missing.append(f"no time: {name}")
            elif not run(a, program, length, window, batch, log):
                missing.append(f"failed: {name}, see the log")
    merge(a, missing)


if __name__ == "__main__":
    main()
