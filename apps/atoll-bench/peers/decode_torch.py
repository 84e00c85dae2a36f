#!/usr/bin/env python3
"""Attention decoding in PyTorch, for comparison with `atoll-bench decode`.

    python3 decode_torch.py --lengths 512,2048 --windows 0,512 --batches 1,4 --json torch.json

`eager` attends to the slice of a preallocated cache that a token sees; `compiled` is torch.compile of a token's step over
the whole cache with a mask, since shapes that change at every token would compile anew. Needs the packages torch and
numpy; Atoll never does.
"""
import os

from peer import PERIOD, decode_inputs, decode_options, emit, median_seconds, peak_rss_bytes


def spread(length, tokens):
    """Positions of which each stands for length / tokens others: a token's cost grows with what it sees."""
    return [(2 * k + 1) * length // (2 * tokens) for k in range(tokens)]


def eager(torch, length, window, table, tokens):
    attention = torch.nn.functional.scaled_dot_product_attention
    _, _, batch, heads, dim = table.shape

    def decode():
        keys, values = torch.zeros(2, batch, heads, length, dim).unbind()
        total = torch.zeros(batch, heads, 1, dim)
        for t in range(length) if tokens == length else spread(length, tokens):
            q, k, v = table[:, t % PERIOD].unbind()
            keys[:, :, t], values[:, :, t] = k, v
            first = max(0, t - window + 1) if window else 0
            total += attention(q.unsqueeze(2), keys[:, :, first : t + 1], values[:, :, first : t + 1])
        return total

    return decode


def compiled(torch, length, window, table, tokens):
    attention = torch.nn.functional.scaled_dot_product_attention
    _, _, batch, heads, dim = table.shape
    slots = torch.arange(length)

    @torch.compile(dynamic=False)
    def token(keys, values, q, k, v, t):
        keys.index_copy_(2, t, k.unsqueeze(2))
        values.index_copy_(2, t, v.unsqueeze(2))
        seen = slots <= t
        if window:
            seen &= slots > t - window
        return attention(q.unsqueeze(2), keys, values, attn_mask=seen.view(1, 1, 1, length))

    positions = torch.arange(length).split(1)

    def decode():
        keys, values = torch.zeros(batch, heads, length, dim), torch.zeros(batch, heads, length, dim)
        total = torch.zeros(batch, heads, 1, dim)
        for t in range(tokens):
            total += token(keys, values, *table[:, t % PERIOD].unbind(), positions[t])
        return total

    return decode


def main():
    a = decode_options(__doc__).parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import torch

    torch.set_num_threads(a.threads)
    rows = []
    with torch.no_grad():
        for length in a.lengths:
            for window in a.windows:
                for batch in a.batches:
                    table = torch.from_numpy(decode_inputs(batch, a.heads, a.head_dim))
                    for name, make in (("eager", eager), ("compiled", compiled)):
                        tokens = min(a.tokens or length, length)
                        run = make(torch, length, window, table, tokens)
                        first, seconds = median_seconds(run, a.repeat)
                        rows.append({
                            "program": f"torch {torch.__version__} {name}", "T": length, "window": window,
                            "batch": batch, "threads": a.threads, "ms_per_token": seconds * 1e3 / tokens,
                            "compile_seconds": max(0.0, first - seconds), "checksum": float(run().sum()) if tokens == length else None,
                            "peak_kv_bytes": 2 * 4 * batch * a.heads * a.head_dim * length,
                            "peak_rss_bytes": peak_rss_bytes()})
    emit(rows, a.json)


if __name__ == "__main__":
    main()
