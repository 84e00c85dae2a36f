"""Usage: check_h5.py WIDE ONE: two runs of the same job, on 4 ranks and on 1."""
import os
import shutil
import sys

import h5py
import numpy as np

wide, one = sys.argv[1:3]
last = "ckpt/step-00000020.a1/"
names = []
with h5py.File(os.path.join(wide, last, "model.h5")) as f, h5py.File(os.path.join(one, last, "model.h5")) as g:
    f["param"].visit(lambda n: names.append(n) if isinstance(f["param"][n], h5py.Dataset) else None)
    assert len(names) == 3 * 12 + 4, names
    assert f["param/wte.weight"].shape == (256, 32) and f["param/h.0.attn.c_attn.weight"].shape == (96, 32)
    for kind in ("param", "moment1", "moment2"):
        for n in names:
            a, b = f[kind][n][...], g[kind][n][...]
            assert np.isfinite(a).all(), n
            assert (a == b).all(), (kind, n)
            assert f[kind][n].attrs["units"] == "1" and f[kind][n].attrs["long_name"] == kind + "/" + n
    assert f.attrs["step"] == 20 and "stages" in f["plan"][()].decode()

shutil.copytree(os.path.join(wide, last), "moved")
os.remove(sorted(p for p in ("moved/" + n for n in os.listdir("moved")) if "shard-" in p)[0])
with h5py.File("moved/model.h5") as f:
    holes = [n for n in names if np.isnan(f["param"][n][...]).any()]
    assert holes and len(holes) < len(names), "a missing shard must show, and only where it was"

with h5py.File(os.path.join(wide, "run.h5")) as f:
    for a in ("format", "software", "softwareVersion", "date", "state", "plan_digest", "topology_identity"):
        assert a in f.attrs, a
    assert f.attrs["state"] == "finished"
    m = f["metrics"]
    for n in "step loss validation_step validation_loss learning_rate gradient_norm tokens step_seconds tokens_per_second ceiling_fraction skipped attempt superseded".split():
        assert m[n].attrs["units"] and m[n].attrs["long_name"], n
    assert list(m["step"]) == list(range(1, 21)) and m["tokens"][-1] == 20 * 8 * 32
    assert m["loss"][-1] < m["loss"][0]
    assert list(m["validation_step"]) == [10, 20]
    assert f["memory/measured"].shape == f["memory/predicted"].shape == (4, len(f["memory/category"]))
    assert (f["memory/measured_peak"][...] > 0).all()
    predicted, measured = f["memory/predicted"][...], f["memory/measured"][...]
    assert (predicted == measured).all(), (predicted, measured)
    assert (f["memory/predicted_peak"][...] >= f["memory/measured_peak"][...]).all()
    values = f["counters/values"]
    status = list(f["counters/status"].asstr())
    for i, s in enumerate(status):
        assert (s == "ok") == bool(np.isfinite(values[:, 1, i]).all()), (f["counters/name"][i], s)
        assert s == "ok" or f["counters/reason"].asstr()[i]
    for group in ("topology", "islands", "plan", "provenance"):
        assert group in f, group
    assert "global_batch" in f["provenance/options"][()].decode()
print("h5py sees everything")
