#!/usr/bin/env python3
"""Cross-entropy, in nats per byte, of a byte bigram model fitted on one text and scored on another.

    bigram.py TRAIN HELDOUT

P(b | a) = (count(a b) + k P(b)) / (count(a) + k) with P(b) = (count(b) + 1) / (n + 256): interpolation with the unigram (Dirichlet prior
of strength k); k is chosen on the last tenth of the training text, so the held-out text is never looked at. The quick job must end below this."""
import math
import sys
from collections import Counter


def fit(text):
    return Counter(zip(text, text[1:])), Counter(text[:-1]), Counter(text), len(text)


def score(model, k, text):
    pairs, first, single, n = model
    total = 0.0
    for (a, b), times in Counter(zip(text, text[1:])).items():
        prior = (single[b] + 1) / (n + 256)
        total -= times * math.log((pairs[a, b] + k * prior) / (first[a] + k))
    return total / (len(text) - 1)


def main():
    train, held = (open(path, "rb").read() for path in sys.argv[1:3])
    cut = len(train) * 9 // 10
    part = fit(train[:cut])
    k = min((0.1, 0.3, 1, 3, 10, 30, 100), key=lambda strength: score(part, strength, train[cut:]))
    print("%.4f" % score(fit(train), k, held))


main()
