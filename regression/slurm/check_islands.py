"""check_islands.py PLANNED EVEN: exit 0; 1 when the structure is wrong, 2 when times are.

A shared machine slows calibration and training by different, common factors, which says nothing about the plan. What the balance of a plan
rests on is the time of the stages relative to each other. Both deviations are printed; the goal on a machine of its own is 15 %. The test
fails on what noise does not explain: 35 % relative to the others, 50 % by itself. The uneven plan must beat the even one."""
import sys

import h5py
import numpy as np

ok = True
step = {}
for name, path in zip(("planned", "even"), sys.argv[1:]):
    with h5py.File(path + "/run.h5") as f:
        r = f["ranks"]
        predicted = r["predicted_forward_seconds"][:] + r["predicted_backward_seconds"][:]
        measured = r["forward_seconds"][:] + r["backward_seconds"][:]
        step[name] = np.percentile(f["metrics/step_seconds"][2:], 25)  # disturbances only lengthen steps
        ratio = measured / predicted
        layers = [l for l in f["plan/yaml"][()].decode().splitlines() if "first:" in l or "last:" in l]
        print(name, "step %.3f s, stages measured over predicted" % step[name], np.round(ratio, 3))
        if name == "planned":
            hosts = list(r["host"].asstr())
            stage = r["stage"][:]
            if sorted(hosts) != ["n0", "n1", "n2", "n3"] or sorted(stage) != [0, 1, 2, 3]:
                print("ranks", hosts, stage)
                sys.exit(1)
            elements = f["memory/measured"][:, list(f["memory/category"].asstr()).index("parameter")]
            fast = [e for e, h in zip(elements, hosts) if h in ("n0", "n1")]
            slow = [e for e, h in zip(elements, hosts) if h in ("n2", "n3")]
            print("parameter bytes of fast nodes", fast, "slow nodes", slow)
            if not min(fast) > max(slow):
                sys.exit(1)
            relative = abs(ratio / np.median(ratio) - 1).max()
            ok = ok and relative <= 0.35 and (abs(ratio - 1) <= 0.5).all()
            print("largest deviation of a stage %.1f %%, relative to the others %.1f %%" % (100 * abs(ratio - 1).max(), 100 * relative))
print("even over planned step time %.3f" % (step["even"] / step["planned"]))
ok = ok and step["planned"] < step["even"]
sys.exit(0 if ok else 2)
