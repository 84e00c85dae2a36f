#!/usr/bin/env python3
"""Attention decoding in JAX, for comparison with `atoll-bench decode`: a whole sequence in one jitted loop.

    python3 decode_jax.py --lengths 512,2048 --windows 0,512 --batches 1,4 --json jax.json

Two ways to keep keys and values: `padded`, a cache of all T places and a mask at every token, and `ring`, a buffer of
the window's places (windows only). Needs the packages jax and numpy; Atoll never does.
"""
import os

from peer import PERIOD, decode_inputs, decode_options, emit, median_seconds, peak_rss_bytes


def program(jax, tokens, window, places, table):
    """sum of all outputs of decoding `tokens` tokens with `places` cached positions (length, or window: a ring)."""
    jnp = jax.numpy
    _, _, batch, heads, dim = table.shape
    slots = jnp.arange(places)

    def token(t, state):
        keys, values, total = state
        q, k, v = (table[i, t % PERIOD] for i in range(3))
        keys = jax.lax.dynamic_update_index_in_dim(keys, k, t % places, 2)
        values = jax.lax.dynamic_update_index_in_dim(values, v, t % places, 2)
        position = t - (t - slots) % places  # the last one written to each slot; negative: none yet
        seen = position >= 0
        if window:
            seen &= position > t - window
        scores = jnp.einsum("bhd,bhsd->bhs", q, keys) / dim**0.5
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        return keys, values, total + jnp.einsum("bhs,bhsd->bhd", weights, values)

    @jax.jit
    def decode():
        cache = jnp.zeros((batch, heads, places, dim), jnp.float32)
        return jax.lax.fori_loop(0, tokens, token, (cache, cache, jnp.zeros((batch, heads, dim))))[2]

    return decode


def main():
    a = decode_options(__doc__).parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if a.threads > 1 else 'false'}"
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import jax

    rows = []
    for length in a.lengths:
        for window in a.windows:
            for batch in a.batches:
                table = jax.numpy.asarray(decode_inputs(batch, a.heads, a.head_dim))
                ways = [("padded", length)] + ([("ring", window)] if 0 < window < length else [])
                for name, places in ways:
                    tokens = min(a.tokens or length, length)  # a token's cost depends on the places alone
                    run = program(jax, tokens, window, places, table)
                    first, seconds = median_seconds(lambda: run().block_until_ready(), a.repeat)
                    rows.append({
                        "program": f"jax {jax.__version__} {name}", "T": length, "window": window, "batch": batch,
                        "threads": a.threads, "ms_per_token": seconds * 1e3 / tokens,
                        "compile_seconds": first - seconds, "checksum": float(run().sum()) if tokens == length else None,
                        "peak_kv_bytes": 2 * 4 * batch * a.heads * a.head_dim * places,
                        "peak_rss_bytes": peak_rss_bytes()})
    emit(rows, a.json)


if __name__ == "__main__":
    main()
