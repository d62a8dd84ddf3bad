"""Cases without a model: help, options, and inputs that are refused."""

import os
import pathlib
import re
import subprocess
import tempfile

from harness import PROGRAM, LONG, expect, expect_done, expect_equal, expect_error, run, test

COMMANDS = ["run", "tokenize", "template", "logits", "perplexity", "predict", "inspect", "bench", "tune", "convert",
            "compare", "quantize"]
ABSENT = ["lint", "session", "serve"]

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
                 "(default: 64)", "f32|f16|bf16|i16|k16v8|i8|q8|q4", "exact|auto", "on|off|auto"):
        expect(part in text, part)
    expect("--session" not in text, "what is missing is not listed")


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
    expect_error(run("run", "m", "-p", "x", "--kv", "f64"), 2, "f32 or f16 or bf16 or i16 or k16v8 or i8 or q8 or q4", "'f64'")
    expect_error(run("bench", "m", "--kv", "f32,q5"), 2, "q5", "q8")
    expect_error(run("run", "m", "-p", "x", "--mode", "fp16"), 2, "emulate-fp16", "'fp16'")
    expect_error(run("bench", "m", "--format", "xml"), 2, "'xml'")
    expect_error(run("run", "m", "-p", "x", "--progress", "maybe"), 2, "'maybe'")
    expect_error(run("tokenize", "m", "-p", "x", "--bos", "1"), 2, "auto or on or off")


@test()
def _():
    """options that this version lacks"""
    expect_error(run("run", "m", "-p", "x", "--session", "s"), 2, "--session", "not in this version")
    for option in ("--states", "--functions", "--target=iOS18"):
        expect_error(run("inspect", "m", option), 2, option.split("=")[0], "a Core ML package")


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
