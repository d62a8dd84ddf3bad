#!/usr/bin/env python3
"""test_fast: fast mode against exact mode: a fast wrong answer counts as failure.

Every row of logits of the two long golden texts (../shared/data/goldens beside the checkout; SmolLM2 and Gemma3 where
present), in both modes: perplexity within 0.5 %, mean Kullback-Leibler divergence of the next-token distributions under
2e-3, the same best token in at least 98.5 % of the rows. And, on a piece of text and on the tiny models, the same bits
for another chunk size and number of threads. Texts are cut to MOST tokens, so that exact mode stays within a test's time;
not to fewer, since what rounding does to the perplexity of 400 tokens varies by 0.25 % from one way of rounding to another.

  test_fast.py [MODEL …]      smollm2 gemma3 tiny
"""
import json
import os
import sys

from common import GOLDENS, TINY, Result, Tap, Work, np, real_model

MOST = {"smollm2": 1500, "gemma3": 1500}  # Gemma's rows are a megabyte each
WITH_I16 = {"smollm2": 1500, "gemma3": 400}
PERPLEXITY, KL, TOP1 = 0.005, 2e-3, 0.985


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def compare(exact, fast, ids):
    """(perplexities, mean KL, share of equal best tokens)"""
    kl, same, nll = 0.0, 0, [0.0, 0.0]
    for i in range(0, len(ids), 64):
        a, b = log_softmax(exact[i:i + 64]), log_softmax(fast[i:i + 64])
        kl += float((np.exp(a) * (a - b)).sum())
        same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        for j in range(min(len(a), len(ids) - 1 - i)):
            nll[0] -= a[j, ids[i + j + 1]]
            nll[1] -= b[j, ids[i + j + 1]]
    n = len(ids)
    return [float(np.exp(x / (n - 1))) for x in nll], kl / n, same / n


def judge(tap, label, exact, fast, ids):
    if isinstance(exact, Result) or isinstance(fast, Result):
        tap.ok(False, label, (exact if isinstance(exact, Result) else fast).describe())
        return
    perplexity, kl, same = compare(exact, fast, ids)
    change = perplexity[1] / perplexity[0] - 1
    tap.ok(abs(change) <= PERPLEXITY, "%s: perplexity %.4f, exact %.4f (%+.3f %%)"
           % (label, perplexity[1], perplexity[0], 100 * change))
    tap.ok(kl < KL, "%s: mean KL %.2e" % (label, kl))
    tap.ok(same >= TOP1, "%s: same best token in %.2f %%" % (label, 100 * same))


def quality(tap, work, name, model):
    with open(os.path.join(GOLDENS, name, "prompts.json"), encoding="utf-8") as f:
        prompts = json.load(f)["prompts"]
    for prompt in sorted(prompts, key=lambda p: len(p["ids"]))[-2:]:
        ids = prompt["ids"][:MOST[name]]
        exact = work.logits(model, ids, mode="exact")
        judge(tap, "%s, %d tokens" % (name, len(ids)), exact, work.logits(model, ids, mode="fast"), ids)
        for n in sorted({WITH_I16[name], len(ids)}):  # 16-bit values hold the bounds on fewer tokens too
            judge(tap, "%s, %d tokens, i16" % (name, n), exact if isinstance(exact, Result) else exact[:n],
                  work.logits(model, ids[:n], "--kv", "i16", mode="fast"), ids[:n])


def invariance(tap, work, name, model, ids):
    whole = work.logits(model, ids, mode="fast")
    for options in (("--chunk", "7"), ("--chunk", "64", "--threads", "1"), ("--chunk", "1", "--threads", "3")):
        other = work.logits(model, ids, *options, mode="fast")
        bad = next((x for x in (whole, other) if isinstance(x, Result)), None)
        tap.ok(bad is None and np.array_equal(whole, other), "%s: same bits with %s" % (name, " ".join(options)),
               bad.describe() if bad else "logits differ")


def rounded(tap, work, name, model, ids):
    """A directory of float weights, which fast mode rounds to 8 bits: near to exact mode, and not the same."""
    invariance(tap, work, name, model, ids)
    exact, auto, fast = (work.logits(model, ids, mode=mode) for mode in ("exact", "auto", "fast"))
    bad = next((x for x in (exact, auto, fast) if isinstance(x, Result)), None)
    if bad:
        tap.ok(False, "%s: float weights in fast mode" % name, bad.describe())
        return
    kl = compare(exact, fast, ids)[1]
    tap.ok(np.array_equal(exact, auto), "%s: float weights are exact unless fast mode is asked for" % name)
    tap.ok(0 < kl < 1e-3, "%s: float weights in fast mode: mean KL %.2e" % (name, kl))


def main():
    wanted = sys.argv[1:] or ["tiny", "smollm2", "gemma3"]
    tap = Tap()
    with Work() as work:
        if "tiny" in wanted:
            for file in sorted(os.listdir(TINY)):
                if file.endswith(".gguf"):
                    invariance(tap, work, file, os.path.join(TINY, file), list(range(3, 40)))
            for name in ("llama", "qwen3", "gemma3"):  # float weights: fast only where it is asked for
                rounded(tap, work, name, os.path.join(TINY, name), list(range(3, 40)))
        for name in ("smollm2", "gemma3"):
            model = real_model(name) if name in wanted else None
            if name not in wanted:
                continue
            if not model or not os.path.exists(os.path.join(GOLDENS, name)):
                tap.skip(name, "the model or its golden values are not here")
                continue
            with open(os.path.join(GOLDENS, name, "prompts.json"), encoding="utf-8") as f:
                longest = max(json.load(f)["prompts"], key=lambda p: len(p["ids"]))["ids"]
            invariance(tap, work, name, model, longest[:70])
            quality(tap, work, name, model)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
