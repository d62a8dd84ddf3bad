"""Cases of the system around the program: files that are written, pipes, signals, terminals."""

import json
import os
import pathlib
import pty
import resource
import select
import signal
import stat
import subprocess
import tempfile
import time

from harness import MODEL, PROGRAM, LONG, Result, Skip, expect, expect_done, expect_equal, expect_error, read_npy, run, test

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


@test(needs_model=True)
def _():
    """a limit on file sizes is a sentence, not a death, and leaves nothing behind"""
    with tempfile.TemporaryDirectory() as folder:
        result = run("logits", MODEL, "--ids", "1,2,3", "-o", folder + "/x.npy",
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        expect_error(result, 1, folder + "/x.npy", "File too large")
        expect_equal(os.listdir(folder), [], "files")


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


def terminal():
    try:
        return pty.openpty()
    except OSError as e:
        raise Skip(f"no pseudo terminal here: {e}")


def run_on_terminal(*args):
    """Runs with standard error (only) on a pseudo terminal; returns its bytes."""
    master, slave = terminal()
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
        master, slave = terminal()
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
    master, slave = terminal()
    process = subprocess.run([PROGRAM, "run", "m"], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=LONG)
    os.close(master)
    os.close(slave)
    expect_error(Result(process.returncode, process.stdout, process.stderr), 2, "terminal")
