#!/usr/bin/env python3
"""test_convert_memory: what `convert` holds at once is its largest tensor for each thread and a budget, not the model.

The peak of the process (file pages that it maps included) stays below threads times the largest matrix as floats plus
256 MiB, by the report's own shapes; and where scales belong to rows, below 238 MiB for SmolLM2: a tenth of what
coremltools takes to make the same package (2,379 MiB). A tiny model always; SmolLM2 and others where present.
"""
import json
import math
import os
import subprocess
import sys

from common import TINY, Tap, Work, program, real_model

MIB = 1 << 20
THREADS = 2
TENTH = 238 * MIB


def convert(model, out, rule):
    """The report and the peak in bytes; None where it failed."""
    p = subprocess.Popen([program(), "convert", model, "-o", out, "--force", "--fit", "--ctx", "256", "--chunk", "64",
                          "--threads", str(THREADS), "--weights", rule, "--json"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    p.stdout.close()
    return (json.loads(text), usage.ru_maxrss * 1024) if p.returncode == 0 else (None, 0)


def check(tap, work, name, model, rule, limit=None):
    report, peak = convert(model, work.file("out.mlpackage"), rule)
    if report is None:
        tap.ok(False, "%s %s: convert" % (name, rule))
        return
    largest = max(4 * math.prod(w["shape"]) for w in report["weights"])
    bound = limit or THREADS * largest + 256 * MIB
    tap.ok(0 < peak <= bound, "%s %s: peak %.0f MiB, at most %.0f (largest matrix %.0f, source %.0f)"
           % (name, rule, peak / MIB, bound / MIB, largest / MIB, os.path.getsize(model) / MIB))


def main():
    tap = Tap()
    with Work() as work:
        check(tap, work, "tiny llama", os.path.join(TINY, "llama.gguf"), "int4")
        model = real_model("smollm2")
        if model:
            for rule, limit in (("int8", TENTH), ("int4", TENTH), ("keep", None)):
                check(tap, work, "SmolLM2", model, rule, limit)
        else:
            tap.skip("SmolLM2", "the model is not here and cannot be fetched: put smollm2.gguf into TEGULA_MODELS")
        for name in ("gemma3", "1b_q4_k"):
            model = real_model(name, fetch=False)
            if model:
                check(tap, work, name, model, "keep")
            else:
                tap.skip(name, "the model is not here: put %s.gguf into TEGULA_MODELS" % name)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
