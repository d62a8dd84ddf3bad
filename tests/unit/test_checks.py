#!/usr/bin/env python3
"""The checks can fail: each is run on a small tree with one planted fault, and on the same tree without it.

The test runner is checked the same way: a program that dies, hangs, lies about its plan or prints nothing must count as
failed.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import run  # noqa: E402

HEADER = '/* tegula.h */\n#define TEG_API __attribute__((visibility("default")))\nTEG_API int teg_one(void);\n'
TREE = {
    "include/tegula.h": HEADER,
    "src/base/a.h": "/* a */\n#include \"tegula.h\"\nint teg_a(void);\n",
    "src/base/a.c": "/* a */\n#include \"base/a.h\"\nstatic const int table[] = {1};\nint teg_a(void)\n{\n    return table[0];\n}\n",
    "src/dtype/d.c": "/* d */\n#include \"base/a.h\"\n",
    "src/api.c": "/* api: \"printf\" in a string or comment is no call */\n#include \"base/a.h\"\n"
                 "int teg_one(void)\n{\n    return teg_a();\n}\n",
    "cli/main.c": "/* main */\n#include \"cli.h\"\n#include \"tegula.h\"\n",
    "cli/cli.h": "/* cli */\n",
}
n_done = 0
failed = False


def result(good, name, detail=""):
    global n_done, failed
    n_done += 1
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} {n_done} - {name}")
    if not good:
        print(textwrap.indent(detail, "# "))


def plant(folder, changes):
    for name, text in {**TREE, **changes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def check(tool, changes, wanted, name):
    """Runs a check on the tree with `changes`; `wanted` is a part of its complaint, or None when it must be content."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        plant(folder, changes)
        done = subprocess.run([sys.executable, ROOT / "tools" / tool, folder], capture_output=True, text=True)
        good = done.returncode == 0 and "not ok" not in done.stdout if wanted is None else \
            done.returncode == 1 and "not ok" in done.stdout and wanted in done.stdout
        result(good, f"{tool}: {name}", done.stdout + done.stderr)


def test_layers():
    check("check-layers", {}, None, "a good tree")
    check("check-layers", {"src/base/b.c": '/* b */\n#include "dtype/d.h"\n'}, "base may not include dtype/d.h",
          "an include upwards")
    check("check-layers", {"src/kernel/k.c": '/* k */\n  #  include "graph/graph.h"\n'}, "kernel may not include",
          "a sideways include with odd spacing")
    check("check-layers", {"src/run/r.c": '/* r */\n#include "../build/b.h"\n', "src/build/b.h": "/* b */\n"},
          "run may not include", "an include past the table by a relative path")
    check("check-layers", {"src/base/b.c": '/* b */\n#include "dtype/d.h"\n'}, "base -> dtype -> base", "a cycle")
    check("check-layers", {"src/utils/u.c": "/* u */\n"}, "folder utils has no row", "an unknown folder")
    check("check-layers", {"cli/run.c": '/* r */\n#include "base/a.h"\n'}, "cli includes tegula.h", "a reach into src")
    check("check-layers", {"src/base/long.c": "/* l */\n" * 801}, "801 lines", "a file too long")


def test_source():
    check("check-source", {}, None, "a good tree")
    for call in ("printf(\"x\")", "exit(1)", "abort()", "getenv(\"X\")", "fputs(s, stderr)", "alloca(7)"):
        check("check-source", {"src/base/p.c": f"/* p */\nvoid teg_p(void)\n{{\n    {call};\n}}\n"}, "src/base/p.c:4",
              call.split("(")[0])
    check("check-source", {"src/base/g.c": "/* g */\nstatic int counter = 0;\n"}, "counter is a mutable global", "a global")
    check("check-source", {"src/base/n.c": "int teg_n;\n"}, "opens without a comment", "a file without a head")
    check("check-source", {"tools/x.py": "import os\n"}, "opens without a comment", "a script without a head")
    check("check-source", {"src/base/w.c": "/* w */ \n"}, "blanks at the end", "trailing blanks")
    check("check-source", {"src/base/w.c": "/* w */"}, "newline at the end", "no newline at the end")


def compile_library(folder, changes, flags):
    plant(folder, changes)
    objects = []
    for source in sorted((folder / "src").rglob("*.c")):
        objects.append(folder / (source.name + ".o"))
        wide = ["-mavx2"] if source.name.endswith("_avx2.c") else []
        subprocess.run(["cc", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{folder}/include", f"-I{folder}/src", *flags,
                        *wide, "-c", source, "-o", objects[-1]], check=True)
    subprocess.run(["ar", "rc", folder / "lib.a", *objects], check=True)
    subprocess.run(["cc", "-shared", "-o", folder / "lib.so", *objects], check=True)


def check_symbols(changes, wanted, name, flags=()):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        compile_library(folder, changes, flags)
        done = subprocess.run([sys.executable, ROOT / "tools" / "check-symbols", folder / "lib.a", folder / "lib.so",
                               folder / "include" / "tegula.h"], capture_output=True, text=True)
        good = done.returncode == 0 if wanted is None else done.returncode == 1 and wanted in done.stdout
        result(good, f"check-symbols: {name}", done.stdout + done.stderr)


def test_symbols():
    loop = "(float *x)\n{\n    for (int i = 0; i < 64; i++)\n        x[i] = x[i] * 3;\n}\n"
    check_symbols({}, None, "a good library")
    check_symbols({"src/base/x.c": "/* x */\nint helper(void)\n{\n    return 1;\n}\n"}, "x.c.o: helper", "a bare name")
    check_symbols({"src/base/x.c": "/* x */\nint teg_data = 3;\n"}, None, "a prefixed name stays hidden")
    check_symbols({"include/tegula.h": HEADER + "TEG_API int teg_two(void);\n"}, "not exported: teg_two",
                  "a function that is only declared")
    check_symbols({"src/base/x.c": '/* x */\n__attribute__((visibility("default"))) int teg_x(void)\n{\n    return 1;\n}\n'},
                  "not in the header: teg_x", "an export without a declaration")
    check_symbols({"src/base/x.c": '/* x */\n#include <stdio.h>\nvoid teg_x(void)\n{\n    printf("hello\\n");\n}\n'},
                  "calls puts", "printf that the compiler renamed")
    check_symbols({"src/base/x.c": '/* x */\n#include <assert.h>\nvoid teg_x(int v)\n{\n    assert(v);\n}\n'},
                  "calls __assert_fail", "assertions left on")
    if os.uname().machine == "x86_64":
        check_symbols({"src/kernel/x.c": f"/* x */\nvoid teg_x{loop}"}, "x.c.o: teg_x", "AVX in a baseline object",
                      ("-O3", "-mavx2"))
        check_symbols({"src/kernel/x_avx2.c": f"/* x */\nvoid teg_x{loop}"}, None, "AVX where the suffix says so", ("-O3",))


def test_format():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else "none"
    if "version 14." not in version:
        result(True, f"check-format: a planted fault # SKIP needs clang-format 14, found {version.strip()}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        plant(folder, {"src/base/f.c": "/* f */\nint teg_f( void ){return 1;}\n"})
        for name in ("tests", "bench", "tools"):
            (folder / name).mkdir(exist_ok=True)
        shutil.copy(ROOT / ".clang-format", folder)
        copy = shutil.copy(ROOT / "tools" / "check-format", folder / "tools")
        done = subprocess.run([copy], capture_output=True, text=True)
        result(done.returncode == 1 and "src/base/f.c" in done.stdout, "check-format: a planted fault", done.stdout)
        subprocess.run([copy, "--fix"], check=True)
        done = subprocess.run([copy], capture_output=True, text=True)
        result(done.returncode == 0, "check-format: --fix mends it", done.stdout)


def run_script(text, timeout=20.0):
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "test_planted.py"
        path.write_text(text)
        return run.run_one(run.Test("planted", "planted", [sys.executable, str(path)]), dict(os.environ), timeout)


def test_runner():
    rows = (
        ("a passing test", "print('ok 1 - a\\n1..1')", (1, 0, 0), None),
        ("a failing test", "print('ok 1 - a\\nnot ok 2 - b'); raise SystemExit(1)", (1, 1, 0), None),
        ("a skipped test", "print('ok 1 - a # SKIP no such CPU')", (0, 0, 1), None),
        ("cmocka's skip", "print('not ok 1 # SKIP test_a')", (0, 0, 1), None),
        ("an exit status alone", "print('ok 1 - a'); raise SystemExit(3)", (1, 1, 0), "exit status 3"),
        ("a crash", "import os, signal; print('ok 1 - a', flush=True); os.kill(os.getpid(), signal.SIGSEGV)", (1, 1, 0),
         "SIGSEGV"),
        ("a broken plan", "print('1..3\\nok 1 - a')", (1, 1, 0), "its plan"),
        ("silence", "", (0, 1, 0), "no result"),
    )
    for name, text, counts, problem in rows:
        _, count, _, found, output, _ = run_script(text)
        good = (count.passed, count.failed, count.skipped) == counts and (problem or "") in (found or "")
        result(good and (problem is not None) == (found is not None), f"run.py counts {name}", f"{count} {found}\n{output}")
    _, count, _, found, _, seconds = run_script("import time; print('ok 1 - a', flush=True); time.sleep(60)", 1.5)
    result(count.failed == 1 and "no end" in found and seconds < 30, "run.py ends a hang", f"{count} {found} {seconds}")


def main():
    for test in (test_layers, test_source, test_symbols, test_format, test_runner):
        test()
    print(f"1..{n_done}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
