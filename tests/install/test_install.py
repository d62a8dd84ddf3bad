#!/usr/bin/env python3
"""An installed Tegula is usable: the example on top of tegula.h compiles with what pkg-config says and with
find_package, shared and static, from a prefix that is not the one it was configured for, and runs on a tiny model.
The program and its manual page are there, and DESTDIR is honoured."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
MODEL = os.environ.get("TEGULA_TEST_MODEL")
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES C)
find_package(tegula {version} REQUIRED {components})
add_executable(example example.c)
target_link_libraries(example PRIVATE {target})
"""
n_done = 0
failed = False


def result(good, name, detail=""):
    global n_done, failed
    n_done += 1
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} {n_done} - {name}", flush=True)
    if not good:
        print("\n".join("# " + line for line in detail.splitlines()[-25:]))


def call(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, **options)
    return done.returncode, done.stdout


def example():
    """The program inside tegula.h's head comment."""
    lines = (ROOT / "include" / "tegula.h").read_text(encoding="utf-8").split("*/")[0].splitlines()
    code = [line[3:] for line in lines if line.startswith(" *     ")]
    return "\n".join(line[4:] for line in code) + "\n"


def files_of(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}


def check_run(program, environment, name):
    """On a tiny model the example prints a token; on a missing one its error, and 1."""
    status, text = call(program, "/nothing/here.gguf", env=environment)
    result(status == 1 and "/nothing/here.gguf" in text, f"{name}: an error is one sentence", f"{status} {text}")
    if MODEL:
        status, text = call(program, MODEL, env=environment)
        result(status == 0 and text.startswith("next token: "), f"{name}: the example runs", f"{status} {text}")
    else:
        result(True, f"{name}: the example runs # SKIP no tiny model in tests/data/tiny")


def check_pkg_config(prefix, folder, libdir):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(libdir))
    search = [str(libdir / "pkgconfig"), os.environ.get("PKG_CONFIG_PATH", "")]
    environment["PKG_CONFIG_PATH"] = ":".join(part for part in search if part)
    for name, arguments, extra in (("pkg-config", [], []), ("pkg-config --static", ["--static"], ["-Wl,-Bstatic"])):
        status, flags = call("pkg-config", "--cflags", "--libs", *arguments, "tegula", env=environment)
        result(status == 0, f"{name} knows tegula", flags)
        if status:
            continue
        words = flags.split()
        if extra:  # only our own library: the others' archives need not be installed
            words = [f"{libdir}/libtegula.a" if word == "-ltegula" else word for word in words]
        program = folder / name.replace(" ", "")
        status, text = call("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", folder / "example.c", "-o", program, *words)
        result(status == 0, f"{name}: the example compiles", text)
        if status == 0:
            check_run(program, environment, name)


def check_find_package(prefix, folder, version):
    for target, components in (("tegula::tegula", ""), ("tegula::static", "COMPONENTS static")):
        project = folder / target.replace("::", "-")
        project.mkdir()
        shutil.copy(folder / "example.c", project)
        (project / "CMakeLists.txt").write_text(PROJECT.format(version=version, components=components, target=target))
        status, text = call("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
        if status == 0:
            status, text = call("cmake", "--build", project / "build")
        result(status == 0, f"find_package gives {target}", text)
        if status == 0:
            check_run(project / "build" / "example", dict(os.environ), target)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        prefix, stage = folder / "prefix with blank", folder / "stage"
        status, text = call("cmake", "--install", BUILD, "--prefix", prefix)
        result(status == 0, "installs to a prefix", text)
        if status:
            return 1
        files = files_of(prefix)
        pc = next((name for name in files if name.endswith("pkgconfig/tegula.pc")), "lib/pkgconfig/tegula.pc")
        lib = str(pathlib.Path(pc).parent.parent)
        wanted = {"include/tegula.h", pc, f"{lib}/libtegula.a", f"{lib}/libtegula.so", f"{lib}/libtegula.so.0", "bin/tegula",
                  f"{lib}/cmake/tegula/tegulaConfig.cmake"}
        if (ROOT / "docs" / "tegula.1").exists():
            wanted.add("share/man/man1/tegula.1")
        result(wanted <= files, "everything is there", f"missing: {sorted(wanted - files)}")
        result(not any(name.endswith(".h") for name in files - {"include/tegula.h"}), "one header and no other")
        status, text = call("cmake", "--install", BUILD, "--prefix", "/usr", env=dict(os.environ, DESTDIR=str(stage)))
        result(status == 0 and (stage / "usr" / "include" / "tegula.h").exists(), "DESTDIR is honoured", text)
        status, text = call(prefix / "bin" / "tegula", "--version")
        version = text.split()[-1] if text.split() else ""
        result(status == 0 and version.count(".") == 2, "the installed program starts", text)
        # pkg-config flags are split at blanks by every makefile, so the compile test uses a prefix without one.
        plain = folder / "prefix"
        shutil.move(prefix, plain)
        (folder / "example.c").write_text(example())
        check_pkg_config(plain, folder, plain / lib)
        check_find_package(plain, folder, version)
    print(f"1..{n_done}")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(main())
