#!/usr/bin/env python3
"""The whole table of reinforcement learning: `atoll-bench rl` and its peers in turns on the near-free environment.

    python3 rl_sweep.py --bench build/release/bin/atoll-bench --out sweep --minutes 25

Each row, an algorithm, a number of environments and a length of episodes, meets Atoll, JAX's scan and the PyTorch loop
in --turns turns, one process each; the table has the medians over turns of steps per second, and of Atoll's ratio to
each within a turn. The PyTorch loop, far slower, is run in the first turn only. Runs have fewer iterations where
episodes are long and environments many. With --ranks N, Atoll divides environments over N ranks (by mpirun), and
peers, which are processes, get N threads. sweep.py says how it goes on where it stopped. Peers are run by the Python that runs this script, which needs jax, torch and numpy.
"""
import os
import sys
from statistics import median

import peer
import sweep
from sweep import cell, markdown

HERE = os.path.dirname(os.path.abspath(__file__))


def options():
    p = sweep.options(__doc__, minutes=25)
    p.add_argument("--algorithms", default="reinforce,reinforce_n,ppo", type=lambda text: text.split(","))
    p.add_argument("--environments", type=peer.numbers, default=[128, 512, 2048])
    p.add_argument("--lengths", type=peer.numbers, default=[125, 250, 500, 1000, 2000])
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--programs", default="atoll,jax,torch", type=lambda text: text.split(","))
    p.add_argument("--ranks", type=int, default=1, help="ranks of Atoll, threads of its peers")
    p.add_argument("--steps", type=int, default=1000000, help="of all environments in a timed run, where 5 iterations "
                   "would take more; PPO, which learns four times, gets half of them")
    return p.parse_args()


def command(a, path, program, algorithm, environments, length):
    most = a.steps / (2 if algorithm == "ppo" else 1) / (environments * length)
    iterations = max(2, min(5, int(most)))  # more than one: the first draws and places memory, too
    repeat = a.repeat if most >= 1 and program != "torch" else 1
    row = ["--algorithms", algorithm, "--environments", str(environments), "--lengths", str(length),
           "--iterations", str(iterations), "--json", path]
    if program == "atoll":
        launch = ["mpirun", "-n", str(a.ranks)] if a.ranks > 1 else []
        return [*launch, a.bench, "rl", *row, "--repeats", str(repeat)]
    return [sys.executable, os.path.join(HERE, f"rl_{program}.py"), *row, "--threads", str(a.ranks), "--repeat",
            str(repeat)]


def figures(a, pieces, *row):
    """One row of the table, or None: steps per second of all programs, and Atoll's ratios to its peers."""
    turns = [{program: pieces.load(program, *row, turn).get("rows", [None])[0] for program in a.programs}
             for turn in range(a.turns)]
    ours = [turn["atoll"] for turn in turns if turn.get("atoll")]
    if not ours:
        return None
    algorithm, environments, length = row
    found = {"algorithm": algorithm, "environments": environments, "T": length, "turns": len(ours),
             "steps_per_second": median(r["steps_per_second"] for r in ours), "peak_bytes": ours[0]["peak_bytes"],
             "products_fraction": median(r["products_fraction"] for r in ours), "peers": {}}
    for program in a.programs:
        both = [(t["atoll"]["steps_per_second"], t[program]["steps_per_second"]) for t in turns
                if program != "atoll" and t.get("atoll") and t.get(program)]
        if both:
            ratios = [o / p for o, p in both]
            found["peers"][program] = {"steps_per_second": median(p for _, p in both), "atoll_over": median(ratios),
                                       "lowest": min(ratios), "highest": max(ratios)}
    return found


def merge(a, pieces):
    rows = [r for algorithm in a.algorithms for environments in a.environments for length in a.lengths
            if (r := figures(a, pieces, algorithm, environments, length))]
    names = [program for program in a.programs if program != "atoll"]
    lines = [markdown("algorithm", "environments", "T", "steps/s", *(f"{n} steps/s | over {n}" for n in names),
                      "products alone", "peak MB"), "|" + "---|" * (6 + 2 * len(names))]
    for r in rows:
        cells = []
        for name in names:
            p = r["peers"].get(name)
            cells += [cell(p and p["steps_per_second"], 0),
                      f"{p['atoll_over']:.2f} ({p['lowest']:.2f}-{p['highest']:.2f})" if p else ""]
        lines.append(markdown(r["algorithm"], str(r["environments"]), str(r["T"]), cell(r["steps_per_second"], 0), *cells,
                              cell(r["products_fraction"], 2), cell(r["peak_bytes"] / 1e6, 1)))
    pieces.table(lines, {"rows": rows})


def main():
    a = options()
    pieces = sweep.Pieces(a)
    for turn in range(a.turns):
        for length in a.lengths:
            for environments in a.environments:
                for algorithm in a.algorithms:
                    for program in a.programs:
                        # The loop's distance is far beyond the spread of turns: one turn tells it.
                        if program != "torch" or turn == 0:
                            row = (program, algorithm, environments, length, turn)
                            pieces.run(lambda path: command(a, path, *row[:4]), *row)
    merge(a, pieces)


if __name__ == "__main__":
    main()
