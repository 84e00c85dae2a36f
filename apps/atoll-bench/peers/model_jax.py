#!/usr/bin/env python3
"""The small Llama of `atoll-bench decode --part model` in JAX: a whole text in one jitted loop.

    python3 model_jax.py --lengths 512 --windows 0,512 --batches 1 --json jax.json

Keys and values are kept as decode_jax.py does: `padded` or `ring`. Needs the packages jax and numpy; Atoll never does.
"""
import os

import llama
import peer


def program(jax, length, counted, window, places, batch):
    """Sum of the first logits of all texts over all tokens but the last, of `counted` tokens."""
    jnp = jax.numpy
    embedding, last, layers = jax.tree.map(jnp.asarray, llama.weights())
    stack = jax.tree.map(lambda *x: jnp.stack(x), *layers)
    text = jnp.asarray(llama.tokens(length, batch))
    cosine, sine = map(jnp.asarray, llama.turns(length))
    slots = jnp.arange(places)

    def norm(x, gain):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + llama.EPS) * gain

    def turn(x, t):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cosine[t] - b * sine[t], b * cosine[t] + a * sine[t]], -1)

    def token(t, state):
        keys, values, total, most = state
        position = t - (t - slots) % places
        seen = position >= 0
        if window:
            seen &= position > t - window

        def layer(x, given):
            w, keys, values = given
            n = norm(x, w["norm1"])
            q = turn((n @ w["query"].T).reshape(batch, llama.KV_HEADS, llama.GROUP, llama.HEAD), t)
            k = turn((n @ w["key"].T).reshape(batch, llama.KV_HEADS, llama.HEAD), t)
            v = (n @ w["value"].T).reshape(batch, llama.KV_HEADS, llama.HEAD)
            keys = jax.lax.dynamic_update_index_in_dim(keys, k, t % places, 2)
            values = jax.lax.dynamic_update_index_in_dim(values, v, t % places, 2)
            scores = jnp.einsum("bkgd,bksd->bkgs", q, keys) / llama.HEAD**0.5
            y = jnp.einsum("bkgs,bksd->bkgd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1), values)
            x = x + y.reshape(batch, llama.WIDTH) @ w["projection"].T
            n = norm(x, w["norm2"])
            return x + (jax.nn.silu(n @ w["gate"].T) * (n @ w["up"].T)) @ w["down"].T, (keys, values)

        x, (keys, values) = jax.lax.scan(layer, embedding[text[t]], (stack, keys, values))
        logits = norm(x, last) @ embedding.T
        # The largest as well: of first logits alone, XLA would leave out the others.
        return keys, values, total + jnp.where(t + 1 < counted, logits[:, 0].sum(), 0), jnp.maximum(most, logits.max())

    @jax.jit
    def decode():
        cache = jnp.zeros((llama.LAYERS, batch, llama.KV_HEADS, places, llama.HEAD), jnp.float32)
        return jax.lax.fori_loop(0, counted, token, (cache, cache, jnp.float32(0), jnp.float32(0)))[2:]

    return decode


def main():
    a = peer.decode_options(__doc__).parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if a.threads > 1 else 'false'}"
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import jax

    rows = []
    for length in a.lengths:
        for window in a.windows:
            for batch in a.batches:
                ways = [("padded", length)] + ([("ring", window)] if 0 < window < length else [])
                for name, places in ways:
                    counted = min(a.tokens or length, length)
                    run = program(jax, length, counted, window, places, batch)
                    _, seconds = peer.median_seconds(lambda: jax.block_until_ready(run()), a.repeat)
                    rows.append(llama.row(a, f"jax {jax.__version__} {name}", length, window, batch, seconds, counted,
                                          float(run()[0])))
    peer.emit(rows, a.json)


if __name__ == "__main__":
    main()
