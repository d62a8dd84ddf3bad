#!/usr/bin/env python3
"""Published chat templates, rendered by `tegula template` and by jinja2: the bytes must be the same.

The templates come from the source distribution of llama-cpp-python (fetched from the package index into a cache, never
committed) and, where present, from ../shared/data/goldens beside the checkout. Truth is jinja2, set up as transformers
sets it up. Where jinja2 raises, tegula must fail too.

Environment: TEGULA (program, default build/tegula), TEGULA_TEST_MODEL (a small GGUF, whose bos and eos texts are used;
without it everything is skipped), TEGULA_CACHE (default ~/.cache/tegula). Prints TAP.
"""
import glob
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from datetime import datetime
from pathlib import Path

from common import peers_sdist

INSIDE = "/vendor/llama.cpp/models/templates/"
NOW = 1753963810
ROOT = Path(__file__).resolve().parents[2]

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "The city's name"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "names": {"type": "array", "items": {"type": "string"}}}}}},
    {"type": "function", "function": {"name": "now", "description": "é <b>", "parameters": {
        "type": "object", "properties": {}}}},
]
SYSTEM = {"role": "system", "content": "You are héllo \"quoted\" & <b>."}
CALL = [{"id": "abcdef123", "type": "function",
         "function": {"name": "get_weather", "arguments": {"city": "Paris", "n": 1.5, "b": True, "z": None}}}]
CONVERSATIONS = {
    "system and user": [SYSTEM, {"role": "user", "content": "Hi there"}],
    "several turns": [{"role": "user", "content": "One"},
                      {"role": "assistant", "content": "<think>hm\nso</think>\n\nTwo"},
                      {"role": "user", "content": "Three"}, {"role": "assistant", "content": " Four "},
                      {"role": "user", "content": "Five\n"}],
    "no messages": [],
    "empty content": [SYSTEM, {"role": "user", "content": ""}, {"role": "assistant", "content": ""},
                      {"role": "user", "content": " "}],
    "unicode": [{"role": "user", "content": "日本語 😀 e\u0301 \u2028 \x07 'a' \"b\" \\ </s> {{ x }}"},
                {"role": "assistant", "content": "ß İ"}, {"role": "user", "content": "ok"}],
    "tool call": [SYSTEM, {"role": "user", "content": "Weather?"},
                  {"role": "assistant", "content": "", "tool_calls": CALL},
                  {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": "{\"t\": 20}"},
                  {"role": "assistant", "content": "20 degrees"}, {"role": "user", "content": "thanks"}],
}


def skip_all(reason):
    print("1..1")
    print(f"ok 1 - published templates # SKIP {reason}")
    sys.exit(0)


def fetch_templates():
    sdist, reason = peers_sdist()
    if not sdist:
        return {}, reason
    templates = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            if INSIDE in member.name and member.name.endswith(".jinja"):
                templates[Path(member.name).name] = archive.extractfile(member).read()
    for path in glob.glob(str(ROOT.parent / "shared/data/goldens/*/chat.json")):
        with open(path, encoding="utf-8") as file:
            templates[Path(path).parent.name] = json.load(file)["template"].encode()
    return templates, None


def jinja_environment():
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(NOW).strftime(f)
    return env


class Tegula:
    def __init__(self, model, folder):
        self.program = os.environ.get("TEGULA", str(ROOT / "build" / "tegula"))
        self.model = model
        self.folder = Path(folder)
        self.tools = self.folder / "tools.json"
        self.tools.write_text(json.dumps(TOOLS))

    def render(self, template, messages, add_generation_prompt, tools):
        path = self.folder / "template.jinja"
        path.write_bytes(template)
        command = [self.program, "template", self.model, "--template", str(path), "--now", str(NOW)]
        command += ["--add-generation-prompt"] if add_generation_prompt else []
        command += ["--tools", str(self.tools)] if tools else []
        return subprocess.run(command, input=json.dumps(messages).encode(), capture_output=True, timeout=60,
                              check=False)


def token_text(tegula, name):
    done = tegula.render(("[{{ " + name + " }}]").encode(), [], False, False)
    return done.stdout.decode().strip()[1:-1] if done.returncode == 0 else None


def compare(tegula, compiled, template, variables, tools):
    """None, or what differs."""
    values = dict(variables, tools=TOOLS if tools else None, documents=None)  # as transformers passes them
    try:
        expected = compiled.render(**json.loads(json.dumps(values))).encode()
    except Exception:  # whatever jinja2 or Python raises
        expected = None
    done = tegula.render(template, variables["messages"], variables["add_generation_prompt"], tools)
    if done.returncode < 0:
        return f"died of signal {-done.returncode}"
    if expected is None:
        return "jinja2 raises, tegula does not" if done.returncode == 0 else None
    if done.returncode != 0:
        return done.stderr.decode(errors="replace").strip()
    if done.stdout == expected:
        return None
    at = next((i for i, (a, b) in enumerate(zip(expected, done.stdout)) if a != b), min(len(expected), len(done.stdout)))
    return f"byte {at}: expected {expected[max(0, at - 20):at + 40]!r}, found {done.stdout[max(0, at - 20):at + 40]!r}"


def main():
    os.environ["TZ"] = "UTC"
    try:
        import jinja2  # noqa: F401
    except ImportError:
        skip_all("no jinja2 for this Python")
    model = os.environ.get("TEGULA_TEST_MODEL")
    if not model or not os.path.exists(model):
        skip_all("TEGULA_TEST_MODEL names no model")
    templates, reason = fetch_templates()
    if reason:
        skip_all(reason)
    env, failed = jinja_environment(), 0
    with tempfile.TemporaryDirectory() as folder:
        tegula = Tegula(model, folder)
        bos, eos = token_text(tegula, "bos_token"), token_text(tegula, "eos_token")
        if bos is None or eos is None:
            print("1..1\nnot ok 1 - tegula template prints the special tokens")
            return 1
        print(f"1..{len(templates) * len(CONVERSATIONS)}")
        number = 0
        for name, template in sorted(templates.items()):
            compiled = env.from_string(template.decode())
            for title, messages in CONVERSATIONS.items():
                number += 1
                wrong = None
                for prompt in (False, True):
                    for tools in (False, True):
                        variables = dict(messages=messages, add_generation_prompt=prompt, bos_token=bos, eos_token=eos)
                        wrong = wrong or compare(tegula, compiled, template, variables, tools)
                print(f"{'not ok' if wrong else 'ok'} {number} - {name}: {title}")
                if wrong:
                    failed += 1
                    print("#", wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
