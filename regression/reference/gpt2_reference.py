#!/usr/bin/env python3
"""Float64 reference of a small GPT-2: losses and every gradient, by formulas written independently of the C code.

    gpt2_reference.py OUT.f64

Everything is a closed function of integers, so that the C test makes the same weights and tokens without reading them: element e
of parameter p is scale * (h / 65536 - 0.5) with h the upper 16 bits of (e * 2654435761 + p * 40503 + 12345) mod 2^32 (exact in f32).

The file is little-endian float64: loss of each token [B * S], then the gradients of the mean loss over all B * S tokens in the
order of the model's parameters. Before writing, the script checks its own gradients against central differences.
"""
import sys

import numpy as np

L, H, A, V, C, B, S = 2, 24, 3, 29, 12, 2, 11
F, D = 4 * H, H // A


def shapes():
    yield "wte.weight", (V, H), 1.0
    yield "wpe.weight", (C, H), 1.0
    for i in range(L):
        yield f"h.{i}.ln_1.weight", (H,), None
        yield f"h.{i}.ln_1.bias", (H,), 0.5
        yield f"h.{i}.attn.c_attn.weight", (3 * H, H), 1.0
        yield f"h.{i}.attn.c_attn.bias", (3 * H,), 0.5
        yield f"h.{i}.attn.c_proj.weight", (H, H), 0.5
        yield f"h.{i}.attn.c_proj.bias", (H,), 0.5
        yield f"h.{i}.ln_2.weight", (H,), None
        yield f"h.{i}.ln_2.bias", (H,), 0.5
        yield f"h.{i}.mlp.c_fc.weight", (F, H), 1.0
        yield f"h.{i}.mlp.c_fc.bias", (F,), 0.5
        yield f"h.{i}.mlp.c_proj.weight", (H, F), 0.5
        yield f"h.{i}.mlp.c_proj.bias", (H,), 0.5
    yield "ln_f.weight", (H,), None
    yield "ln_f.bias", (H,), 0.5


def value(p, shape, scale):
    e = np.arange(int(np.prod(shape)), dtype=np.uint64)
    h = ((e * np.uint64(2654435761) + np.uint64(p * 40503 + 12345)) % np.uint64(2**32)) >> np.uint64(16)
    u = h.astype(np.float64) / 65536 - 0.5
    return (u * scale if scale is not None else 1 + u / 2).reshape(shape)


def tokens():
    i = np.arange(B * S)
    t = (i * i * 7 + 3 * i + 1) % V
    j = i + 1
    y = (j * j * 7 + 3 * j + 1) % V
    y[2] = -1
    return t.reshape(B, S), y.reshape(B, S)


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    r = 1 / np.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)
    hat = (x - m) * r
    return hat * g + b, (hat, r, g)


def norm_back(dy, kept):
    hat, r, g = kept
    d = dy * g
    dx = r * (d - d.mean(-1, keepdims=True) - hat * (d * hat).mean(-1, keepdims=True))
    return dx, (dy * hat).sum((0, 1)), dy.sum((0, 1))


K = np.sqrt(2 / np.pi)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(K * (x + 0.044715 * x**3)))


def gelu_slope(x):
    t = np.tanh(K * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * K * (1 + 3 * 0.044715 * x * x)


def run(P, back=True):
    """Losses [B, S] and gradients by name."""
    t, y = tokens()
    G = {n: np.zeros_like(v) for n, v in P.items()}
    x = P["wte.weight"][t] + P["wpe.weight"][:S]
    mask = np.tril(np.ones((S, S), bool))
    kept = []
    for i in range(L):
        h = f"h.{i}."
        n1, k1 = norm(x, P[h + "ln_1.weight"], P[h + "ln_1.bias"])
        qkv = n1 @ P[h + "attn.c_attn.weight"].T + P[h + "attn.c_attn.bias"]
        q, k, v = (qkv[..., j * H:(j + 1) * H].reshape(B, S, A, D).transpose(0, 2, 1, 3) for j in range(3))
        s = np.where(mask, q @ k.transpose(0, 1, 3, 2) / np.sqrt(D), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        o = (p @ v).transpose(0, 2, 1, 3).reshape(B, S, H)
        r1 = x + o @ P[h + "attn.c_proj.weight"].T + P[h + "attn.c_proj.bias"]
        n2, k2 = norm(r1, P[h + "ln_2.weight"], P[h + "ln_2.bias"])
        f = n2 @ P[h + "mlp.c_fc.weight"].T + P[h + "mlp.c_fc.bias"]
        g = gelu(f)
        x = r1 + g @ P[h + "mlp.c_proj.weight"].T + P[h + "mlp.c_proj.bias"]
        kept.append((n1, k1, q, k, v, p, o, n2, k2, f, g))
    nf, kf = norm(x, P["ln_f.weight"], P["ln_f.bias"])
    z = nf @ P["wte.weight"].T
    z -= z.max(-1, keepdims=True)
    lse = np.log(np.exp(z).sum(-1))
    live = y >= 0
    loss = np.where(live, lse - np.take_along_axis(z, np.maximum(y, 0)[..., None], -1)[..., 0], 0)
    if not back:
        return loss, None
    dz = np.exp(z - lse[..., None])
    np.put_along_axis(dz, np.maximum(y, 0)[..., None], np.take_along_axis(dz, np.maximum(y, 0)[..., None], -1) - 1, -1)
    dz *= live[..., None] / (B * S)
    flat = lambda a: a.reshape(B * S, -1)
    G["wte.weight"] += flat(dz).T @ flat(nf)
    dx, G["ln_f.weight"], G["ln_f.bias"] = norm_back(dz @ P["wte.weight"], kf)

    def linear_back(dy, x, name):
        G[name + ".weight"] = flat(dy).T @ flat(x)
        G[name + ".bias"] = flat(dy).sum(0)
        return dy @ P[name + ".weight"]

    for i in reversed(range(L)):
        h = f"h.{i}."
        n1, k1, q, k, v, p, o, n2, k2, f, g = kept[i]
        df = linear_back(dx, g, h + "mlp.c_proj") * gelu_slope(f)
        d, G[h + "ln_2.weight"], G[h + "ln_2.bias"] = norm_back(linear_back(df, n2, h + "mlp.c_fc"), k2)
        dx = dx + d
        do = linear_back(dx, o, h + "attn.c_proj").reshape(B, S, A, D).transpose(0, 2, 1, 3)
        dp = do @ v.transpose(0, 1, 3, 2)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(D)
        parts = (ds @ k, ds.transpose(0, 1, 3, 2) @ q, p.transpose(0, 1, 3, 2) @ do)
        dqkv = np.concatenate([a.transpose(0, 2, 1, 3).reshape(B, S, H) for a in parts], -1)
        d, G[h + "ln_1.weight"], G[h + "ln_1.bias"] = norm_back(linear_back(dqkv, n1, h + "attn.c_attn"), k1)
        dx = dx + d
    np.add.at(G["wte.weight"], t, dx)
    G["wpe.weight"][:S] += dx.sum(0)
    return loss, G


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    P = {n: value(p, shape, scale) for p, (n, shape, scale) in enumerate(shapes())}
    loss, G = run(P)
    pick = np.random.default_rng(1)
    for n, v in P.items():
        for e in pick.integers(0, v.size, 4):
            at = np.unravel_index(e, v.shape)
            old, step = v[at], 1e-5
            v[at] = old + step
            up = run(P, False)[0].sum()
            v[at] = old - step
            down = run(P, False)[0].sum()
            v[at] = old
            slope = (up - down) / (2 * step) / (B * S)
            assert abs(slope - G[n][at]) < 1e-8, (n, at, slope, G[n][at])
    with open(sys.argv[1], "wb") as f:
        f.write(loss.astype("<f8").tobytes())
        for n in P:
            f.write(G[n].astype("<f8").tobytes())
    print(f"mean loss {loss.sum() / (B * S):.12f}; {sum(v.size for v in P.values())} gradients")


if __name__ == "__main__":
    main()
