#!/usr/bin/env python3
"""Training steps of GPT-2 in PyTorch, for comparison with `atoll-bench step`: same shapes, threads, element type and work.

    python3 step_torch.py --dtype f32 --compile --json torch.json

A step is forward, backward, clipping by the global norm and fused AdamW on random tokens. Attention is
scaled_dot_product_attention (no S x S matrix), the head is tied. With bf16 the GEMMs run under autocast and parameters
and moments stay f32, as in Atoll. Each mode runs in a process of its own, so that the peak resident set is its own.
Needs the packages torch and numpy; Atoll never does.
"""
import json
import os
import statistics
import subprocess
import sys
import time

from peer import emit, options, peak_rss_bytes


def arguments():
    p = options(__doc__, threads=2)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--compile", action="store_true", help="torch.compile instead of eager")
    p.add_argument("--all", action="store_true", help="both element types, eager and compiled, one process each")
    return p.parse_args()


def build(torch, a):
    nn = torch.nn
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(a.width), nn.LayerNorm(a.width)
            self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
            self.up, self.down = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)

        def forward(self, x):
            b, s, h = x.shape
            q, k, v = (t.view(b, s, a.heads, h // a.heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, 2))
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(o.transpose(1, 2).reshape(b, s, h))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(a.vocab, a.width), nn.Embedding(1024, a.width)
            self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
            self.norm = nn.LayerNorm(a.width)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.view(-1, a.vocab).float(), targets.reshape(-1))

    return Gpt2()


def measure(a):
    import torch

    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    model = build(torch, a)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    forward = torch.compile(model) if a.compile else model

    def step():
        ids = torch.randint(a.vocab, (a.batch, a.seq + 1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    seconds = []
    for i in range(2 + a.repeat):
        begin = time.perf_counter()
        step()
        if i >= 2:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    return {
        "program": "torch " + torch.__version__ + (" compiled" if a.compile else " eager"),
        "dtype": a.dtype,
        "B": a.batch,
        "T": a.seq,
        "threads": a.threads,
        "step_seconds": median,
        "step_seconds_spread": [min(seconds), max(seconds)],
        "tokens_per_second": a.batch * a.seq / median,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def measure_all():
    """Every mode as a process of its own, with this process's other options."""
    rest = [o for o in sys.argv[1:] if o != "--all"]
    if "--json" in rest:
        del rest[rest.index("--json") : rest.index("--json") + 2]
    rows = []
    for dtype in ("f32", "bf16"):
        for compiled in ([], ["--compile"]):
            out = subprocess.run([sys.executable, __file__, *rest, "--dtype", dtype, *compiled], stdout=subprocess.PIPE)
            if out.returncode:
                sys.exit(f"{__file__}: {dtype} {' '.join(compiled)} ended with {out.returncode}")
            rows += json.loads(out.stdout)["rows"]
    return rows


def main():
    a = arguments()
    for pin in ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"):
        os.environ.pop(pin, None)
    emit(measure_all() if a.all else [measure(a)], a.json)


if __name__ == "__main__":
    main()
