#!/usr/bin/env python3
"""The whole sweep of decoding, attention and a small Llama: `atoll-bench decode` and its peers in turns, and one table.

    python3 decode_sweep.py --bench build/release/bin/atoll-bench --out sweep --minutes 25

sweep.py says how it goes on where it stopped. Pieces of one row follow each other, so that what else a machine does
meets all of them. Rows go from one text to many, and those that take longer than --seconds are left out and named.
Peers are run by the Python that runs this script, which needs jax, torch and numpy. The table is sweep.md and
sweep.json in --out.
"""
import math
import os
import sys

import llama
import peer
import sweep
from sweep import cell, markdown

HERE = os.path.dirname(os.path.abspath(__file__))
HEADS, WIDTH = 8, 64
WEIGHTS = 4 * (llama.LAYERS * sum(math.prod(s) for s in llama.SHAPES.values()) + llama.VOCAB * llama.WIDTH)


def options():
    p = sweep.options(__doc__, minutes=25)
    p.add_argument("--lengths", type=peer.numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    p.add_argument("--windows", type=peer.numbers, default=[0, 256, 512, 1024])
    p.add_argument("--batches", type=peer.numbers, default=[1, 4, 16])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--parts", default="attention,model", type=lambda text: text.split(","))
    p.add_argument("--programs", default="atoll,jax,torch", type=lambda text: text.split(","))
    return p.parse_args()


def bytes_of(part, places, batch):
    """That a token reads: of `places` keys and values, and of weights."""
    if part == "attention":
        return 2 * 4 * HEADS * WIDTH * batch * places
    return 2 * 4 * llama.LAYERS * llama.KV_HEADS * llama.HEAD * batch * places + WEIGHTS


def seconds_of(part, length, window, batch, rate=8e9):
    """Of one run of the recurrent program: it reads what each token sees, at the rate of a slow machine's memory."""
    return sum(bytes_of(part, min(t + 1, window or length), batch) for t in range(length)) / rate


def tokens_of(part, length, batch):
    """That peers time at least: of a padded cache, some 8 GB are read."""
    return max(16, int(8e9 / bytes_of(part, length, batch)))


def command(a, path, part, program, length, window, batch):
    row = ["--windows", str(window), "--batches", str(batch), "--threads", str(a.threads), "--json", path]
    if program == "atoll":
        repeats = a.repeat if seconds_of(part, length, window, batch) < a.seconds / 4 else 1
        lengths = "--lengths" if part == "attention" else "--model-lengths"
        return [a.bench, "decode", "--part", part, lengths, str(length), *row, "--repeats", str(repeats)]
    script = os.path.join(HERE, f"{'decode' if part == 'attention' else 'model'}_{program}.py")
    return [sys.executable, script, "--lengths", str(length), *row, "--repeat", str(a.repeat),
            "--tokens", str(tokens_of(part, length, batch))]


def rows_of(a):
    for part in a.parts:
        for batch in a.batches:
            for length in a.lengths:
                for window in a.windows:
                    if window < length:  # else it is causal
                        yield part, length, window, batch


def check(pieces, name, ours, theirs):
    """Programs that compute something else are no peers. Sums of as many as 16 texts x 512 outputs, each over all tokens,
    in f32, in orders of their own: those of right programs were seen to differ by 1e-5 of them."""
    numbers = [v for v in (ours, theirs) if isinstance(v, (int, float))]
    if len(numbers) < 2 or not abs(ours - theirs) <= 1e-3 * max(1, abs(ours)):  # true of NaN as well
        shown = ["none" if v is None else f"{v:.6g}" for v in (theirs, ours)]
        pieces.missing.append(f"another result: {name}: {shown[0]}, not {shown[1]}")


def figures(pieces, part, *row):
    """One row of a table, or None: milliseconds a token of all programs, and our ratio to the best of the peers."""
    ours = pieces.load(part, "atoll", *row).get("rows" if part == "attention" else "model")
    if not ours:
        return None
    theirs = [r for program in ("jax", "torch") for r in pieces.load(part, program, *row).get("rows", [])]
    length, _, batch = row
    for r in [{**ours[0], "program": "atoll"}, *theirs]:  # ours against itself: it may be none
        if r.get("checksum") is not None or tokens_of(part, length, batch) >= length:  # else they sum up a part of it
            check(pieces, f"{part} {r['program']} {' '.join(map(str, row))}", ours[0].get("checksum"), r.get("checksum"))
    found = {key: v for key, v in ours[0].items() if key != "difference"}
    found["part"] = part
    found["ms_per_token"] = found.pop("ms_per_token_tiled", ours[0].get("ms_per_token"))
    found["peers"] = {r["program"]: r["ms_per_token"] for r in theirs}
    if found["peers"]:
        found["against_best_peer"] = min(found["peers"].values()) / found["ms_per_token"]
    return found


def table(rows):
    names = sorted({name for r in rows for name in r["peers"]})
    lines = [markdown("part", "T", "window", "batch", "recurrent", "padded", *names, "x best peer", "of bandwidth",
                      "keys and values MB"), "|" + "---|" * (9 + len(names))]
    for r in rows:
        kept = r.get("peak_kv_bytes")
        lines.append(markdown(
            r["part"], str(r["T"]), str(r["window"] or "causal"), str(r["batch"]), cell(r["ms_per_token"]),
            cell(r.get("ms_per_token_padded")), *(cell(r["peers"].get(n)) for n in names),
            cell(r.get("against_best_peer"), 2), cell(r["bandwidth_fraction"], 2), cell(kept and kept / 1e6, 2)))
    return lines


def main():
    a = options()
    pieces = sweep.Pieces(a)
    for part, *row in rows_of(a):
        seconds = seconds_of(part, *row)
        if seconds > a.seconds:
            pieces.missing.append("left out: {}, T {}, window {}, batch {}: {:.0f} s a run".format(part, *row, seconds))
            continue
        for program in a.programs:
            pieces.run(lambda path: command(a, path, part, program, *row), part, program, *row)
    rows = [r for row in rows_of(a) if (r := figures(pieces, *row))]
    pieces.table(table(rows), {"rows": rows})


if __name__ == "__main__":
    main()
