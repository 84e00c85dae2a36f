#!/usr/bin/env python3
"""Training steps of GPT-2: `atoll-bench step` and PyTorch by turns, so that both meet the same load of the machine.

    python3 step_turns.py --bench build/release/bin/atoll-bench --job inputs/jobs/gpt2-124m.yaml --json turns.json

Each turn runs Atoll, PyTorch eager and PyTorch compiled in both element types, a process each, of the same shapes,
threads and work (step_torch.py says which). Rows have the medians over turns of tokens per second and of the peak
resident set; those of PyTorch also Atoll's against them, turn by turn, and whether the rates differ by more than the
turns' own spread. PyTorch is run by --python, by default the interpreter that runs this.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from peer import emit, options

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    p = options(__doc__, threads=2)
    p.set_defaults(repeat=4)
    p.add_argument("--bench", required=True, help="atoll-bench")
    p.add_argument("--job", required=True, help="job file of GPT-2 124M")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more options of the job")
    p.add_argument("--python", default=sys.executable, help="an interpreter that has torch and numpy")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--dtypes", default="f32,bf16", type=lambda text: text.split(","))
    p.add_argument("--modes", default="eager,compiled", type=lambda text: text.split(","), help="of PyTorch")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    return p.parse_args()


def run(command, a):
    """Seconds and the figures that the command leaves in a file of its own."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        begin = time.perf_counter()
        done = subprocess.run([*command, "--json", path], env=environment, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}")
        with open(path) as file:
            return time.perf_counter() - begin, json.load(file)


def atoll(a, dtype):
    shape = ["--dtype", dtype, "--batch", str(a.batch), "--seq", str(a.seq), "--steps", str(a.repeat), "--alone"]
    return run([a.bench, "step", "--job", a.job, *a.set, *shape], a)


def torch(a, dtype, mode):
    shape = ["--dtype", dtype, "--batch", str(a.batch), "--seq", str(a.seq), "--repeat", str(a.repeat)]
    compiled = ["--compile"] if mode == "compiled" else []
    seconds, figures = run([a.python, os.path.join(HERE, "step_torch.py"), "--threads", str(a.threads), *shape,
                            *compiled], a)
    return seconds, figures["rows"][0]


def measure(a):
    """Figures by (dtype, mode), a list entry a turn; Atoll's mode is "atoll"."""
    found = {}
    for turn in range(a.turns):
        for dtype in a.dtypes:
            for mode in ["atoll", *a.modes]:
                seconds, row = atoll(a, dtype) if mode == "atoll" else torch(a, dtype, mode)
                found.setdefault((dtype, mode), []).append(row)
                print(f"turn {turn + 1} {dtype} {mode}: {row['tokens_per_second']:.1f} tokens/s, "
                      f"{row['peak_rss_bytes'] / 2**30:.2f} GiB ({seconds:.0f} s)", file=sys.stderr)
    return found


def ratios(ours, theirs, key):
    return sorted(o[key] / t[key] for o, t in zip(ours, theirs))


def rows(a, found):
    out = []
    for (dtype, mode), turns in found.items():
        speeds = sorted(t["tokens_per_second"] for t in turns)
        row = {
            "program": "atoll-bench " + turns[0]["version"] if mode == "atoll" else turns[0]["program"],
            "dtype": dtype,
            "B": a.batch,
            "T": a.seq,
            "threads": a.threads,
            "turns": len(turns),
            "tokens_per_second": median(speeds),
            "tokens_per_second_spread": [speeds[0], speeds[-1]],
            "peak_rss_bytes": median(t["peak_rss_bytes"] for t in turns),
        }
        if mode != "atoll":
            faster = ratios(found[dtype, "atoll"], turns, "tokens_per_second")
            smaller = ratios(found[dtype, "atoll"], turns, "peak_rss_bytes")
            row |= {"atoll_speed_ratio": median(faster), "atoll_speed_ratio_spread": [faster[0], faster[-1]],
                    "atoll_rss_ratio": median(smaller), "turns_agree": (faster[0] - 1) * (faster[-1] - 1) > 0}
        out.append(row)
    return out


def main():
    a = arguments()
    emit(rows(a, measure(a)), a.json)


if __name__ == "__main__":
    main()
