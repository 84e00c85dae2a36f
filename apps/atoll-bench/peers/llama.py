"""The small Llama of `atoll-bench decode --part model`, as its peers need it: sizes, weights and tokens."""
import numpy as np

import peer

WIDTH, HEADS, KV_HEADS, FFN, VOCAB, LAYERS = 512, 8, 2, 1536, 8192, 8
HEAD, GROUP = WIDTH // HEADS, HEADS // KV_HEADS
EPS, THETA = 1e-5, 10000.0

SHAPES = {"query": (WIDTH, WIDTH), "key": (KV_HEADS * HEAD, WIDTH), "value": (KV_HEADS * HEAD, WIDTH),
          "projection": (WIDTH, WIDTH), "gate": (FFN, WIDTH), "up": (FFN, WIDTH), "down": (WIDTH, FFN),
          "norm1": (WIDTH,), "norm2": (WIDTH,)}


def filled(*shape):
    """A weight: each begins its hash anew, so that those of all layers are the same numbers (in memory of their own)."""
    return (peer.hashed(int(np.prod(shape))) * np.float32(0.1)).reshape(shape)


def weights():
    """Embedding [vocab, width], which is the head too; the last norm [width]; those of a layer, by name."""
    return filled(VOCAB, WIDTH), filled(WIDTH), [{name: filled(*s) for name, s in SHAPES.items()} for _ in range(LAYERS)]


def tokens(length, batch):
    """[length, batch]: of a text at a position, whatever the logits were."""
    return (np.arange(length)[:, None] * 7 + np.arange(batch) * 13) % VOCAB


def turns(length):
    """Cosines and sines [length, HEAD / 2] of the rotary positions; dimension i turns with i + HEAD / 2."""
    angle = np.arange(length)[:, None] * THETA ** (-2.0 * np.arange(HEAD // 2) / HEAD)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def row(a, program, length, window, batch, seconds, counted, total):
    """counted tokens, of which the sum of the first logits, that of the last token excepted, is total."""
    return {"program": program, "T": length, "window": window, "batch": batch, "threads": a.threads, "layers": LAYERS,
            "ms_per_token": seconds * 1e3 / counted, "checksum": total if counted == length else None}
