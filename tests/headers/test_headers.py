#!/usr/bin/env python3
"""tegula.h stands alone: it compiles as the only include of a strict C11, C17 and C++17 program with every compiler
here, twice in one file, and each internal header compiles without help from what was included before it."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
LANGUAGES = (("c", "-std=c11", ("cc", "gcc", "clang")), ("c", "-std=c17", ("cc",)),
             ("c++", "-std=c++17", ("g++", "clang++")))
n_done = 0
failed = False


def result(good, name, detail=""):
    global n_done, failed
    n_done += 1
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} {n_done} - {name}")
    if not good:
        print("\n".join("# " + line for line in detail.splitlines()[:20]))


def compiles(compiler, language, options, text, includes):
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([compiler, "-x", language, *options, *STRICT, *(f"-I{path}" for path in includes), file.name],
                              capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main():
    include = ROOT / "include"
    for language, standard, compilers in LANGUAGES:
        for compiler in compilers:
            name = f"tegula.h alone, {standard[5:]}, {compiler}"
            if not shutil.which(compiler):
                result(True, f"{name} # SKIP no {compiler} here")
                continue
            text = "#include <tegula.h>\n#include <tegula.h>\nint main(void) { return TEG_OK; }\n"
            good, complaint = compiles(compiler, language, [standard], text, [include])
            result(good, name, complaint)
    # The reverse: a header that does not compile is seen.
    good, _ = compiles("cc", "c", ["-std=c11"], "#include <tegula.h>\nint f(void) { return TEG_NO_SUCH; }\n", [include])
    result(not good, "a wrong use of the header is refused")
    for path in sorted((ROOT / "src").glob("*/*.h")):  # deeper ones are kernel templates, which take parameters
        name = str(path.relative_to(ROOT / "src"))
        if path.stem.endswith("_tmpl"):
            continue
        options = ["-std=gnu11", "-D_GNU_SOURCE", "-Wno-pedantic", "-Wno-unused-function"]
        good, text = compiles("cc", "c", options, f'#include "{name}"\nextern int teg_none;\n', [include, ROOT / "src"])
        result(good, f"{name} compiles alone", text)
    print(f"1..{n_done}")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(main())
