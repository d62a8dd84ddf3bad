#!/usr/bin/env python3
"""Packages that others made, through the Python package: every one in ../shared/data opens and runs; the stateful ones
match the values beside them over two prefill chunks and eight single tokens, states included.

Prints TAP, one line a package, or one skip line where ../shared/data is not beside the checkout. The golden values come
from an independent interpreter in float32, the bounds are those of its README: 5e-3 absolute for states and outputs
besides the rounding of fp16 outputs, 2e-3 for the probabilities of CREPE, whose package rounds to fp16."""
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
os.environ.setdefault("TEGULA_LIBRARY", str(BUILD / "libtegula.so"))
sys.path.insert(0, str(ROOT / "python"))

try:
    import numpy as np
except ImportError:
    print("1..1\nok 1 - samples # SKIP NumPy is not installed")
    sys.exit(0)

from tegula._program import Program, State  # noqa: E402

TOLERANCE = 5e-3


def difference(got, want):
    is_half = got.dtype == np.float16
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    got, want = got.astype(np.float64), want.astype(np.float64)
    rounding = np.abs(want) * 2.0**-11 if is_half else 0  # of the output itself; the golden values are float32
    gap = float(np.max(np.abs(got - want) - rounding, initial=0))
    return "" if gap <= TOLERANCE else f"differs by {gap:.3g}"


def replay(package, golden):
    """Runs the recorded calls on one state; the differences found."""
    program, faults = Program(package), []
    state = State(program)
    with np.load(golden) as npz:
        json.loads(str(npz["manifest"]))
        calls = sorted({name[:3] for name in npz.files if name[0] == "c" and name[3] == "_"})
        for call in calls:
            inputs = {n[len(call) + 4:]: npz[n] for n in npz.files if n.startswith(call + "_in_")}
            wanted = {n[len(call) + 5:]: npz[n] for n in npz.files if n.startswith(call + "_out_")}
            out = program.predict(inputs, str(npz[call + "_function"]), state)
            faults += [f"{call} {name}: {gap}" for name, want in wanted.items() if (gap := difference(out[name], want))]
        for name in (n for n in npz.files if n.startswith("state_")):
            gap = difference(state.read(name[6:]), npz[name])
            faults += [f"{name}: {gap}"] if gap else []
    return len(calls), faults


def zeros(feature):
    shape = feature.shape if feature.shape is not None else (1,)
    return np.zeros(shape, feature.dtype)


def run_once(package):
    """Every function once, on zeros of its default shapes; what came out must be finite or declared otherwise."""
    program, faults = Program(package), []
    state = State(program)
    for function in program.functions.values():
        out = program.predict({f.name: zeros(f) for f in function.inputs}, function.name, state)
        for feature in function.outputs:
            if np.asarray(out[feature.name]).dtype != feature.dtype:
                faults.append(f"{function.name} {feature.name}: {out[feature.name].dtype}, declared {feature.dtype}")
    return len(program.functions), faults


def crepe(package, recorded):
    with np.load(recorded) as npz:
        arrays = {name: npz[name] for name in npz.files}
    program = Program(package)
    feature = program.functions["main"].inputs[0]
    frames = next(a for a in arrays.values() if a.ndim == 2 and a.shape[1] == 1024)
    want = next(a for a in arrays.values() if a.ndim == 2 and a.shape[1] == 360)
    gap = float(np.max(np.abs(program.predict({feature.name: frames})["probabilities"] - want)))
    return 1, [] if gap <= 2e-3 else [f"differs by {gap:.3g}"]


def cases():
    for golden in sorted(DATA.glob("stateful-tiny/*.golden.npz")):
        yield golden.name[:-11], replay, (golden.with_name(golden.name[:-11] + ".mlpackage"), golden)
    for folder in ("coreml-toys", "coreml-public"):
        for package in sorted((DATA / folder).glob("*.ml*")):
            yield package.name, run_once, (package,)
    tiny = DATA / "coreml-public" / "crepe-tiny.mlpackage"
    if tiny.exists():
        yield "crepe-tiny against torch", crepe, (tiny, tiny.with_name("crepe_tiny.npz"))


def main():
    all_cases, failed = list(cases()), 0
    if not all_cases:
        print("1..1\nok 1 - samples # SKIP ../shared/data is not beside the checkout")
        return 0
    print(f"1..{len(all_cases)}")
    for number, (name, function, arguments) in enumerate(all_cases, 1):
        try:
            n, faults = function(*arguments)
        except Exception as problem:
            n, faults = 0, [f"{type(problem).__name__}: {problem}"]
        failed += bool(faults)
        print(f"{'not ok' if faults else 'ok'} {number} - samples: {name}: {n} {'calls' if function is replay else 'functions'}",
              flush=True)
        for fault in faults[:8]:
            print(f"#   {fault}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
