#!/usr/bin/env python3
"""The command line contract of `tegula`, checked from outside. Prints TAP; exit code 1 when a test failed.

Environment: TEGULA is the program (default build/tegula), TEGULA_TEST_MODEL a small model (default: the first .gguf
file of tests/data/tiny). Tests that need a model are skipped with a line that says so where there is none.

Invariant: every test states an exit code and what stands on standard output and standard error; error lines are
checked for their form as well: one line, "tegula: WHAT: …", no more. Only the standard library is used."""

import sys

import cases_usage  # noqa: F401  (importing registers the cases)
import cases_commands  # noqa: F401
import cases_programs  # noqa: F401
import cases_quantize  # noqa: F401
import cases_models  # noqa: F401
import cases_convert  # noqa: F401
import cases_system  # noqa: F401
import cases_docs  # noqa: F401
from harness import MODEL, TESTS, Skip


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
