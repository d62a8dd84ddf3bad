#!/usr/bin/env python3
"""test_invariance: the logits never depend on chunk size or thread count, bit for bit.

Every tiny architecture (200 ids, beyond windows and KV pages, enough for two lanes) and, where present, SmolLM2 (300 ids): chunks of 1, 7, 64,
100, 256 and everything at once, times 1, 2 and 3 threads, against chunk 256 on one thread, all rows. In `auto` mode and in
`exact` mode. A difference names the first token where it shows.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden"))
from common import TINY, Result, Tap, Work, np, real_model, run, run_json, tiny_ids

import tiny_models as tm

CHUNKS = (1, 7, 64, 100, 256, None)
THREADS = (1, 2, 3)


def first_difference(a, b):
    if a.shape != b.shape:
        return "shapes %s and %s" % (a.shape, b.shape)
    rows = np.nonzero((a.view(np.uint32) != b.view(np.uint32)).any(-1))[0]
    return "token %d first of %d, max abs %.3g" % (rows[0], len(rows), float(np.abs(a - b).max()))


def invariance(tap, work, name, model, ids, mode, chunks=CHUNKS, threads=THREADS, more=()):
    base = work.logits(model, ids, "--chunk", "256", "--threads", "1", *more, mode=mode)
    if isinstance(base, Result):
        tap.ok(False, "%s %s" % (name, mode), base.describe())
        return
    wrong, n = [], 0
    for chunk in chunks:
        for t in threads:
            n += 1
            x = work.logits(model, ids, "--chunk", str(chunk or len(ids)), "--threads", str(t), *more, mode=mode)
            where = "chunk %s, %d threads: " % (chunk or "all", t)
            if isinstance(x, Result):
                wrong.append(where + x.describe())
            elif x.tobytes() != base.tobytes():
                wrong.append(where + first_difference(x, base))
    tap.ok(not wrong, "%s %s: %d of %d combinations of chunk and threads equal over %d tokens"
           % (name, mode, n - len(wrong), n, len(ids)), "\n".join(wrong))
    last_row(tap, work, name, model, ids, mode, more, base)


def last_row(tap, work, name, model, ids, mode, more, base):
    last = work.logits(model, ids, "--last", "--chunk", "64", "--threads", "2", *more, mode=mode)
    bad = isinstance(last, Result)
    tap.ok(not bad and last[-1].tobytes() == base[-1].tobytes(), "%s %s: the last row alone is the last of all rows"
           % (name, mode), last.describe() if bad else first_difference(last[-1:], base[-1:]) if not bad and
           last[-1].tobytes() != base[-1].tobytes() else "")


def decode(tap, work, name, mode):
    """Tokens that greedy decoding picks one by one are the best ones of a prefill of the same tokens."""
    model, n = os.path.join(TINY, name + ".gguf"), 40
    got, r = run_json("run", model, "-p", "The keeper of the roof", "--raw", "--temp", "0", "--ignore-eos", "-n", str(n),
                      "--mode", mode)
    prompt = run("tokenize", model, "-p", "The keeper of the roof")
    if got is None or prompt.code != 0:
        tap.ok(False, "%s %s: decode" % (name, mode), r.describe())
        return
    ids = [int(x) for x in prompt.out.split()]
    x = work.logits(model, ids + got["tokens"][:-1], mode=mode)
    best = [] if isinstance(x, Result) else x[len(ids) - 1:].argmax(-1).tolist()
    same = sum(a == b for a, b in zip(best, got["tokens"]))
    tap.ok(same == n == len(got["tokens"]), "%s %s: %d of %d decoded tokens are the best of a prefill"
           % (name, mode, same, n), "decoded %s, prefill says %s" % (got["tokens"], best))


def main():
    tap = Tap()
    with Work() as work:
        for name in tm.KEPT:
            vocab = tm.RECIPES[name]["n_vocab"]
            for mode in ("exact", "auto"):
                invariance(tap, work, name, os.path.join(TINY, name + ".gguf"), tiny_ids(200, vocab), mode)
                decode(tap, work, name, mode)
        mixed = os.path.join(TINY, "llama-mixed.gguf")
        for mode in ("exact", "auto"):
            invariance(tap, work, "block types", mixed, tiny_ids(200, 296), mode, (1, 7, 64, None), (1, 3))
        for kv in ("f16", "bf16"):
            invariance(tap, work, "llama --kv " + kv, os.path.join(TINY, "llama.gguf"), tiny_ids(200, 296), "exact",
                       (1, 7, 100), (1, 3), ("--kv", kv))
        model = real_model("smollm2")
        if not model:
            tap.skip("SmolLM2", "the model is not here and cannot be fetched: put smollm2.gguf into TEGULA_MODELS")
        else:
            ids = [1 + x % 49000 for x in tiny_ids(300, 1 << 16)]
            invariance(tap, work, "SmolLM2", model, ids, "exact", (7, 64, None), (1, 3))
            invariance(tap, work, "SmolLM2", model, ids, "auto", (100, None), (1, 2))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
