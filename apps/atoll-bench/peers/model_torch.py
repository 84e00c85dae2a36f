#!/usr/bin/env python3
"""The small Llama of `atoll-bench decode --part model` in PyTorch.

    python3 model_torch.py --lengths 512 --windows 0,512 --batches 1 --json torch.json

`eager` attends to the slice of a preallocated cache that a token sees; `compiled` is torch.compile of a token's step over
the whole cache with a mask. Needs the packages torch and numpy; Atoll never does.
"""
import os

import llama
import peer
from decode_torch import spread


class Llama:
    def __init__(self, torch, length, window, batch):
        self.torch, self.length, self.window, self.batch = torch, length, window, batch
        embedding, last, layers = llama.weights()
        self.embedding, self.last = torch.from_numpy(embedding), torch.from_numpy(last)
        self.layers = [{name: torch.from_numpy(w) for name, w in layer.items()} for layer in layers]
        self.cosine, self.sine = map(torch.from_numpy, llama.turns(length))
        self.text = torch.from_numpy(llama.tokens(length, batch))
        self.slots = torch.arange(length)

    def cache(self):
        return [self.torch.zeros(2, self.batch, llama.KV_HEADS, self.length, llama.HEAD) for _ in self.layers]

    def turn(self, x, cosine, sine):
        a, b = x.chunk(2, -1)
        return self.torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

    def layer(self, x, w, cosine, sine, attend):
        """attend(q, k, v) stores key and value, and gives what queries [B, heads, 1, D] see."""
        f = self.torch.nn.functional
        n = f.rms_norm(x, (llama.WIDTH,), w["norm1"], llama.EPS)
        q = self.turn(f.linear(n, w["query"]).view(self.batch, llama.HEADS, 1, llama.HEAD), cosine, sine)
        k = self.turn(f.linear(n, w["key"]).view(self.batch, llama.KV_HEADS, 1, llama.HEAD), cosine, sine)
        v = f.linear(n, w["value"]).view(self.batch, llama.KV_HEADS, 1, llama.HEAD)
        x = x + f.linear(attend(q, k, v).reshape(self.batch, llama.WIDTH), w["projection"])
        n = f.rms_norm(x, (llama.WIDTH,), w["norm2"], llama.EPS)
        return x + f.linear(f.silu(f.linear(n, w["gate"])) * f.linear(n, w["up"]), w["down"])

    def logits(self, x):
        f = self.torch.nn.functional
        return f.linear(f.rms_norm(x, (llama.WIDTH,), self.last, llama.EPS), self.embedding)

    def eager(self, t, cache):
        attention = self.torch.nn.functional.scaled_dot_product_attention
        first = max(0, t - self.window + 1) if self.window else 0
        x = self.embedding[self.text[t]]
        for w, kept in zip(self.layers, cache):
            def attend(q, k, v, kept=kept):
                kept[0, :, :, t], kept[1, :, :, t] = k[:, :, 0], v[:, :, 0]
                return attention(q, *kept[:, :, :, first : t + 1].unbind(), enable_gqa=True)

            x = self.layer(x, w, self.cosine[t], self.sine[t], attend)
        return self.logits(x)

    def step(self, token, cosine, sine, t, *cache):
        """Of one token at position t, a tensor [1], over the whole cache."""
        attention = self.torch.nn.functional.scaled_dot_product_attention
        seen = self.slots <= t
        if self.window:
            seen &= self.slots > t - self.window
        x = self.embedding[token]
        for w, kept in zip(self.layers, cache):
            def attend(q, k, v, kept=kept):
                kept[0].index_copy_(2, t, k)
                kept[1].index_copy_(2, t, v)
                return attention(q, *kept.unbind(), attn_mask=seen.view(1, 1, 1, self.length), enable_gqa=True)

            x = self.layer(x, w, cosine, sine, attend)
        return self.logits(x)


def runs(torch, m, counted):
    """The two ways, each the sum of the first logits of all texts over all tokens but the last."""
    def eager():
        cache, total = m.cache(), 0.0
        for t in range(m.length) if counted == m.length else spread(m.length, counted):
            y = m.eager(t, cache)
            total += float(y[:, 0].sum()) if t + 1 < m.length else 0.0
        return total

    step, positions = torch.compile(m.step, dynamic=False), m.slots.split(1)

    def compiled():
        cache, total = m.cache(), 0.0
        for t in range(counted):
            y = step(m.text[t], m.cosine[t], m.sine[t], positions[t], *cache)
            total += float(y[:, 0].sum()) if t + 1 < m.length else 0.0
        return total

    return ("eager", eager), ("compiled", compiled)


def main():
    a = peer.decode_options(__doc__).parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import torch

    torch.set_num_threads(a.threads)
    rows = []
    with torch.no_grad():
        for length in a.lengths:
            for window in a.windows:
                for batch in a.batches:
                    counted = min(a.tokens or length, length)
                    for name, run in runs(torch, Llama(torch, length, window, batch), counted):
                        _, seconds = peer.median_seconds(run, a.repeat)
                        rows.append(llama.row(a, f"torch {torch.__version__} {name}", length, window, batch, seconds,
                                              counted, run()))
    peer.emit(rows, a.json)


if __name__ == "__main__":
    main()
