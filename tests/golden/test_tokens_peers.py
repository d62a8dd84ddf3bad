#!/usr/bin/env python3
"""test_tokens_peers: the ids of twelve published vocabularies against those that llama.cpp keeps beside them.

The source package of llama-cpp-python carries llama.cpp's models/ggml-vocab-NAME.gguf with NAME.gguf.inp (texts between
lines "__ggml_vocab_test__") and NAME.gguf.out (a line of ids for each text; no BOS, special tokens as text). The package
is fetched once with pip into TEGULA_CACHE (default ~/.cache/tegula) and only these files are kept. Without a registry
everything is skipped. Each vocabulary is two results: the ids, and the texts that come back from them.
"""
import concurrent.futures
import json
import os
import sys
import tarfile

from common import Tap, peers_sdist, run

FOLDER = "/vendor/llama.cpp/models/"
SEPARATOR = "\n__ggml_vocab_test__\n"
VOCABULARIES = ("gpt-2 llama-bpe llama-spm phi-3 qwen2 deepseek-coder deepseek-llm falcon mpt refact starcoder "
                "command-r").split()
SPM = ("llama-spm", "phi-3")


def cache():
    return os.path.join(os.environ.get("TEGULA_CACHE") or os.path.expanduser("~/.cache/tegula"), "peer-vocabularies")


def names():
    return ["ggml-vocab-%s.gguf%s" % (v, end) for v in VOCABULARIES for end in ("", ".inp", ".out")]


def fetch(folder):
    """None, or why there are no files."""
    if all(os.path.exists(os.path.join(folder, n)) for n in names()):
        return None
    os.makedirs(folder, exist_ok=True)
    sdist, reason = peers_sdist()
    if not sdist:
        return reason
    with tarfile.open(sdist) as tar:
        for member in tar:
            name = os.path.basename(member.name)
            if member.isfile() and FOLDER in member.name and name in names():
                with open(os.path.join(folder, name + ".part"), "wb") as out:
                    out.write(tar.extractfile(member).read())
                os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))
    missing = [n for n in names() if not os.path.exists(os.path.join(folder, n))]
    return "the package lacks %s" % missing[0] if missing else None


def pairs(path):
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split(SEPARATOR)
    with open(path + ".out", encoding="utf-8") as f:
        ids = [[int(i) for i in line.split()] for line in f.read().split("\n")]
    return list(zip(texts, ids))


def encode(path, text):
    r = run("tokenize", path, "--bos", "off", "--json", stdin=text.encode())
    try:
        return json.loads(r.out)["ids"] if r.code == 0 else r.describe()
    except (ValueError, KeyError):
        return r.describe()


def decode(path, ids):
    r = run("tokenize", path, "--decode", stdin=" ".join(map(str, ids)).encode())
    return r.out if r.code == 0 else r.describe().encode()


def check(tap, name, path):
    rows = pairs(path)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda row: encode(path, row[0]), rows))
    wrong = ["%r: expected %s, found %s" % (text[:60], want[:20], got[:20] if isinstance(got, list) else got)
             for (text, want), got in zip(rows, found) if got != want]
    tap.ok(rows and not wrong, "%s: ids of %d texts" % (name, len(rows)), "\n".join(wrong[:5]))
    if name in SPM:  # each text begins with a space that is only an id, so one by one
        back = [decode(path, ids) for _, ids in rows]
        lost = ["%r: found %r" % (text[:60], got[:80]) for (text, _), got in zip(rows, back) if got != text.encode()]
    else:
        whole = "".join(text for text, _ in rows).encode()
        got = decode(path, [i for _, ids in rows for i in ids])
        lost = [] if got == whole else ["expected %d bytes, found %d: %r" % (len(whole), len(got), got[:200])]
    tap.ok(rows and not lost, "%s: %d texts come back" % (name, len(rows)), "\n".join(lost[:5]))


def main():
    tap = Tap()
    folder = cache()
    reason = fetch(folder)
    for name in VOCABULARIES:
        if reason:
            tap.skip(name, reason)
        else:
            check(tap, name, os.path.join(folder, "ggml-vocab-%s.gguf" % name))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
