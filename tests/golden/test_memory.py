#!/usr/bin/env python3
"""test_memory: memory is weights + KV + a scratch that knows nothing of the context.

`run --json` at contexts of 512, 8K and 32K with the same prompt: scratch_bytes is the same, weights_bytes is the same,
kv_bytes does not follow the context that is merely allowed, and the process's peak stays below 1.1 times the weights in
the file + kv + 64 MiB, with packed weights in memory, just written to a cache and mapped from it. A long prompt then
makes kv_bytes grow in proportion to its tokens. SmolLM2, Gemma3 and 1b_q4_k.gguf where present; a tiny model always.
"""
import os
import sys

from common import TINY, Tap, Work, real_model, run_json

MIB = 1 << 20
ROOM = 64 * MIB
CONTEXTS = (512, 8192, 32768)


def measure(model, prompt, ctx, *more):
    return run_json("run", model, "-f", prompt, "--raw", "--temp", "0", "--ignore-eos", "-n", "4", "--ctx", str(ctx), *more)


def file_weights(model):
    got, _ = run_json("inspect", model, "--weights")
    return sum(w["bytes"] for w in got["weights"]) if got else 0


def peak(tap, where, model, m):
    """The bound of the goal: whatever is packed, decoded or mapped, the weights are in memory once."""
    weights, rss = file_weights(model), m["peak_rss_bytes"]
    tap.ok(0 < rss <= 1.1 * weights + m["kv_bytes"] + ROOM and weights > 0,
           "%s: peak %.1f MiB, weights in the file %.1f, kv %.1f" % (where, rss / MIB, weights / MIB, m["kv_bytes"] / MIB))


def memory(tap, name, model, prompt, contexts, mode, *more):
    seen = []
    for ctx in contexts:
        got, r = measure(model, prompt, ctx, "--mode", mode, *more)
        if got is None:
            tap.ok(False, "%s %s: run at context %d" % (name, mode, ctx), r.describe())
            return
        seen.append(got["memory"])
    scratch, weights, kv = ([m[k] for m in seen] for k in ("scratch_bytes", "weights_bytes", "kv_bytes"))
    where = "%s %s at contexts %s" % (name, mode, ", ".join(map(str, contexts)))
    tap.ok(len(set(scratch)) == 1 and scratch[0] > 0, "%s: scratch %.2f MiB each" % (where, scratch[0] / MIB), scratch)
    tap.ok(len(set(weights)) == 1 and weights[0] > 0, "%s: weights %.2f MiB each" % (where, weights[0] / MIB), weights)
    tap.ok(max(kv) <= 2 * min(kv) and min(kv) > 0, "%s: kv %.2f to %.2f MiB for the same tokens"
           % (where, min(kv) / MIB, max(kv) / MIB), kv)
    for ctx, m in zip(contexts, seen):
        peak(tap, "%s %s at context %d" % (name, mode, ctx), model, m)


def growth(tap, work, name, model, mode, lengths):
    """KV bytes per token, once with few and once with many tokens in the same context."""
    seen = []
    for n in lengths:
        path = work.file("long.txt")
        with open(path, "w") as f:
            f.write("tile " * n)
        got, r = measure(model, path, max(lengths) * 6 + 64, "--mode", mode)
        if got is None:
            tap.ok(False, "%s %s: %d words" % (name, mode, n), r.describe())
            return
        seen.append((got["prompt_tokens"], got["memory"]))
    (t0, m0), (t1, m1) = seen
    a, b = m0["kv_bytes"] / (-(-t0 // 64) * 64), m1["kv_bytes"] / (-(-t1 // 64) * 64)
    tap.ok(m1["kv_bytes"] > m0["kv_bytes"] and b <= 1.5 * a, "%s %s: kv %.0f bytes a token at %d tokens, %.0f at %d"
           % (name, mode, a, t0, b, t1))
    peak(tap, "%s %s: %d tokens" % (name, mode, t1), model, m1)
    tap.ok(m0["scratch_bytes"] == m1["scratch_bytes"], "%s %s: scratch is that of the chunk, not of the prompt"
           % (name, mode), (m0["scratch_bytes"], m1["scratch_bytes"]))


def main():
    tap = Tap()
    with Work() as work:
        prompt = work.file("prompt.txt")
        with open(prompt, "w") as f:
            f.write("The keeper counts the tiles of the roof. " * 6)
        tiny = os.path.join(TINY, "llama.gguf")
        memory(tap, "tiny llama", tiny, prompt, (512, 1024, 8192), "exact")
        model = real_model("smollm2")
        if not model:
            tap.skip("SmolLM2", "the model is not here and cannot be fetched: put smollm2.gguf into TEGULA_MODELS")
        else:
            for mode in ("exact", "auto"):
                memory(tap, "SmolLM2", model, prompt, CONTEXTS, mode)
            for start in ("written", "mapped"):
                memory(tap, "SmolLM2, cache " + start, model, prompt, (512,), "auto", "--pack-cache", work.file("cache"))
            growth(tap, work, "SmolLM2", model, "auto", (40, 700))
        for name in ("gemma3", "1b_q4_k"):
            model = real_model(name, fetch=False)
            if model:
                memory(tap, name, model, prompt, (512, 32768), "auto")
            else:
                tap.skip(name, "the model is not here: put %s.gguf into TEGULA_MODELS" % name)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
