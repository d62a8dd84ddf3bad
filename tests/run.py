#!/usr/bin/env python3
"""Runs tests and counts them.

    tests/run.py [--build DIR] [--emulator CMD] [--timeout S] [--jobs N] [KIND | PROGRAM | SCRIPT]...

A test is a program of the build (DIR/tests/manifest.txt: "KIND NAME") or a script tests/*/test_*.py; its kind is its
folder. Without arguments all run. Every test prints TAP:

    ok 1 - name                 ok 2 - name # SKIP why                 not ok 3 - name

The rule kept here: a test cannot pass by dying. A crash, a timeout, an exit status without a `not ok`, a plan
("1..N") with another number of results, and a test that prints no result each count as one failure. Only what failed
or was skipped is printed, and the last line is the count. Scripts get TEGULA (the program), TEGULA_BUILD,
TEGULA_TEST_MODEL (a tiny model) and PYTHON in their environment.

A test framework was not taken: C programs and scripts would each have needed an adapter, and TAP is ten lines to read.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM_KINDS = ("unit", "kernel", "prop", "fuzz")
RESULT = re.compile(r"^(not ok|ok)\b\s*(\d*)\s*(.*)$")
SKIP = re.compile(r"#\s*SKIP\b[:\s]*(.*)$", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.(\d+)")


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


@dataclasses.dataclass
class Test:
    kind: str
    name: str
    command: list


def read_tap(text):
    """The count of a TAP text, its skip reasons, and whether its plan was kept."""
    count, skips, planned, seen = Count(), [], None, 0
    for line in text.splitlines():
        plan = PLAN.match(line)
        if plan:
            planned = (planned or 0) + int(plan.group(1))
            continue
        result = RESULT.match(line)
        if not result:
            continue
        seen += 1
        skip = SKIP.search(result.group(3))
        if skip:  # a skipped test is neither good nor bad, whatever word stands before it
            count.skipped += 1
            name = result.group(3)[: skip.start()].strip(" -")
            skips.append(": ".join(part for part in (name, skip.group(1)) if part))
        elif result.group(1) == "ok":
            count.passed += 1
        else:
            count.failed += 1
    return count, skips, planned is None or planned == seen


def verdict(test, text, status, timeout):
    """The count of one finished test; status is the exit status, negative for a signal, None for a timeout."""
    count, skips, plan_kept = read_tap(text)
    problem = None
    if status is None:
        problem = f"no end within {timeout} s"
    elif status < 0:
        problem = f"died of {signal.Signals(-status).name}"
    elif status != 0 and count.failed == 0:
        problem = f"exit status {status} without a failed test"
    elif not plan_kept:
        problem = "another number of results than its plan says"
    elif count == Count():
        problem = "printed no result"
    if problem:
        count.failed += 1
    return count, skips, problem


def run_one(test, environment, timeout):
    start = time.monotonic()
    process = subprocess.Popen(test.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment,
                               stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children too: its session is its own
        output, _ = process.communicate()
        status = None
    text = output.decode("utf-8", "replace")
    count, skips, problem = verdict(test, text, status, timeout)
    return test, count, skips, problem, text, time.monotonic() - start


def report(result, verbose):
    test, count, skips, problem, text, seconds = result
    for skip in skips:
        print(f"# skipped: {test.kind}/{test.name}: {skip}")
    if count.failed:
        lines = text.splitlines()
        print(f"---- {test.kind}/{test.name}: {problem or 'failed'} ({shlex.join(map(str, test.command))})")
        shown = lines if len(lines) <= 120 else \
            [line for line in lines if line.startswith("not ok")][:40] + ["..."] + lines[-80:]
        print("\n".join("  " + line for line in shown))
    elif verbose:
        print(f"# {test.kind}/{test.name}: {count} in {seconds:.1f} s")
    sys.stdout.flush()


def program_tests(build, emulator):
    manifest = build / "tests" / "manifest.txt"
    tests = []
    for line in manifest.read_text().splitlines() if manifest.exists() else []:
        kind, name = line.split()
        tests.append(Test(kind, name, [*emulator, str(build / "tests" / name)]))
    return tests


def script_tests():
    return [Test(path.parent.name, path.stem, [sys.executable, str(path)])
            for path in sorted((ROOT / "tests").glob("*/test_*.py"))]


def select(tests, wanted):
    """Those of the wanted kinds or names (all without a wish); a wish that matches nothing is an error."""
    def matches(test, wish):
        return wish in (test.kind, test.name, f"{test.kind}/{test.name}") or pathlib.Path(wish).stem == test.name

    for wish in wanted:
        if not any(matches(test, wish) for test in tests):
            raise SystemExit(f"tests/run.py: {wish}: expected a kind or the name of a test, found none")
    return [test for test in tests if not wanted or any(matches(test, wish) for wish in wanted)]


def environment_for(build, extra=None):
    tiny = sorted((ROOT / "tests" / "data" / "tiny").glob("*.gguf"))
    environment = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", TEGULA_BUILD=str(build), TEGULA=str(build / "tegula"),
                       PYTHON=sys.executable, PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8")
    if tiny:
        environment["TEGULA_TEST_MODEL"] = str(next((p for p in tiny if "llama" in p.name), tiny[0]))
    environment.update(extra or {})
    return environment


def run_all(tests, environment, timeout=600, jobs=None, verbose=True):
    """Runs tests side by side and returns the sum."""
    total = Count()
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count() or 1) as executor:
        runs = [executor.submit(run_one, test, environment, timeout) for test in tests]
        for run in concurrent.futures.as_completed(runs):
            report(run.result(), verbose)
            total.add(run.result()[1])
    return total


def main():
    parser = argparse.ArgumentParser(description="runs tests and counts them")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--emulator", default="", help="runs the programs of the build, e.g. qemu-aarch64")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each test")
    parser.add_argument("--jobs", type=int, default=None)
    parser.add_argument("wanted", nargs="*", metavar="KIND|PROGRAM|SCRIPT")
    options = parser.parse_args()
    build = options.build.resolve()
    tests = select(program_tests(build, shlex.split(options.emulator)) + script_tests(), options.wanted)
    total = run_all(tests, environment_for(build), options.timeout, options.jobs)
    print(total)
    return 1 if total.failed or total == Count() else 0


if __name__ == "__main__":
    sys.exit(main())
