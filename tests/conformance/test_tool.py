#!/usr/bin/env python3
"""tools/conformance without coremltools: what it says of what is absent, and how it counts planted results. Prints TAP."""
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools" / "conformance"
loader = importlib.machinery.SourceFileLoader("conformance_tool", str(TOOL))
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("conformance_tool", loader))
loader.exec_module(tool)


def run(*arguments, **variables):
    done = subprocess.run([sys.executable, str(TOOL), *arguments], env=dict(os.environ, **variables), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def says(outcome, status, *words):
    return outcome[0] == status and all(word in outcome[1] for word in words)


def absent_things():
    with tempfile.TemporaryDirectory() as folder:
        plugin = pathlib.Path(folder) / "coremltools_conformance"
        plugin.mkdir()
        (plugin / "plugin.py").touch()
        good = says(run(CONFORMANCE_PLUGIN="/nonexistent"), 2, "no pytest plug-in at /nonexistent", "CONFORMANCE_PLUGIN")
        good = good and says(run(CONFORMANCE_PLUGIN=folder, COREMLTOOLS_SRC="/nonexistent"), 2, "no checkout of coremltools",
                             "git clone --depth 1 --branch 9.0 https://github.com/apple/coremltools /nonexistent")
        version = pathlib.Path(folder) / "coremltools" / "version.py"
        version.parent.mkdir()
        version.write_text('__version__ = "8.3"\n')
        outcome = run(CONFORMANCE_PLUGIN=folder, COREMLTOOLS_SRC=folder, CONFORMANCE_VENV=folder)
        return good and says(outcome, 2, "is coremltools 8.3", "is not a virtual environment") and \
            says(run("opts"), 2, "part: expected ops or torch, found opts")


DIFFERS = "AssertionError: \nNot equal to tolerance rtol=1e-05, atol=0.0001\nMax absolute difference: {}\nMax relative difference: {}"
HALF = "t.py::T::t[backend=B(precision='fp32')-dtype=<class 'numpy.float16'>]"


def result(test="t.py::T::t[a]", outcome="passed", message="", **more):
    return dict({"test": test, "outcome": outcome, "message": message, "attempts": 1}, **more)


def kinds_of_failure():
    half = [(HALF, DIFFERS.format("0.0005", "7"), True), (HALF, DIFFERS.format("0.009", "0.0003"), True),
            (HALF, DIFFERS.format("0.009", "0.3"), False), (HALF, "AssertionError: shape", False),
            ("t.py::T::t[precision='fp32']", DIFFERS.format("0.0005", "7"), False),
            ("t.py::test_fp16[('mlprogram', 'fp32')]", DIFFERS.format("0.0005", "7"), True),
            ("t.py::test_fp16[('mlprogram', 'fp16')]", DIFFERS.format("0.0005", "7").replace("0.0001", "0.02"), False)]
    reasons = [("values differ", DIFFERS.format("3", "3")), ("an error was wanted, none came", "Failed: DID NOT RAISE <class"),
               ("refused at prediction", "TegulaError: cannot run op: o (lstm, iOS15): expected shape 3x6"),
               ("another error was wanted", "AssertionError: Regex pattern did not match.\n Shape"),
               ("shapes differ", "AssertionError: output shape (1,)"), ("time limit", "Failed: Timeout >300.0s"), ("the process died", "crash"), ("KeyError: 'x'", "KeyError: 'x'")]
    return all(bool(tool.is_half(result(test, "failed", message))) == wanted for test, message, wanted in half) and \
        all(tool.reason_of(result(outcome="failed", message=message)) == wanted for wanted, message in reasons) and \
        tool.reason_of(result(message="", not_implemented=1)) == "not implemented" and \
        tool.reason_of(result(load_errors=["op 'x' at 12"])) == "the package was refused: op … at …"


def shares():
    planted = [result(f"t.py::T::t[{i}]") for i in range(97)]
    planted += [result(outcome="failed", message="boom"), result(HALF, "failed", DIFFERS.format("0.0005", "7")),
                result(outcome="skipped"), result(outcome="xfailed"), result(attempts=2, excluded=2),
                result(attempts=0), {"test": "u", "outcome": "setup-skipped"}, result(attempts=0, states=1)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        nothing, share = tool.report("ops", []), tool.report("ops", planted)
    text = out.getvalue()
    return abs(share - 100 * 98 / 100) < 1e-9 and "101 reached a prediction: 98 passed, 2 failed, 1 failed as" in text and \
        "98.00 %; 98.99 % without 1 that" in text and "boom" in text and nothing == 0


def main():
    checks = {"what is absent is named with what to do": absent_things, "failures are sorted by reason": kinds_of_failure,
              "shares are of what reached a prediction": shares}
    print(f"1..{len(checks)}")
    failed = 0
    for number, (name, check) in enumerate(checks.items(), 1):
        good = check()
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - tools/conformance: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
