"""What the cases share: running the program, expectations, reading .npy files. `TESTS` collects every function that
@test marks, in order; its docstring is its name. Only the standard library is used."""

import array
import os
import pathlib
import re
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = os.path.abspath(os.environ.get("TEGULA", str(ROOT / "build" / "tegula")))
LONG = 120  # seconds after which a run counts as hung


def find_model():
    given = os.environ.get("TEGULA_TEST_MODEL")
    if given:
        return os.path.abspath(given)
    files = sorted((ROOT / "tests" / "data" / "tiny").glob("*.gguf"))
    return str(next((f for f in files if "llama" in f.name), files[0])) if files else None


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


def run(*args, stdin=b"", stdout=subprocess.PIPE, env=None, preexec_fn=None):
    """Without what the user of this machine has tuned. preexec_fn: what the child does first, such as limits."""
    process = subprocess.run([PROGRAM, *map(str, args)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                             timeout=LONG, env={**os.environ, "XDG_CACHE_HOME": "/nonexistent", **(env or {})},
                             preexec_fn=preexec_fn)
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
