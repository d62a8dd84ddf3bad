#!/usr/bin/env python3
"""test_converted: SmolLM2 as packages that keep the GGUF's own blocks: the 64 greedy tokens that other software computed.

`tegula convert --weights keep` re-encodes Q4_1 without loss but for offsets that are rounded to fp16, so a package of
either profile continues the golden prompts (../shared/data/goldens beside the checkout) as its source does; a step may
differ only where the reference's two best are closer than 0.01. Quick by default: three short prompts, one profile.

  test_converted.py [all] [FILE.gguf …]

`all` takes every prompt, those of 1,500 and 3,000 tokens too, and both profiles. Each FILE (SmolLM2 in Q8_0, Q4_0, … encodings) is
converted too, and its package compared with the file's own tokens by this program.
"""
import os
import sys

from common import GOLDENS, Tap, Work, real_model, run
from test_goldens import Golden, part_greedy, prompt_file, run_json

SHORT = 200  # tokens


class Converted(Golden):
    def __init__(self, tap, work, name, package, label):
        super().__init__(tap, work, name, package)
        self.label = label

    def ok(self, good, text, detail=""):
        return self.tap.ok(good, "%s: %s" % (self.label, text), detail)


def convert(tap, work, source, profile):
    package = work.file("%s.mlpackage" % profile)
    done = run("convert", source, "-o", package, "--force", "--weights", "keep", "--profile", profile)
    tap.ok(done.code == 0, "%s: convert --profile %s" % (os.path.basename(source), profile), done.describe())
    return package if done.code == 0 else None


def tokens(g, model, prompt):
    options = ("--special",) if prompt["parse_special"] else ()
    got, r = run_json("run", model, "-f", prompt_file(g, prompt), "--raw", "--mode", "exact", "--temp", "0", "--ignore-eos",
                      "-n", "64", *options)
    return got["tokens"] if got else r.describe()


def against_source(g, source):
    for prompt in g.prompts:
        want, got = tokens(g, source, prompt), tokens(g, g.model, prompt)
        same = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
        g.ok(want == got and len(want) == 64, "%s: %d of 64 equal to the source's" % (prompt["name"], same))


def judge(tap, work, source, is_reference, everything):
    for profile in ("portable", "ane") if everything else ("portable",):
        package = convert(tap, work, source, profile)
        if not package:
            continue
        g = Converted(tap, work, "smollm2", package, "%s %s" % (os.path.basename(source), profile))
        if not everything:
            g.prompts = [p for p in g.prompts if len(p["ids"]) <= SHORT][:3]
        if is_reference:
            part_greedy(g)
        else:
            against_source(g, source)


def main(words):
    tap, everything = Tap(), "all" in words
    model = real_model("smollm2")
    with Work() as work:
        if not os.path.isdir(os.path.join(GOLDENS, "smollm2")):
            tap.skip("packages", "no reference values at %s" % GOLDENS)
        elif not model:
            tap.skip("packages", "the model is not here and cannot be fetched: put smollm2.gguf into TEGULA_MODELS")
        else:
            judge(tap, work, model, True, everything)
            for path in (w for w in words if w != "all"):
                judge(tap, work, path, False, everything)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
