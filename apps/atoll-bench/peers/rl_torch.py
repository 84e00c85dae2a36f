#!/usr/bin/env python3
"""REINFORCE and PPO on the near-free environment in PyTorch, as such programs are usually written: a Python loop that acts,
storage for the rollout, then learning from it.

    python3 rl_torch.py --algorithms reinforce,ppo --environments 128,512 --lengths 125 --json torch.json

peer.py defines environment and constants. Needs the packages torch and numpy; Atoll never does.
"""
import os

import peer


def program(torch, a, algorithm, environments, length):
    nn = torch.nn
    outputs = 3 if algorithm == "ppo" else 2  # two logits, and a value in units of HORIZON
    start = torch.from_numpy(peer.rl_start(environments, a.observation))

    def rollout(network):
        x = start
        seen, actions, logs, values, rewards = (torch.zeros(length, environments, *shape) for shape in
                                                ((a.observation,), (), (), (), ()))
        with torch.no_grad():
            for t in range(length):
                y = network(x)
                choice = torch.distributions.Categorical(logits=y[:, :2])
                action = choice.sample()
                seen[t], actions[t], logs[t] = x, action, choice.log_prob(action)
                if outputs == 3:
                    values[t] = peer.HORIZON * y[:, 2]
                x = 0.9 * x + 0.1 * (2.0 * action.unsqueeze(1) - 1)
                rewards[t] = 1 - (x**2).mean(-1)
            last = peer.HORIZON * network(x)[:, 2] if outputs == 3 else None
        return seen, actions, logs, values, rewards, last

    def discounted(terms, factor):
        total, out = torch.zeros(environments), torch.zeros_like(terms)
        for t in reversed(range(length)):
            out[t] = total = terms[t] + factor * total
        return out

    def returns_of(rewards):
        if algorithm == "reinforce_n":
            padded = torch.cat([rewards, torch.zeros(a.n - 1, environments)])
            return sum(peer.GAMMA**k * padded[k : k + length] for k in range(a.n))
        return discounted(rewards, peer.GAMMA)

    def learn(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def iteration(network, optimizer):
        seen, actions, logs, values, rewards, last = rollout(network)
        if algorithm != "ppo":
            choice = torch.distributions.Categorical(logits=network(seen)[..., :2])
            learn(optimizer, -(choice.log_prob(actions) * returns_of(rewards)).mean())
            return rewards.mean()
        following = torch.cat([values[1:], last.unsqueeze(0)])
        advantage = discounted(rewards + peer.GAMMA * following - values, peer.GAMMA * peer.LAMBDA)
        target = (advantage + values) / peer.HORIZON
        for _ in range(peer.EPOCHS):
            y = network(seen)
            choice = torch.distributions.Categorical(logits=y[..., :2])
            ratio = (choice.log_prob(actions) - logs).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - peer.CLIP, 1 + peer.CLIP) * advantage)
            error = (y[..., 2] - target) ** 2
            learn(optimizer, -gain.mean() - peer.ENTROPY * choice.entropy().mean() + peer.VALUE * error.mean())
        return rewards.mean()

    def train():
        torch.manual_seed(1)
        network = nn.Sequential(nn.Linear(a.observation, a.hidden), nn.Tanh(), nn.Linear(a.hidden, a.hidden), nn.Tanh(),
                                nn.Linear(a.hidden, outputs))
        optimizer = torch.optim.Adam(network.parameters(), lr=peer.RATE)
        for _ in range(a.iterations):
            mean = iteration(network, optimizer)
        return float(mean)

    return train


def main():
    a = peer.rl_options(__doc__).parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: a.threads])
    import torch

    torch.set_num_threads(a.threads)
    rows = []
    for algorithm in a.algorithms:
        for environments in a.environments:
            for length in a.lengths:
                run = program(torch, a, algorithm, environments, length)
                _, seconds = peer.median_seconds(run, a.repeat)
                rows.append({
                    "program": f"torch {torch.__version__} loop", "algorithm": algorithm, "environments": environments,
                    "T": length, "observation": a.observation, "hidden": a.hidden,
                    "n": a.n if algorithm == "reinforce_n" else 0, "threads": a.threads,
                    "steps_per_second": environments * length * a.iterations / seconds, "mean_reward": run(),
                    "peak_rss_bytes": peer.peak_rss_bytes()})
    peer.emit(rows, a.json)


if __name__ == "__main__":
    main()
