#!/usr/bin/env python3
"""The recorded conformance cases: 3,000 calls of ML programs with the values that coremltools' own tests expect.

Prints TAP: a line for each group of ops with its counts. The cases and the script that runs them lie beside the checkout
(../shared/data/conformance, ../shared/tools/conformance); where they are not, one line says so. fp16 programs are held to
atol 0.01, rtol 0.01: the tests' own 0.5 lets zeros through. A case that fails is a failure unless docs/CONFORMANCE.md
names it with its reason (a line of a table that starts with `| GROUP/CASE |`); one that is named and passes is a
remark only: at the edge of a tolerance the order of sums decides, and that depends on the CPU."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHARED = ROOT.parent / "shared"
CASES, RUNNER = SHARED / "data" / "conformance", SHARED / "tools" / "conformance" / "run_corpus.py"
TOLERANCE = "0.01,0.01"


def skip(reason):
    print(f"1..1\nok 1 - conformance # SKIP {reason}")
    return 0


def known_failures():
    """Case -> reason, from the tables of docs/CONFORMANCE.md."""
    path = ROOT / "docs" / "CONFORMANCE.md"
    rows = re.findall(r"^\|\s*`?([\w./-]+/[\w.-]+?)(?:\.zip)?`?\s*\|(.*)\|\s*$", path.read_text(encoding="utf-8"), re.M) \
        if path.exists() else []
    return {case: reason.strip() for case, reason in rows}


def run_group(archive, folder):
    """Results of one archive: a list of dicts, or the last line of what went wrong."""
    results = pathlib.Path(folder) / (archive.name + ".jsonl")
    build = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
    environment = dict(os.environ, PYTHONPATH=str(pathlib.Path(__file__).resolve().parent), PYTHONDONTWRITEBYTECODE="1")
    environment.setdefault("TEGULA_LIBRARY", str(build / "libtegula.so"))
    done = subprocess.run([sys.executable, str(RUNNER), "--backend", "tegula_backend", "--fp16-tol", TOLERANCE, "--json",
                           str(results), str(archive)], env=environment, cwd=folder, capture_output=True, text=True)
    lines = results.read_text().splitlines() if results.exists() else []
    if done.returncode not in (0, 1) or not lines:
        return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return [json.loads(line) for line in lines], None


def report(number, archive, outcome, known):
    """One TAP line, with the failures below it; the names of the cases that were seen."""
    group, (results, problem) = archive.name.split(".")[0], outcome
    if results is None:
        print(f"not ok {number} - conformance: {group}\n#   {problem}", flush=True)
        return False, set()
    names = [result["case"].removesuffix(".zip") for result in results]
    failed = {name: result["why"] for name, result in zip(names, results) if result["result"] == "failed"}
    faults = [f"{name}: {why}" for name, why in failed.items() if name not in known]
    passed = sum(result["result"] == "passed" for result in results)
    ran = sum(result["result"] == "ran" for result in results)
    print(f"{'not ok' if faults else 'ok'} {number} - conformance: {group}: {passed} passed, {ran} ran without expected "
          f"values, {len(failed)} failed", flush=True)
    remarks = [f"{name}: passes, but docs/CONFORMANCE.md names it" for name in names if name in known and name not in failed]
    for line in faults[:20] + remarks[:20]:
        print(f"#   {line}", flush=True)
    return not faults, set(names)


def main():
    archives = sorted(CASES.glob("*.tar.zst"))
    if not archives or not RUNNER.exists():
        return skip("../shared/data/conformance is not beside the checkout")
    try:
        import numpy  # noqa: F401
        subprocess.run(["zstd", "--version"], check=True, capture_output=True)
    except (ImportError, OSError) as error:
        return skip(f"the cases need NumPy and zstd: {error}")
    known, seen, good = known_failures(), set(), True
    print(f"1..{len(archives) + 1}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as executor:
        runs = [executor.submit(run_group, archive, folder) for archive in archives]
        for number, (archive, run) in enumerate(zip(archives, runs), 1):
            fine, names = report(number, archive, run.result(), known)
            good = good and fine
            seen |= names
    absent = sorted(set(known) - seen)
    print(f"{'not ok' if absent else 'ok'} {len(archives) + 1} - conformance: docs/CONFORMANCE.md names cases that exist")
    for name in absent:
        print(f"#   {name}")
    return 0 if good and not absent else 1


if __name__ == "__main__":
    sys.exit(main())
