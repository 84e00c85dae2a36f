"""What the sweeps share: pieces, each one program at one row of a table, that leave a file in a folder and are not run
again, so that a sweep that was stopped, or that had no more minutes, goes on where it was."""
import argparse
import json
import os
import subprocess
import time

import peer


def options(description, minutes):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", required=True, help="the program atoll-bench")
    p.add_argument("--out", required=True, help="folder of pieces and tables")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--minutes", type=float, default=minutes, help="no piece begins after so many; what is there is told")
    p.add_argument("--seconds", type=float, default=60, help="most of one run of a piece")
    return p


class Pieces:
    def __init__(self, a):
        self.out, self.limit, self.ends, self.missing = a.out, 8 * a.seconds, time.monotonic() + 60 * a.minutes, []
        os.makedirs(self.out, exist_ok=True)

    def path(self, *row):
        return os.path.join(self.out, "-".join(map(str, row)) + ".json")

    def run(self, command, *row):
        """Runs the command, a function of the file it shall write, unless this row is there or no minutes are left."""
        name, path = " ".join(map(str, row)), self.path(*row)
        if os.path.exists(path):
            return
        if time.monotonic() > self.ends:
            self.missing.append(f"no time: {name}")
            return
        with open(os.path.join(self.out, "log"), "a") as log:
            log.write(name + "\n")
            log.flush()
            try:
                subprocess.run(command(path + ".part"), stdout=log, stderr=log, check=True, timeout=self.limit)
                os.replace(path + ".part", path)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
                log.write(f"{e}\n")
                self.missing.append(f"failed: {name}, see the log")

    def load(self, *row):
        try:
            with open(self.path(*row)) as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def table(self, lines, figures):
        """Writes and prints sweep.md, and writes sweep.json."""
        lines = [*lines, "", *self.missing]
        with open(os.path.join(self.out, "sweep.md"), "w") as file:
            file.write("\n".join(lines) + "\n")
        with open(os.path.join(self.out, "sweep.json"), "w") as file:
            json.dump({**figures, "missing": self.missing}, file, indent=2)
        print("\n".join(lines))


def markdown(*cells):
    return "| " + " | ".join(cells) + " |"


def cell(v, digits=3):
    return "" if v is None else f"{v:.{digits}f}" if isinstance(v, float) else str(v)
