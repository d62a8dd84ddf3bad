#!/usr/bin/env python3
"""The command line contract of `tegula`, checked from outside. Prints TAP; exit code 1 when a test failed.

Environment: TEGULA is the program (default build/tegula), TEGULA_TEST_MODEL a small model (default: the first .gguf
file of tests/data/tiny). Tests that need a model are skipped with a line that says so where there is none.

Invariant: every test states an exit code and what stands on standard output and standard error; error lines are
checked for their form as well: one line, "tegula: WHAT: …", no more. Only the standard library is used."""

import array
import json
import os
import pathlib
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(os.environ.get("TEGULA", str(ROOT / "build" / "tegula")))
LONG = 120  # seconds after which a run counts as hung


def find_model():
    given = os.environ.get("TEGULA_TEST_MODEL")
    if given:
        return os.path.abspath(given)
    files = sorted((ROOT / "tests" / "data" / "tiny").glob("*.gguf"))
    return str(files[0]) if files else None


MODEL = find_model()
TESTS = []


class Skip(Exception):
    pass


def test(needs_model=False):
    """Registers a test function; its docstring is its name."""

    def register(function):
        TESTS.append((function, needs_model))
        return function

    return register


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.decode("utf-8", "replace")

    @property
    def errors(self):
        return self.err.decode("utf-8", "replace")


def run(*args, stdin=b"", stdout=subprocess.PIPE):
    process = subprocess.run([PROGRAM, *map(str, args)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                             timeout=LONG)
    return Result(process.returncode, process.stdout or b"", process.stderr)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def expect_equal(found, wanted, what):
    expect(found == wanted, f"{what}: expected {wanted!r}, found {found!r}")


def expect_error(result, code, *parts):
    """Exit code, nothing on standard output, one error line that holds every part."""
    expect_equal(result.code, code, f"exit code ({result.errors.strip()})")
    expect_equal(result.out, b"", "standard output")
    lines = result.errors.splitlines()
    expect_equal(len(lines), 1, f"error lines {lines}")
    expect(lines[0].startswith("tegula: "), f"error line {lines[0]!r}")
    expect("\033" not in lines[0], "no escape sequences outside a terminal")
    for part in parts:
        expect(part in lines[0], f"error line {lines[0]!r} lacks {part!r}")


def expect_done(result):
    expect_equal(result.code, 0, f"exit code ({result.errors.strip()})")


def read_npy(path):
    """(shape, values) of a float32 .npy file."""
    data = pathlib.Path(path).read_bytes()
    expect_equal(data[:8], b"\x93NUMPY\x01\x00", "npy magic")
    n = struct.unpack("<H", data[8:10])[0]
    expect_equal((10 + n) % 64, 0, "npy header alignment")
    header = data[10:10 + n].decode("ascii")
    expect(header.endswith("\n") and "'descr': '<f4'" in header and "'fortran_order': False" in header, header)
    shape = tuple(map(int, re.search(r"\((\d+), (\d+)\)", header).groups()))
    values = array.array("f")
    values.frombytes(data[10 + n:])
    expect_equal(len(values), shape[0] * shape[1], "npy values")
    return shape, values


COMMANDS = ["run", "tokenize", "template", "logits", "perplexity", "inspect", "bench"]
ABSENT = ["tune", "predict", "convert", "lint", "compare", "session", "serve"]

# ---- help and version ----


@test()
def _():
    """--version prints the name and the version"""
    result = run("--version")
    expect_done(result)
    expect(re.fullmatch(r"tegula \d+\.\d+\.\d+\n", result.text), result.text)


@test()
def _():
    """help lists the commands that exist, and only those"""
    for args in (["help"], ["--help"], ["-h"]):
        result = run(*args)
        expect_done(result)
        expect_equal(result.err, b"", "standard error")
        listed = re.findall(r"^  (\w+)  ", result.text, re.M)
        expect_equal(listed, COMMANDS, "commands")


@test()
def _():
    """no command at all: help on standard error, exit 2"""
    result = run()
    expect_equal(result.code, 2, "exit code")
    expect_equal(result.out, b"", "standard output")
    expect("usage: tegula" in result.errors, result.errors)


@test()
def _():
    """help COMMAND, COMMAND --help and COMMAND -h print the same, exit 0"""
    for command in COMMANDS:
        texts = [run(*args) for args in (["help", command], [command, "--help"], [command, "-h"],
                                         [command, "file", "--help"])]
        for result in texts:
            expect_done(result)
            expect_equal(result.out, texts[0].out, command)
            expect_equal(result.err, b"", "standard error")
        expect(texts[0].text.startswith(f"usage: tegula {command} "), command)
        expect(max(map(len, texts[0].text.splitlines())) <= 112, f"{command}: line too long")


@test()
def _():
    """help shows the defaults"""
    text = re.sub(r"\s+", " ", run("run", "--help").text)
    for part in ("(default: 256)", "(default: 0.8)", "(default: 40)", "(default: 0.95)", "(default: 0.05)",
                 "(default: 64)", "f32|f16|bf16", "exact|auto", "on|off|auto"):
        expect(part in text, part)
    expect("q8" not in text and "--session" not in text, "what is missing is not listed")


@test()
def _():
    """help of an unknown command, or of two"""
    expect_error(run("help", "rnu"), 2, "rnu", "did you mean 'run'?")
    expect_error(run("help", "run", "bench"), 2, "bench")
    for name in ABSENT:
        expect_error(run("help", name), 2, name, "this version does not have it")


# ---- commands and options ----


@test()
def _():
    """commands that this version lacks say so in one sentence, exit 2"""
    for name in ABSENT:
        expect_error(run(name, "x", "--anything"), 2, name, "this version does not have it")


@test()
def _():
    """an unknown command names the nearest one"""
    expect_error(run("tokenise"), 2, "did you mean 'tokenize'?")
    expect_error(run("bnech"), 2, "did you mean 'bench'?")
    expect_error(run("zzzzzz"), 2, "tegula help")


@test()
def _():
    """an unknown option names the nearest one"""
    for given, meant in (("--chnk", "chunk"), ("--thread", "threads"), ("--temperature", "temp"),
                         ("--ignoreeos", "ignore-eos"), ("--hepl", "help"), ("--frequency", "frequency-penalty"),
                         ("--topk=3", "top-k")):
        expect_error(run("run", "m", given), 2, given.split("=")[0] + ":", f"did you mean --{meant}?")
    expect_error(run("run", "m", "--qqqqqq"), 2, "--qqqqqq", "tegula run --help")
    expect_error(run("run", "m", "-z"), 2, "-z")
    expect_error(run("run", "m", "--" + "a" * 5000), 2, "unknown name")


@test()
def _():
    """operands: too few, too many, after --"""
    for command in COMMANDS:
        expect_error(run(command), 2, "expected", "found nothing")
    expect_error(run("run", "m", "n", "-p", "x"), 2, "'n'")
    expect_error(run("run", "m", "-p", "x", "--", "-n"), 2, "'-n'")
    expect_error(run("tokenize", "m", "12", "-p", "x"), 2, "'12'")


@test()
def _():
    """an option without its value"""
    for name in ("--chunk", "-n", "-p", "--prompt", "--stop", "--kv"):
        expect_error(run("run", "m", name), 2, "expected a value", "end of the command line")


@test()
def _():
    """a flag with a value"""
    expect_error(run("run", "m", "--json=1"), 2, "--json", "expected no value", "'1'")


@test()
def _():
    """an option with a value given twice; flags may repeat"""
    expect_error(run("run", "m", "-p", "a", "--prompt", "b"), 2, "expected once, found twice")
    expect_error(run("run", "m", "--chunk", "4", "--chunk=4"), 2, "--chunk", "twice")
    expect_error(run("run", "nosuchmodel", "-p", "a", "--json", "--json"), 1, "nosuchmodel")


@test()
def _():
    """whole numbers: ranges, garbage, overflow, suffixes"""
    cases = [("--chunk", "0", "1 to 65536"), ("--chunk", "65537", "65536"), ("--chunk", "64k1", "64k1"),
             ("--chunk", "65k", "65k"), ("--threads", "0", "1 to 256"), ("--threads", "10000", "1 to 256"),
             ("--threads", "-1", "'-1'"), ("-n", "x", "'x'"), ("-n", "", "''"), ("-n", "1.5", "'1.5'"),
             ("-n", "99999999999999999999", "whole number"), ("-n", "9999999999G", "whole number"),
             ("--ctx", "0", "from 1"), ("--seed", "-1", "'-1'"), ("--seed", "--json", "'--json'"),
             ("--top-k", "-1", "'-1'"), ("-n", "-2", "'-2'"), ("--repeat-last-n", "5 ", "'5 '")]
    for name, value, part in cases:
        expect_error(run("run", "m", "-p", "x", name, value), 2, part)
        if name.startswith("--"):
            expect_error(run("run", "m", "-p", "x", f"{name}={value}"), 2, part)
    # Good ones get as far as the missing model.
    for name, value in (("--chunk", "64k"), ("--chunk", "64K"), ("--ctx", "1M"), ("--seed", "7G"), ("-n", "0"),
                        ("-n", "-1"), ("--chunk", "1"), ("--threads", "256")):
        expect_error(run("run", "nosuchmodel", "-p", "x", name, value), 1, "nosuchmodel")


@test()
def _():
    """real numbers: ranges and garbage"""
    for name, value in (("--temp", "-1"), ("--temp", "hot"), ("--temp", "nan"), ("--temp", "inf"), ("--temp", "1e999"),
                        ("--top-p", "1.1"), ("--min-p", "-0.1"), ("--repeat-penalty", "0"), ("--temp", "0x"),
                        ("--presence-penalty", "101"), ("--frequency-penalty", "")):
        expect_error(run("run", "m", "-p", "x", name, value), 2, name, f"'{value}'", "a number from")


@test()
def _():
    """choices: unknown ones, and those that this version lacks"""
    expect_error(run("run", "m", "-p", "x", "--kv", "f64"), 2, "f32 or f16 or bf16", "'f64'")
    for value in ("q8", "q4"):
        expect_error(run("run", "m", "-p", "x", "--kv", value), 2, value, "not in this version", "f32, f16 or bf16")
        expect_error(run("bench", "m", "--kv", "f32," + value), 2, value, "not in this version", "f32, f16 or bf16")
    for value in ("fast", "emulate-fp16"):
        expect_error(run("run", "m", "-p", "x", "--mode", value), 2, value, "not in this version", "exact or auto")
    expect_error(run("bench", "m", "--format", "html"), 2, "html", "not in this version", "md, csv or json")
    expect_error(run("bench", "m", "--format", "xml"), 2, "'xml'")
    expect_error(run("run", "m", "-p", "x", "--progress", "maybe"), 2, "'maybe'")
    expect_error(run("tokenize", "m", "-p", "x", "--bos", "1"), 2, "auto or on or off")


@test()
def _():
    """options that this version lacks"""
    expect_error(run("run", "m", "-p", "x", "--session", "s"), 2, "--session", "not in this version")
    expect_error(run("inspect", "m", "--states"), 2, "--states", "not in this version")
    expect_error(run("inspect", "m", "--functions"), 2, "--functions", "not in this version")


@test()
def _():
    """several sources of a prompt, or none"""
    expect_error(run("run", "m", "-p", "a", "-f", "b"), 2, "-p and -f")
    expect_error(run("logits", "m", "--json", "--ids", "1", "-p", "b"), 2, "--ids")
    expect_error(run("perplexity", "m", "--ids", "1", "-f", "b"), 2, "--ids")
    expect_error(run("tokenize", "m", "--decode", "1", "-p", "2"), 2, "sources")
    expect_error(run("run", "m", "--chat", "-f", "-"), 2, "standard input")


@test()
def _():
    """options that contradict each other"""
    expect_error(run("run", "m", "-p", "x", "--raw", "--chat"), 2, "--raw", "--chat")
    expect_error(run("run", "m", "-p", "x", "--raw", "--system", "s"), 2, "--raw", "--system")
    expect_error(run("tokenize", "m", "--decode", "--special"), 2, "--decode", "--special")
    expect_error(run("tokenize", "m", "--decode", "--bos", "on"), 2, "--decode", "--bos")
    expect_error(run("logits", "m", "-p", "x"), 2, "-o OUT.npy")
    expect_error(run("logits", "m", "-p", "x", "-o", "x", "--top", "3"), 2, "--top", "--json")
    expect_error(run("logits", "m", "-p", "x", "-o", "-", "--json"), 2, "-o -")
    expect_error(run("perplexity", "m", "-p", "x", "--ctx", "8", "--stride", "8"), 2, "--stride")
    expect_error(run("perplexity", "m", "-p", "x", "--ctx", "1"), 2, "--ctx")
    expect_error(run("bench", "m", "--json", "--format", "csv"), 2, "--json", "--format")


@test()
def _():
    """--logit-bias: garbage"""
    for value in ("3", "=1", "x=1", "3=", "3=x", "-1=2", "3=inf", "3=nan", "99999999999=1", "3=1x"):
        expect_error(run("run", "m", "-p", "x", "--logit-bias", value), 2, "--logit-bias", f"'{value}'")


@test()
def _():
    """bench: empty, too many and bad list items"""
    expect_error(run("bench", "m", "--pp", "0", "--tg", "0"), 2, "nothing to measure")
    expect_error(run("bench", "m", "--chunk", "64,,128"), 2, "''")
    expect_error(run("bench", "m", "--chunk", "64,0"), 2, "'0'")
    expect_error(run("bench", "m", "--threads", "1,257"), 2, "'257'")
    expect_error(run("bench", "m", "--chunk", ",".join(map(str, range(1, 66)))), 2, "too many combinations")
    expect_error(run("bench", "m", "--pp", ",".join(map(str, range(1, 1030)))), 2, "too many combinations")
    expect_error(run("bench", "m", "--reps", "0"), 2, "--reps")


# ---- files ----


def everything_with(model):
    """One good command line of every command."""
    return [["run", model, "-p", "x"], ["tokenize", model, "-p", "x"], ["template", model, "-p", "[]"],
            ["logits", model, "--json", "--ids", "1"], ["perplexity", model, "-p", "abc"], ["inspect", model],
            ["bench", model, "--pp", "1", "--tg", "0", "--reps", "1"]]


@test()
def _():
    """a model that is missing: exit 1 and its name, in every command"""
    for line in everything_with("/nonexistent/model.gguf"):
        expect_error(run(*line), 1, "/nonexistent/model.gguf")


@test()
def _():
    """a directory, a FIFO, an empty file and garbage as model: exit 1, no hang"""
    with tempfile.TemporaryDirectory() as folder:
        fifo, empty, noise = (os.path.join(folder, name) for name in ("fifo", "empty.gguf", "noise.gguf"))
        os.mkfifo(fifo)
        pathlib.Path(empty).write_bytes(b"")
        pathlib.Path(noise).write_bytes(bytes(range(256)) * 16)
        for path in (folder, fifo, empty, noise, "/dev/null"):
            for line in everything_with(path):
                expect_error(run(*line), 1)


@test()
def _():
    """control characters in a name cannot forge lines or colours"""
    result = run("run", "no\nsuch\033[31mmodel", "-p", "x")
    expect_error(result, 1)


@test()
def _():
    """prompt files: missing, a directory, unreadable"""
    with tempfile.TemporaryDirectory() as folder:
        expect_error(run("run", "m", "-f", folder + "/none"), 1, folder + "/none", "prompt")
        expect_error(run("run", "m", "-f", folder), 1, "directory")
        expect_error(run("logits", "m", "--json", "--ids", folder + "/none"), 1, folder + "/none")
        expect_error(run("template", "m", "-p", "[]", "--template", folder + "/none"), 1, folder + "/none")
        expect_error(run("template", "m", "-p", "[]", "--tools", folder), 1, "directory")
        if os.geteuid() != 0:
            path = pathlib.Path(folder) / "secret"
            path.write_text("x")
            path.chmod(0)
            expect_error(run("run", "m", "-f", path), 1, "Permission denied")


@test()
def _():
    """empty prompts: one sentence, exit 1"""
    expect_error(run("run", "m", "-p", ""), 1, "empty prompt")
    expect_error(run("run", "m", stdin=b""), 1, "empty prompt")
    expect_error(run("run", "m", "-f", "/dev/null"), 1, "empty prompt")


@test()
def _():
    """ids that are no numbers"""
    for value in ("1,x", "[1,2", "[1,\"a\"]", "{\"id\":[1]}", "[1.5]"):
        expect_error(run("logits", "m", "--json", "--ids", "-", stdin=value.encode()), 1, "token ids")
    expect_error(run("logits", "m", "--json", "--ids", "3,-4"), 1, "-4")
    expect_error(run("logits", "m", "--json", "--ids", "9999999999"), 1, "9999999999")


@test()
def _():
    """help into a closed pipe or a full disk: exit 1, quiet or one sentence"""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        result = run("help", stdout=pipe)
    expect_equal((result.code, result.err), (1, b""), "closed pipe")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            expect_error(run("help", stdout=full), 1, "standard output", "No space left")


@test()
def _():
    """standard output closed: an error, not a file of another name"""
    process = subprocess.run(["/bin/sh", "-c", 'exec "$0" help >&-', PROGRAM], stderr=subprocess.PIPE, timeout=LONG)
    expect_equal(process.returncode, 1, "exit code")
    expect(process.stderr.startswith(b"tegula: cannot write: standard output"), process.stderr)


# ---- with a model ----


def ids_of(text, *args):
    result = run("tokenize", MODEL, *args, stdin=text)
    expect_done(result)
    return [int(line) for line in result.text.split()]


@test(needs_model=True)
def _():
    """tokenize: -p, -f, stdin and --json agree; every byte counts"""
    text = b"Hello world\n"
    ids = ids_of(text)
    expect_equal(json.loads(run("tokenize", MODEL, "--json", stdin=text).out), {"ids": ids}, "--json")
    expect_equal([int(x) for x in run("tokenize", MODEL, "-p", text.decode()).text.split()], ids, "-p")
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        expect_equal([int(x) for x in run("tokenize", MODEL, "-f", file.name).text.split()], ids, "-f")
        expect_equal([int(x) for x in run("tokenize", "-f", file.name, "--", MODEL).text.split()], ids, "order")
    expect(ids_of(text[:-1]) != ids, "the final newline counts")
    expect_equal(ids_of(b"", "--bos", "off"), [], "no text, no ids")


@test(needs_model=True)
def _():
    """tokenize --decode gives the bytes back, from every source"""
    text = "Tegula: one two, drei."
    ids = ids_of(text.encode(), "--bos", "off")
    spaced, listed = " ".join(map(str, ids)), json.dumps(ids)
    decoded = run("tokenize", MODEL, "--decode", *ids)
    expect_done(decoded)
    for result in (run("tokenize", MODEL, "--decode", stdin=spaced.encode()),
                   run("tokenize", MODEL, "--decode", "-p", spaced.replace(" ", ",")),
                   run("tokenize", "--decode", MODEL, "-p", listed),
                   run("tokenize", MODEL, "--decode", stdin=json.dumps({"ids": ids}).encode())):
        expect_done(result)
        expect_equal(result.out, decoded.out, "decoded")
    expect(text in decoded.text, f"expected {text!r} in {decoded.text!r}")
    expect_equal(json.loads(run("tokenize", MODEL, "--decode", "--json", *ids).out), {"text": decoded.text}, "--json")


@test(needs_model=True)
def _():
    """an id outside the vocabulary is named"""
    expect_error(run("tokenize", MODEL, "--decode", "2000000000"), 1, "2000000000")
    expect_error(run("logits", MODEL, "--json", "--ids", "1,2000000000"), 1, "2000000000")
    expect_error(run("perplexity", MODEL, "--ids", "1,2000000000"), 1, "2000000000")


@test(needs_model=True)
def _():
    """run streams text and closes with prefill and decode apart"""
    result = run("run", MODEL, "-p", "Hello world", "-n", 8, "--temp", 0, "--ignore-eos")
    expect_done(result)
    lines = result.errors.splitlines()
    expect_equal(len(lines), 3, f"closing lines {lines}")
    expect(re.match(r"prefill: \d+ tokens from depth 0 in 1 chunks, [\d.]+ s, [\d.]+ tokens/s, first token [\d.]+ ms$",
                    lines[0]), lines[0])
    expect(re.match(r"decode:  7 tokens from depth \d+, [\d.]+ s, [\d.]+ tokens/s, stopped by length$", lines[1]),
           lines[1])
    expect(re.match(r"memory:  weights .+, KV .+, scratch .+, peak RSS .+$", lines[2]), lines[2])
    expect("\033" not in result.errors, "no colours in a pipe")


RUN_FIELDS = {
    "prefill": {"tokens", "reused_tokens", "chunks", "seconds", "tokens_per_second", "first_token_ms"},
    "decode": {"tokens", "seconds", "tokens_per_second"},
    "memory": {"weights_bytes", "kv_bytes", "scratch_bytes", "peak_rss_bytes"},
}


def run_json(*args, **kwargs):
    result = run("run", MODEL, "--json", *args, **kwargs)
    expect_done(result)
    expect_equal(result.err, b"", "standard error")
    document = json.loads(result.out)
    for key in ("text", "prompt_tokens", "tokens", "stop", "options"):
        expect(key in document, key)
    for group, fields in RUN_FIELDS.items():
        expect(fields <= set(document[group]), f"{group}: {sorted(document[group])}")
    expect(document["stop"] in ("eos", "length", "stop", "interrupt"), document["stop"])
    return document


@test(needs_model=True)
def _():
    """run --json: every field, and figures that add up"""
    document = run_json("-p", "Hello world", "-n", 8, "--temp", 0, "--ignore-eos", "--chunk", 1)
    expect_equal(len(document["tokens"]), 8, "tokens")
    expect_equal(document["decode"]["tokens"], 7, "decode steps")
    expect_equal(document["stop"], "length", "stop")
    expect_equal(document["prefill"]["tokens"], document["prompt_tokens"], "prefill tokens")
    expect_equal(document["prefill"]["chunks"], document["prompt_tokens"], "chunks of one token")
    expect_equal(document["prompt_tokens"], len(ids_of(b"Hello world")), "prompt tokens")
    expect_equal(document["options"]["n"], 8, "options")
    expect_equal(document["options"]["chunk"], 1, "options")


@test(needs_model=True)
def _():
    """the same seed gives the same text; chunk and threads change nothing"""
    first = run_json("-p", "Hello world", "-n", 16, "--seed", 7, "--temp", 1)
    for more in ([], ["--chunk", "1"], ["--chunk", "3", "--threads", "1"], ["--threads", "3"]):
        again = run_json("-p", "Hello world", "-n", 16, "--seed", 7, "--temp", 1, *more)
        expect_equal(again["tokens"], first["tokens"], f"tokens with {more}")
    expect_equal(first["options"]["seed"], 7, "seed")
    seeds = {run_json("-p", "x", "-n", 0)["options"]["seed"] for _ in range(3)}
    expect(len(seeds) > 1, "random seeds differ")


@test(needs_model=True)
def _():
    """-n 0 prefills only; streamed text equals the text of --json"""
    nothing = run_json("-p", "Hello world", "-n", 0)
    expect_equal((nothing["text"], nothing["tokens"], nothing["stop"]), ("", [], "length"), "nothing generated")
    args = ("-p", "Hello world", "-n", 24, "--temp", 0)
    expect_equal(run("run", MODEL, *args).text, run_json(*args)["text"], "text")
    expect_equal(run("run", MODEL, *args[2:], stdin=b"Hello world").text, run_json(*args)["text"], "stdin")


@test(needs_model=True)
def _():
    """--stop ends before the text; --logit-bias forbids a token"""
    args = ("-p", "Hello world", "-n", 24, "--temp", 0, "--ignore-eos")
    plain = run_json(*args)
    text = plain["text"]
    expect(len(text) > 2, "some text")
    wanted = text[len(text) // 2]
    stopped = run_json(*args, "--stop", wanted)
    expect_equal(stopped["stop"], "stop", "stop")
    expect_equal(stopped["text"], text[:text.index(wanted)], "text before the stop")
    first = plain["tokens"][0]
    expect(run_json(*args, "--logit-bias", f"{first}=-inf")["tokens"][0] != first, "forbidden token")
    expect_error(run("run", MODEL, "-p", "x", "--logit-bias", "2000000000=1"), 1, "2000000000")


@test(needs_model=True)
def _():
    """the context's end stops generation; a longer prompt is an error"""
    n = len(ids_of(b"Hello world"))
    document = run_json("-p", "Hello world", "-n", -1, "--ctx", n + 4, "--ignore-eos", "--temp", 0)
    expect_equal(document["stop"], "length", "stop")
    expect_equal(len(document["tokens"]), 5, "the context's tokens and one more")
    result = run("run", MODEL, "-p", "Hello world", "--ctx", max(1, n - 1))
    expect_error(result, 1)


@test(needs_model=True)
def _():
    """template prints what the model sees, without a newline added"""
    messages = b'[{"role":"user","content":"Hi"}]'
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "t.jinja"
        path.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}")
        plain = run("template", MODEL, "--template", path, stdin=messages)
        expect_done(plain)
        expect_equal(plain.out, b"<user>Hi", "text")
        prompt = run("template", MODEL, "--template", path, "--add-generation-prompt", "--json", stdin=messages)
        expect_equal(json.loads(prompt.out), {"text": "<user>Hi<assistant>"}, "--json")
        tools = pathlib.Path(folder) / "tools.json"
        tools.write_text('[{"name": "roof"}]')
        path.write_text("{{ tools[0].name }}|{{ strftime_now('%Y') }}")
        expect_equal(run("template", MODEL, "--template", path, "--tools", tools, "--now", "86400", stdin=messages).out,
                     b"roof|1970", "tools and time")


@test()
def _():
    """messages and tools that are no JSON arrays of objects"""
    for bad, part in ((b"", "byte 0"), (b"{", "messages"), (b"[1]", "item 0"), (b'{"role":"user"}', "array"),
                      (b'[{"role":"user"},{"content":"x"}]', "item 1"), (b'[{"role":1}]', '"role"'),
                      (b'[], "tools": []', "messages")):
        expect_error(run("template", "m", stdin=bad), 1, part)
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder) / "tools.json"
        for bad in ("{}", "[1]", "[", ""):
            tools.write_text(bad)
            expect_error(run("template", "m", "--tools", tools, stdin=b"[]"), 1, "tools")
        tools.write_bytes(b"[\0]")
        expect_error(run("template", "m", "--tools", tools, stdin=b"[]"), 1, "NUL")


def has_template():
    return run("template", MODEL, stdin=b'[{"role":"user","content":"Hi"}]').code == 0


@test(needs_model=True)
def _():
    """--chat: a line a turn, history kept by reusing the session"""
    if not has_template():
        raise Skip("the model has no chat template")
    document = run_json("--chat", "-n", 4, "--temp", 0, stdin=b"one two three\n\n  \nfour\n")
    roles = [message["role"] for message in document["messages"]]
    expect_equal(roles, ["user", "assistant", "user", "assistant"], "roles")
    expect_equal(document["messages"][0]["content"], "one two three", "first turn")
    expect(document["prefill"]["reused_tokens"] > 0, "the second turn reuses the first")
    expect_equal(document["prefill"]["reused_tokens"] + document["prefill"]["tokens"], document["prompt_tokens"], "sum")
    # A fresh session that gets the whole conversation says the same.
    first = run_json("--chat", "-p", "one two three", "--system", "Be brief.", "-n", 4, "--temp", 0)
    expect_equal(first["messages"][0], {"role": "system", "content": "Be brief."}, "system")
    expect_error(run("run", MODEL, "--chat", stdin=b"\n"), 1, "empty prompt")


@test(needs_model=True)
def _():
    """--system alone is one templated turn"""
    if not has_template():
        raise Skip("the model has no chat template")
    document = run_json("--system", "S", "-p", "Hi", "-n", 2, "--temp", 0)
    expect_equal([message["role"] for message in document["messages"]], ["system", "user", "assistant"], "roles")
    expect(document["options"]["templated"], "templated")


@test(needs_model=True)
def _():
    """logits: shapes, --last, --top and chunk invariance, bit for bit"""
    ids = ids_of(b"Hello world, hello tiles")
    listed = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i}.npy") for i in range(4)]
        result = run("logits", MODEL, "--ids", listed, "-o", paths[0], "--json", "--top", 3)
        expect_done(result)
        expect_done(run("logits", MODEL, "--ids", json.dumps(ids), "-o", paths[1], "--chunk", 1))
        expect_done(run("logits", MODEL, "--ids", listed, "-o", paths[2], "--last"))
        shape, values = read_npy(paths[0])
        expect_equal(shape[0], len(ids), "rows")
        expect_equal(read_npy(paths[1])[1], values, "chunk 1")
        last_shape, last = read_npy(paths[2])
        expect_equal(last_shape, (1, shape[1]), "--last")
        expect_equal(last, values[-shape[1]:], "last row")
        document = json.loads(result.out)
        order = sorted(range(shape[1]), key=lambda i: (-last[i], i))[:3]
        expect_equal([item[0] for item in document["top"]], order, "--top")
        expect(all(abs(item[1] - last[item[0]]) < 1e-4 for item in document["top"]), "top logits")
        piped = run("logits", MODEL, "--ids", listed, "-o", "-")
        expect_done(piped)
        expect_equal(piped.out, pathlib.Path(paths[0]).read_bytes(), "-o -")
        text = run("logits", MODEL, "-p", "Hello world, hello tiles", "-o", paths[3])
        expect_done(text)
        expect_equal(read_npy(paths[3])[0][0], len(ids), "rows of the text")


@test(needs_model=True)
def _():
    """logits --layers writes one file per value, rows of all chunks"""
    ids = ids_of(b"Hello world, hello tiles")
    with tempfile.TemporaryDirectory() as folder:
        contents = []
        for chunk in ("256", "2"):
            directory = os.path.join(folder, chunk)
            expect_done(run("logits", MODEL, "--ids", ",".join(map(str, ids)), "--json", "--layers", directory,
                            "--chunk", chunk))
            names = sorted(os.listdir(directory))
            expect(names and all(name.endswith(".npy") for name in names), names)
            contents.append({name: read_npy(os.path.join(directory, name)) for name in names})
        expect(any(shape[0] == len(ids) for shape, _ in contents[0].values()), "a value with all rows")
        expect_equal(sorted(contents[1]), sorted(contents[0]), "names")
        for name, (shape, values) in contents[0].items():
            if shape[0] == len(ids):
                expect_equal(contents[1][name], (shape, values), name)
        expect_error(run("logits", MODEL, "--ids", "1", "--json", "--layers", "/dev/null"), 1, "/dev/null")


@test(needs_model=True)
def _():
    """perplexity: agrees with logits; each token scored once in sliding windows"""
    import math
    text = "Hello world, hello tiles, hello roofs and houses"
    ids = ids_of(text.encode())
    result = run("perplexity", MODEL, "-p", text, "--json")
    expect_done(result)
    document = json.loads(result.out)
    expect_equal(document["tokens"], len(ids) - 1, "tokens")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "l.npy")
        expect_done(run("logits", MODEL, "--ids", ",".join(map(str, ids)), "-o", path))
        (n, width), values = read_npy(path)
    total = 0.0
    for row in range(n - 1):
        logits = values[row * width:(row + 1) * width]
        high = max(logits)
        total += high + math.log(math.fsum(math.exp(x - high) for x in logits)) - logits[ids[row + 1]]
    expect(abs(document["nll_sum"] - total) < 1e-6 * max(1, abs(total)), (document["nll_sum"], total))
    expect(abs(document["nll"] - total / (n - 1)) < 1e-6, "mean")
    expect(abs(document["perplexity"] / math.exp(total / (n - 1)) - 1) < 1e-6, "perplexity")
    for ctx, stride in ((4, 1), (5, 2), (6, 3), (len(ids) - 1, 1), (len(ids), 1)):
        if ctx > 3:
            windows = run("perplexity", MODEL, "-p", text, "--json", "--ctx", ctx, "--stride", stride)
            expect_done(windows)
            expect_equal(json.loads(windows.out)["tokens"], len(ids) - 1, f"tokens with ctx {ctx}, stride {stride}")
    line = run("perplexity", MODEL, "-p", text)
    expect(re.match(r"perplexity [\d.]+, nll -?[\d.]+ per token, \d+ tokens scored, context \d+, stride \d+\n$",
                    line.text), line.text)
    expect_error(run("perplexity", MODEL, "--ids", "1"), 1, "at least 2 tokens")


@test(needs_model=True)
def _():
    """inspect: facts, sections and --json agree"""
    plain = run("inspect", MODEL)
    expect_done(plain)
    facts = json.loads(run("inspect", MODEL, "--json").out)
    for key in ("format", "architecture", "vocab_tokens", "n_layers", "context_tokens", "n_weights", "n_metadata"):
        expect(key in facts, key)
    expect(facts["format"] in plain.text and facts["architecture"] in plain.text, plain.text)
    full = run("inspect", MODEL, "--json", "--metadata", "--weights", "--ops", "--plan")
    expect_done(full)
    document = json.loads(full.out)
    expect_equal(len(document["metadata"]), facts["n_metadata"], "metadata")
    expect_equal(len(document["weights"]), facts["n_weights"], "weights")
    expect(facts["n_weights"] > 0 and facts["n_metadata"] > 0, "there are weights and metadata")
    expect(document["ops"] and document["plan"], "ops and plan")
    for section in ("--metadata", "--weights", "--ops", "--plan"):
        result = run("inspect", section, MODEL)
        expect_done(result)
        expect(len(result.out) > 0, section)


@test(needs_model=True)
def _():
    """bench: one row per combination in every format; rates for a single one"""
    args = ["bench", MODEL, "--pp", "8,4", "--tg", "2", "--depth", "0,3", "--chunk", "2,4", "--threads", "1",
            "--kv", "f32,f16", "--reps", "2"]
    result = run(*args, "--format", "json")
    expect_done(result)
    document = json.loads(result.out)
    rows = document["rows"]
    expect_equal(len(rows), 2 * (2 * 2 * 2) + 2 * 2, "rows")
    expect("pp_tps" not in document and "tg_tps" not in document, "no single rate for many rows")
    expect("cpu" in document["machine"] and "cpus" in document["machine"], "machine")
    for row in rows:
        low, mid, high = (row[k] for k in ("min_tokens_per_second", "median_tokens_per_second",
                                           "max_tokens_per_second"))
        expect(0 < low <= mid <= high, row)
        expect(row["test"] in ("pp", "tg") and row["ms_per_chunk"] > 0 and row["reps"] == 2, row)
        expect({"tokens", "depth", "chunk", "threads", "kv", "kv_bytes", "scratch_bytes", "weights_bytes"} <= set(row),
               row)
    csv = run(*args, "--format", "csv")
    expect_equal(len(csv.text.splitlines()), len(rows) + 1, "csv lines")
    table = run(*args)
    expect_equal(len([line for line in table.text.splitlines() if line.startswith("| ")]), len(rows) + 1, "md rows")
    one = json.loads(run("bench", MODEL, "--pp", "4", "--tg", "2", "--reps", "1", "--json").out)
    expect(one["pp_tps"] > 0 and one["tg_tps"] > 0, "single rates")
    only = json.loads(run("bench", MODEL, "--pp", "4", "--tg", "0", "--reps", "1", "--json").out)
    expect("pp_tps" in only and "tg_tps" not in only, "prefill only")


# ---- outputs ----


@test(needs_model=True)
def _():
    """-o replaces a file at once, keeps its permissions and link, leaves nothing behind on failure"""
    with tempfile.TemporaryDirectory() as folder:
        target, link = os.path.join(folder, "t.npy"), os.path.join(folder, "link.npy")
        pathlib.Path(target).write_text("old")
        os.chmod(target, 0o640)
        os.symlink("t.npy", link)
        expect_error(run("logits", MODEL, "--ids", "1,2000000000", "-o", link), 1)
        expect_equal(pathlib.Path(target).read_text(), "old", "old content after a failure")
        expect_done(run("logits", MODEL, "--ids", "1,2", "-o", link))
        expect(os.path.islink(link), "still a link")
        expect_equal(stat.S_IMODE(os.stat(target).st_mode), 0o640, "permissions")
        expect_equal(read_npy(target)[0][0], 2, "rows")
        expect_done(run("bench", MODEL, "--pp", "2", "--tg", "0", "--reps", "1", "-o", os.path.join(folder, "new.md")))
        mask = os.umask(0)
        os.umask(mask)
        expect_equal(stat.S_IMODE(os.stat(os.path.join(folder, "new.md")).st_mode), 0o666 & ~mask, "new file's mode")
        expect_equal(sorted(os.listdir(folder)), ["link.npy", "new.md", "t.npy"], "files")


@test(needs_model=True)
def _():
    """-o that cannot be written: missing folder, directory, full device, read-only file"""
    with tempfile.TemporaryDirectory() as folder:
        cases = [(folder + "/no/x.npy", "No such file"), (folder, "directory")]
        if os.path.exists("/dev/full"):
            cases.append(("/dev/full", "No space left"))
        if os.geteuid() != 0:
            path = pathlib.Path(folder) / "ro.npy"
            path.write_text("old")
            path.chmod(0o444)
            cases.append((str(path), "denied"))
        for path, part in cases:
            expect_error(run("logits", MODEL, "--ids", "1,2", "-o", path), 1, path, part)
        expect_done(run("logits", MODEL, "--ids", "1,2", "-o", "/dev/null"))
        expect(stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null is still a device")


@test(needs_model=True)
def _():
    """standard output full or closed, in every command"""
    lines = [["run", MODEL, "-p", "Hello", "-n", "20", "--ignore-eos"],
             ["run", MODEL, "-p", "Hello", "-n", "4", "--json"], ["tokenize", MODEL, "-p", "Hello"],
             ["logits", MODEL, "--ids", "1,2", "-o", "-"], ["logits", MODEL, "--ids", "1,2", "--json"],
             ["perplexity", MODEL, "--ids", "1,2,3"], ["inspect", MODEL], ["inspect", MODEL, "--json"],
             ["bench", MODEL, "--pp", "2", "--tg", "0", "--reps", "1"]]
    for line in lines:
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as pipe:
            result = run(*line, stdout=pipe)
        expect_equal((result.code, result.err), (1, b""), f"closed pipe: {line[0]}")
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as full:
                expect_error(run(*line, stdout=full), 1, "standard output", "No space left")


# ---- signals and terminals ----


def start_endless(*args, stderr=subprocess.PIPE):
    return subprocess.Popen([PROGRAM, "run", MODEL, "-p", "Hello world", "-n", "-1", "--ignore-eos", "--ctx", "256k",
                             *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)


@test(needs_model=True)
def _():
    """Ctrl-C ends a generation with its figures, exit 130; SIGTERM 143"""
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = start_endless()
        expect(process.stdout.read(1), "some text before the signal")
        process.send_signal(number)
        out, err = process.communicate(timeout=LONG)
        expect_equal(process.returncode, code, f"exit code ({err})")
        text = err.decode()
        expect("prefill: " in text and "stopped by interrupt" in text and "tegula:" not in text, text)


@test(needs_model=True)
def _():
    """Ctrl-C with --json still gives the document, exit 130"""
    process = start_endless("--json")
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    expect_equal((process.returncode, err), (130, b""), "exit code and errors")
    expect_equal(json.loads(out)["stop"], "interrupt", "stop")


@test(needs_model=True)
def _():
    """Ctrl-C while writing -o leaves the old file and no other"""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "t.npy")
        pathlib.Path(target).write_text("old")
        process = subprocess.Popen([PROGRAM, "bench", MODEL, "--pp", "512", "--tg", "64", "--reps", "1000", "-o", target],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.time() + LONG
        while len(os.listdir(folder)) < 2 and time.time() < deadline and process.poll() is None:
            time.sleep(0.02)
        expect_equal(len(os.listdir(folder)), 2, "the temporary file while it runs")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
        expect_equal((process.returncode, out, err), (130, b"", b""), "interrupted")
        expect_equal(os.listdir(folder), ["t.npy"], "files")
        expect_equal(pathlib.Path(target).read_text(), "old", "content")


@test()
def _():
    """Ctrl-C while waiting for standard input: exit 130"""
    process = subprocess.Popen([PROGRAM, "run", "m"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    expect_equal(process.poll(), 130, "exit code without end of input")
    process.communicate(timeout=LONG)


def run_on_terminal(*args):
    """Runs with standard error (only) on a pseudo terminal; returns its bytes."""
    master, slave = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env["TERM"] = "xterm"
    process = subprocess.Popen([PROGRAM, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=slave, env=env)
    os.close(slave)
    seen = b""
    while True:
        ready, _, _ = select.select([master], [], [], LONG)
        try:
            block = os.read(master, 65536) if ready else b""
        except OSError:
            block = b""
        if not block:
            break
        seen += block
    os.close(master)
    process.communicate(timeout=LONG)
    return process.returncode, seen


@test(needs_model=True)
def _():
    """progress is drawn on a terminal, erased at the end, and can be switched"""
    code, seen = run_on_terminal("run", MODEL, "-p", "Hello world", "-n", 1, "--chunk", 1)
    expect_equal(code, 0, "exit code")
    expect(b"prefill [" in seen and b"tokens/s" in seen and b" left" in seen, seen)
    expect(b"\r\x1b[K" in seen.split(b"left")[-1], "erased after the last drawing")
    code, seen = run_on_terminal("run", MODEL, "-p", "Hello world", "-n", 1, "--progress", "off")
    expect(b" left" not in seen, seen)
    piped = run("run", MODEL, "-p", "Hello world", "-n", 1, "--progress", "on")
    expect(b" left" in piped.err, "forced in a pipe")
    quiet = run("run", MODEL, "-p", "Hello world", "-n", 1)
    expect(b" left" not in quiet.err, "quiet in a pipe")


@test()
def _():
    """colours on a terminal only, and not with NO_COLOR"""
    code, seen = run_on_terminal("nosuchcommand")
    expect_equal(code, 2, "exit code")
    expect(b"\x1b[" in seen and b"tegula:" in seen, seen)
    os.environ["NO_COLOR"] = "1"
    try:
        master, slave = pty.openpty()
        process = subprocess.Popen([PROGRAM, "nosuchcommand"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=slave, env=dict(os.environ, TERM="xterm"))
        os.close(slave)
        process.wait(timeout=LONG)
        expect(b"\x1b[" not in os.read(master, 65536), "NO_COLOR")
        os.close(master)
    finally:
        del os.environ["NO_COLOR"]


@test()
def _():
    """a prompt from a terminal is refused with a sentence, not waited for"""
    master, slave = pty.openpty()
    process = subprocess.run([PROGRAM, "run", "m"], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=LONG)
    os.close(master)
    os.close(slave)
    expect_error(Result(process.returncode, process.stdout, process.stderr), 2, "terminal")


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, (function, needs_model) in enumerate(TESTS, 1):
        name = function.__doc__
        try:
            if needs_model and MODEL is None:
                raise Skip("no test model; set TEGULA_TEST_MODEL")
            function()
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception as problem:  # a hang (TimeoutExpired) or a broken file is a failure like any other
            failed += 1
            print(f"not ok {number} - {name}\n# {type(problem).__name__}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
