#!/usr/bin/env python3
"""REINFORCE and PPO on the near-free environment in JAX, acting and learning in one jitted scan: the strong baseline of
`atoll-bench rl`.

    python3 rl_jax.py --algorithms reinforce,reinforce_n,ppo --environments 128,512 --lengths 125 --json jax.json

peer.py defines environment and constants. Needs the packages jax and numpy; Atoll never does.
"""
import os

import peer


def layers(jax, key, observation, hidden, outputs):
    jnp = jax.numpy
    sizes = [observation, hidden, hidden, outputs]
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (i, o)) / jnp.sqrt(i), jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]


def network(jax, parameters, x):
    for w, b in parameters[:-1]:
        x = jax.numpy.tanh(x @ w + b)
    w, b = parameters[-1]
    return x @ w + b


def adam(jax, parameters, gradients, moments, step):
    jnp = jax.numpy
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
    scale = peer.RATE * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), parameters, m, v), (m, v)


def program(jax, a, algorithm, environments, length):
    jnp = jax.numpy
    start = jnp.asarray(peer.rl_start(environments, a.observation))
    outputs = 3 if algorithm == "ppo" else 2  # two logits, and a value in units of HORIZON

    def rollout(parameters, key):
        def act(x, key):
            y = network(jax, parameters, x)
            action = jax.random.categorical(key, y[:, :2])
            after = 0.9 * x + 0.1 * (2.0 * action[:, None] - 1)
            return after, (x, action, 1 - (after**2).mean(-1))

        return jax.lax.scan(act, start, jax.random.split(key, length))

    def log_probabilities(parameters, x, action):
        y = network(jax, parameters, x)
        logs = jax.nn.log_softmax(y[..., :2])
        return jnp.take_along_axis(logs, action[..., None], -1)[..., 0], logs, y

    def reinforce_loss(parameters, x, action, returns):
        return -(log_probabilities(parameters, x, action)[0] * returns).mean()

    def ppo_loss(parameters, x, action, before, advantage, target):
        now, logs, y = log_probabilities(parameters, x, action)
        ratio = jnp.exp(now - before)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - peer.CLIP, 1 + peer.CLIP) * advantage)
        entropy = -(jnp.exp(logs) * logs).sum(-1)
        return -gain.mean() - peer.ENTROPY * entropy.mean() + peer.VALUE * ((y[..., 2] - target) ** 2).mean()

    def returns_of(reward):
        if algorithm == "reinforce_n":
            padded = jnp.concatenate([reward, jnp.zeros((a.n - 1, environments))])
            return sum(peer.GAMMA**k * padded[k : k + length] for k in range(a.n))
        return jax.lax.scan(lambda g, r: (r + peer.GAMMA * g,) * 2, jnp.zeros(environments), reward, reverse=True)[1]

    def iteration(state, key):
        parameters, moments, step = state
        last, (x, action, reward) = rollout(parameters, key)
        if algorithm != "ppo":
            gradients = jax.grad(reinforce_loss)(parameters, x, action, returns_of(reward))
            parameters, moments = adam(jax, parameters, gradients, moments, step)
            return (parameters, moments, step + 1), reward.mean()
        before, _, y = log_probabilities(parameters, x, action)
        value = peer.HORIZON * jnp.concatenate([y[..., 2], network(jax, parameters, last)[None, :, 2]])
        delta = reward + peer.GAMMA * value[1:] - value[:-1]
        decay = peer.GAMMA * peer.LAMBDA
        advantage = jax.lax.scan(lambda g, d: (d + decay * g,) * 2, jnp.zeros(environments), delta, reverse=True)[1]
        target = (advantage + value[:-1]) / peer.HORIZON
        for _ in range(peer.EPOCHS):
            gradients = jax.grad(ppo_loss)(parameters, x, action, before, advantage, target)
            parameters, moments = adam(jax, parameters, gradients, moments, step)
            step += 1
        return (parameters, moments, step), reward.mean()

    @jax.jit
    def train(key):
        parameters = layers(jax, key, a.observation, a.hidden, outputs)
        zero = jax.tree.map(jnp.zeros_like, parameters)
        return jax.lax.scan(iteration, (parameters, (zero, zero), 1), jax.random.split(key, a.iterations))

    # What was learnt is a result too: of a single iteration XLA would leave learning out.
    return lambda: jax.block_until_ready(train(jax.random.key(1)))[1]


def main():
    a = peer.rl_options(__doc__).parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if a.threads > 1 else 'false'}"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import jax

    rows = []
    for algorithm in a.algorithms:
        for environments in a.environments:
            for length in a.lengths:
                run = program(jax, a, algorithm, environments, length)
                first, seconds = peer.median_seconds(run, a.repeat)
                rows.append({
                    "program": f"jax {jax.__version__} scan", "algorithm": algorithm, "environments": environments,
                    "T": length, "observation": a.observation, "hidden": a.hidden,
                    "n": a.n if algorithm == "reinforce_n" else 0, "threads": a.threads,
                    "steps_per_second": environments * length * a.iterations / seconds,
                    "compile_seconds": first - seconds, "mean_reward": float(run()[-1]),
                    "peak_rss_bytes": peer.peak_rss_bytes()})
    peer.emit(rows, a.json)


if __name__ == "__main__":
    main()
