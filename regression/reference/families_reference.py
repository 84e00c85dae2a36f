#!/usr/bin/env python3
"""Float64 references of small models of llama, bert, roberta and gpt2: losses, every gradient, and the loss of 200 steps of training.

    families_reference.py FOLDER

writes FOLDER/NAME_reference.f64 per model of MODELS. The models are written here from the papers' formulas, on a small reverse-mode
differentiation of numpy arrays; before writing, the script compares its gradients with central differences.

Everything is a closed function of integers, so that the C test makes the same weights and tokens without reading them: element e
of parameter p is scale * (h / 65536 - 0.5) with h the upper 16 bits of (e * 2654435761 + p * 40503 + 12345) mod 2^32 (exact in f32);
weights of norms are 1 + half of that.

A file is little-endian float64: the loss of each token [B * S] (that of the next sentence, where there is one, added to a sample's
first token at the weight that it has in the whole loss), the gradients in the order of the model's parameters, and the losses of
STEPS steps of AdamW over samples that change with the step.
"""
import math
import sys

import numpy as np

STEPS, RATE, BETA1, BETA2, EPS, DECAY = 200, 1e-3, 0.9, 0.95, 1e-6, 0.1
B, S, V, H = 3, 11, 29, 24
MASK = V - 1
LENGTHS = np.array([11, 7, 1])

LLAMA = dict(family="llama", L=2, A=4, K=2, F=40, eps=1e-5, theta=100.0, factor=4.0, low=0.2, high=1.0, context=8)
BERT = dict(L=2, A=3, K=3, F=96)
MODELS = {
    "llama": dict(LLAMA, untied=False),
    "llama_untied": dict(LLAMA, untied=True, factor=0.0),
    "bert": dict(BERT, family="bert", eps=1e-12, types=2, offset=0),
    "roberta": dict(BERT, family="roberta", eps=1e-5, types=1, offset=2),
    "gpt2_curve": dict(BERT, family="gpt2", eps=1e-5),  # gpt2_reference.py has another one's gradients
}


# ---- differentiation -----------------------------------------------------------------------------------------------

class Var:
    """A float64 array, and how its gradient goes to those it was made from."""

    def __init__(self, v, *made_from):
        self.v, self.g, self.made_from = v, None, made_from

    def __add__(self, o):
        return Var(self.v + o.v, (self, lambda d: d), (o, lambda d: d))

    def __sub__(self, o):
        return Var(self.v - o.v, (self, lambda d: d), (o, lambda d: -d))

    def __mul__(self, o):
        if not isinstance(o, Var):
            return Var(self.v * o, (self, lambda d: d * o))
        return Var(self.v * o.v, (self, lambda d: d * o.v), (o, lambda d: d * self.v))

    def __matmul__(self, o):
        return Var(self.v @ o.v, (self, lambda d: d @ np.swapaxes(o.v, -1, -2)), (o, lambda d: np.swapaxes(self.v, -1, -2) @ d))

    def apply(self, value, slope):
        return Var(value, (self, lambda d: d * slope))

    def mean(self):
        n = self.v.shape[-1]
        return Var(self.v.mean(-1, keepdims=True), (self, lambda d: np.broadcast_to(d / n, self.v.shape)))

    def reshape(self, *shape):
        return Var(self.v.reshape(shape), (self, lambda d: d.reshape(self.v.shape)))

    def transpose(self, *axes):
        return Var(self.v.transpose(axes), (self, lambda d: d.transpose(np.argsort(axes))))

    def take(self, index):
        def back(d):
            g = np.zeros_like(self.v)
            np.add.at(g, index, d)
            return g
        return Var(self.v[index], (self, back))

    def backward(self, seed):
        order, seen = [], set()

        def visit(x):
            if id(x) not in seen:
                seen.add(id(x))
                for y, _ in x.made_from:
                    visit(y)
                order.append(x)
        visit(self)
        for x in order:
            x.g = np.zeros_like(x.v)
        self.g = seed
        for x in reversed(order):
            for y, back in x.made_from:
                d = back(x.g)
                while d.ndim > y.v.ndim:
                    d = d.sum(0)
                y.g = y.g + d.sum(tuple(i for i in range(d.ndim) if y.v.shape[i] == 1 and d.shape[i] > 1), keepdims=True)


def rsqrt(x):
    r = x.v ** -0.5
    return x.apply(r, -0.5 * r / x.v)


def layer_norm(x, p, name, eps):
    c = x - x.mean()
    return c * rsqrt((c * c).mean() + Var(np.array(eps))) * p[name + ".weight"] + p[name + ".bias"]


def rms_norm(x, w, eps):
    return x * rsqrt((x * x).mean() + Var(np.array(eps))) * w


def linear(x, w, b=None):
    y = x @ w.transpose(1, 0)
    return y + b if b is not None else y


def named(x, p, name):
    return linear(x, p[name + ".weight"], p[name + ".bias"])


def silu(x):
    s = 1 / (1 + np.exp(-x.v))
    return x.apply(x.v * s, s * (1 + x.v * (1 - s)))


def gelu(x):
    phi = 0.5 * (1 + np.vectorize(math.erf)(x.v / math.sqrt(2)))
    return x.apply(x.v * phi, phi + x.v * np.exp(-0.5 * x.v**2) / math.sqrt(2 * math.pi))


def gelu_tanh(x):
    k = math.sqrt(2 / math.pi)
    t = np.tanh(k * (x.v + 0.044715 * x.v**3))
    return x.apply(0.5 * x.v * (1 + t), 0.5 * (1 + t) + 0.5 * x.v * (1 - t * t) * k * (1 + 3 * 0.044715 * x.v**2))


def tanh(x):
    t = np.tanh(x.v)
    return x.apply(t, 1 - t * t)


def cross_entropy(z, y):
    """Losses [...] of logits [..., n]; 0 where y is -1."""
    m = z.v.max(-1, keepdims=True)
    lse = m + np.log(np.exp(z.v - m).sum(-1, keepdims=True))
    live, at = y >= 0, np.maximum(y, 0)[..., None]
    p = np.exp(z.v - lse)
    np.put_along_axis(p, at, np.take_along_axis(p, at, -1) - 1, -1)
    loss = np.where(live, (lse - np.take_along_axis(z.v, at, -1))[..., 0], 0)
    return Var(loss, (z, lambda d: p * (live * d)[..., None]))


# ---- models --------------------------------------------------------------------------------------------------------

def attention(q, k, v, c, seen):
    """q [B,S,A*D], k, v [B,S,K*D]; seen [B,S,S]: which keys a query sees."""
    A, K = c["A"], c["K"]
    D = H // A
    q = q.reshape(B, S, K, A // K, D).transpose(0, 2, 3, 1, 4)
    k = k.reshape(B, S, K, 1, D).transpose(0, 2, 3, 4, 1)
    v = v.reshape(B, S, K, 1, D).transpose(0, 2, 3, 1, 4)
    z = q @ k * (1 / math.sqrt(D))
    z = Var(np.where(seen[:, None, None], z.v, -np.inf), (z, lambda d: d))
    e = np.exp(z.v - z.v.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    weights = Var(p, (z, lambda d: p * (d - (p * d).sum(-1, keepdims=True))))
    return (weights @ v).transpose(0, 3, 1, 2, 4).reshape(B, S, H)


def turn(x, heads, c):
    D = H // c["A"]
    f = c["theta"] ** (-2.0 * np.arange(D // 2) / D)
    if c["factor"]:
        turns = f * c["context"] / (2 * math.pi)
        keep = np.clip((turns - c["low"]) / (c["high"] - c["low"]), 0, 1)
        f = f * (keep + (1 - keep) / c["factor"])
    a = np.arange(S)[:, None] * f
    cos, sin = (np.concatenate([g(a), g(a)], -1)[None, :, None] for g in (np.cos, np.sin))
    half = np.zeros((D, D))  # (a, b) -> (-b, a)
    half[np.arange(D // 2) + D // 2, np.arange(D // 2)] = -1
    half[np.arange(D // 2), np.arange(D // 2) + D // 2] = 1
    x = x.reshape(B, S, heads, D)
    return (x * cos + (x @ Var(half)) * sin).reshape(B, S, heads * D)


def llama_shapes(c):
    D = H // c["A"]
    yield "embed_tokens.weight", (V, H)
    for i in range(c["L"]):
        n = f"layers.{i}."
        yield n + "input_layernorm.weight", (H,)
        yield n + "self_attn.q_proj.weight", (H, H)
        yield n + "self_attn.k_proj.weight", (c["K"] * D, H)
        yield n + "self_attn.v_proj.weight", (c["K"] * D, H)
        yield n + "self_attn.o_proj.weight", (H, H)
        yield n + "post_attention_layernorm.weight", (H,)
        yield n + "mlp.gate_proj.weight", (c["F"], H)
        yield n + "mlp.up_proj.weight", (c["F"], H)
        yield n + "mlp.down_proj.weight", (H, c["F"])
    if c["untied"]:
        yield "lm_head.weight", (V, H)
    yield "norm.weight", (H,)


def llama(p, c, t):
    x = p["embed_tokens.weight"].take(t["tokens"])
    seen = np.broadcast_to(np.tril(np.ones((S, S), bool)), (B, S, S))
    for i in range(c["L"]):
        n = f"layers.{i}."
        h = rms_norm(x, p[n + "input_layernorm.weight"], c["eps"])
        q, k, v = (linear(h, p[n + f"self_attn.{j}_proj.weight"]) for j in "qkv")
        o = attention(turn(q, c["A"], c), turn(k, c["K"], c), v, c, seen)
        x = x + linear(o, p[n + "self_attn.o_proj.weight"])
        h = rms_norm(x, p[n + "post_attention_layernorm.weight"], c["eps"])
        g = silu(linear(h, p[n + "mlp.gate_proj.weight"])) * linear(h, p[n + "mlp.up_proj.weight"])
        x = x + linear(g, p[n + "mlp.down_proj.weight"])
    head = p["lm_head.weight" if c["untied"] else "embed_tokens.weight"]
    return cross_entropy(linear(rms_norm(x, p["norm.weight"], c["eps"]), head), t["targets"]), None


def pair(name, rows, cols=None):
    yield name + ".weight", (rows, cols) if cols else (rows,)
    yield name + ".bias", (rows,)


HEADS = {"bert": ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
         "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")}


def bert_shapes(c):
    yield "embeddings.word_embeddings.weight", (V, H)
    yield "embeddings.position_embeddings.weight", (S + 1 + c["offset"], H)
    yield "embeddings.token_type_embeddings.weight", (c["types"], H)
    yield from pair("embeddings.LayerNorm", H)
    for i in range(c["L"]):
        n = f"encoder.layer.{i}."
        for m in ("query", "key", "value"):
            yield from pair(n + "attention.self." + m, H, H)
        yield from pair(n + "attention.output.dense", H, H)
        yield from pair(n + "attention.output.LayerNorm", H)
        yield from pair(n + "intermediate.dense", c["F"], H)
        yield from pair(n + "output.dense", H, c["F"])
        yield from pair(n + "output.LayerNorm", H)
    dense, norm, bias = HEADS[c["family"]]
    yield from pair(dense, H, H)
    yield from pair(norm, H)
    yield bias, (V,)
    if c["family"] == "bert":
        yield from pair("pooler.dense", H, H)
        yield from pair("cls.seq_relationship", 2, H)


def bert(p, c, t):
    e = "embeddings."
    x = p[e + "word_embeddings.weight"].take(t["tokens"]) + p[e + "position_embeddings.weight"].take(np.arange(S) + c["offset"])
    x = x + p[e + "token_type_embeddings.weight"].take(t["types"])
    x = layer_norm(x, p, e + "LayerNorm", c["eps"])
    seen = np.broadcast_to((np.arange(S) < LENGTHS[:, None])[:, None], (B, S, S))
    for i in range(c["L"]):
        n = f"encoder.layer.{i}."
        q, k, v = (named(x, p, n + "attention.self." + m) for m in ("query", "key", "value"))
        o = named(attention(q, k, v, c, seen), p, n + "attention.output.dense")
        x = layer_norm(x + o, p, n + "attention.output.LayerNorm", c["eps"])
        o = named(gelu(named(x, p, n + "intermediate.dense")), p, n + "output.dense")
        x = layer_norm(x + o, p, n + "output.LayerNorm", c["eps"])
    dense, norm, bias = HEADS[c["family"]]
    z = linear(layer_norm(gelu(named(x, p, dense)), p, norm, c["eps"]), p[e + "word_embeddings.weight"], p[bias])
    words = cross_entropy(z, t["targets"])
    if c["family"] != "bert":
        return words, None
    first = x.take((np.arange(B), 0))
    return words, cross_entropy(named(tanh(named(first, p, "pooler.dense")), p, "cls.seq_relationship"), t["next"])


def gpt2_shapes(c):
    yield "wte.weight", (V, H)
    yield "wpe.weight", (S + 1, H)
    for i in range(c["L"]):
        n = f"h.{i}."
        yield from pair(n + "ln_1", H)
        yield from pair(n + "attn.c_attn", 3 * H, H)
        yield from pair(n + "attn.c_proj", H, H)
        yield from pair(n + "ln_2", H)
        yield from pair(n + "mlp.c_fc", c["F"], H)
        yield from pair(n + "mlp.c_proj", H, c["F"])
    yield from pair("ln_f", H)


def gpt2(p, c, t):
    x = p["wte.weight"].take(t["tokens"]) + p["wpe.weight"].take(np.arange(S))
    seen = np.broadcast_to(np.tril(np.ones((S, S), bool)), (B, S, S))
    for i in range(c["L"]):
        n = f"h.{i}."
        qkv = named(layer_norm(x, p, n + "ln_1", c["eps"]), p, n + "attn.c_attn")
        q, k, v = (qkv.take((Ellipsis, slice(j * H, (j + 1) * H))) for j in range(3))
        x = x + named(attention(q, k, v, c, seen), p, n + "attn.c_proj")
        f = named(layer_norm(x, p, n + "ln_2", c["eps"]), p, n + "mlp.c_fc")
        x = x + named(gelu_tanh(f), p, n + "mlp.c_proj")
    return cross_entropy(linear(layer_norm(x, p, "ln_f", c["eps"]), p["wte.weight"]), t["targets"]), None


FAMILIES = {"llama": (llama_shapes, llama), "bert": (bert_shapes, bert), "roberta": (bert_shapes, bert),
            "gpt2": (gpt2_shapes, gpt2)}


# ---- samples and training ------------------------------------------------------------------------------------------

def samples(c, step):
    """Progressions whose start and stride change with step and sample. Bert predicts every third token of them, of which two
    in three show the mask."""
    b, s = np.arange(B)[:, None], np.arange(S + 1)[None]
    line = (7 * step + 5 * b + s * (1 + (step + b) % 3)) % (V - 1)
    if c["family"] in ("llama", "gpt2"):
        t = dict(tokens=line[:, :S], targets=line[:, 1:].copy())
        t["targets"][0, 2] = -1
        return t
    s = s[:, :S]
    chosen = ((s + step + b) % 3 == 0) & (s < LENGTHS[:, None])
    chosen[2, 0] = True  # the sample of one token
    tokens = np.where(chosen & ((s + b) % 9 < 6), MASK, line[:, :S])
    types = np.broadcast_to(s > 4, (B, S)) * (c["types"] - 1)
    return dict(tokens=tokens, types=types, targets=np.where(chosen, line[:, :S], -1), next=(np.arange(B) + step) % 3 - 1)


def value(p, name, shape):
    e = np.arange(int(np.prod(shape)), dtype=np.uint64)
    h = ((e * np.uint64(2654435761) + np.uint64(p * 40503 + 12345)) % np.uint64(2**32)) >> np.uint64(16)
    u = h.astype(np.float64) / 65536 - 0.5
    norm = name.endswith("weight") and len(shape) == 1
    return (1 + u / 2 if norm else u if len(shape) == 2 else u / 2).reshape(shape)


def gradients(P, c, step):
    """Losses [B, S] with the share of the next sentence, the whole loss, and gradients by name."""
    t = samples(c, step)
    p = {n: Var(v) for n, v in P.items()}
    words, after = FAMILIES[c["family"]][1](p, c, t)
    scale = 1 / (t["targets"] >= 0).sum()
    whole = Var(np.array(words.v.sum() * scale), (words, lambda d: np.full((B, S), scale * d)))
    loss = words.v.copy()
    if after is not None:
        loss[:, 0] += after.v / B / scale
        whole = whole + Var(np.array(after.v.sum() / B), (after, lambda d: np.full(B, d / B)))
    whole.backward(np.array(1.0))
    return loss, whole.v, {n: x.g if x.g is not None else np.zeros_like(x.v) for n, x in p.items()}


def check(P, G, c):
    pick = np.random.default_rng(1)
    for n, v in P.items():
        for e in pick.integers(0, v.size, 4):
            at = np.unravel_index(e, v.shape)
            old, step = v[at], 1e-5
            v[at] = old + step
            up = gradients(P, c, 0)[1]
            v[at] = old - step
            down = gradients(P, c, 0)[1]
            v[at] = old
            slope = (up - down) / (2 * step)
            assert abs(slope - G[n][at]) < 1e-8, (n, at, slope, G[n][at])


def train(P, c):
    """Decoupled weight decay on matrices and embeddings (Loshchilov and Hutter 2019)."""
    P = {n: v.copy() for n, v in P.items()}
    m, v = ({n: np.zeros_like(x) for n, x in P.items()} for _ in range(2))
    for step in range(STEPS):
        _, whole, G = gradients(P, c, step)
        yield float(whole)
        for n, g in G.items():
            m[n] = BETA1 * m[n] + (1 - BETA1) * g
            v[n] = BETA2 * v[n] + (1 - BETA2) * g * g
            up = m[n] / (1 - BETA1 ** (step + 1)) / (np.sqrt(v[n] / (1 - BETA2 ** (step + 1))) + EPS)
            P[n] -= RATE * (up + (DECAY if P[n].ndim == 2 else 0) * P[n])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, c in MODELS.items():
        P = {n: value(p, n, shape) for p, (n, shape) in enumerate(FAMILIES[c["family"]][0](c))}
        loss, whole, G = gradients(P, c, 0)
        check(P, G, c)
        curve = list(train(P, c))
        with open(f"{sys.argv[1]}/{name}_reference.f64", "wb") as f:
            f.write(loss.astype("<f8").tobytes())
            for n in P:
                f.write(G[n].astype("<f8").tobytes())
            f.write(np.array(curve, "<f8").tobytes())
        print(f"{name}: loss {whole:.12f}, {sum(v.size for v in P.values())} gradients, after {STEPS} steps {curve[-1]:.6f}")


if __name__ == "__main__":
    main()
