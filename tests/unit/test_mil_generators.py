#!/usr/bin/env python3
"""The generators of tests/data/mil and of the ML program corpora still write what is committed."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main():
    cases = (("make_mil_packages.py", ["tests/data/mil"]),
             ("make_fuzz_corpus_mil.py", [f"tests/fuzz/corpus/{t}" for t in ("mil_spec", "mil_text", "mil_blob")]))
    failed = False
    for number, (tool, folders) in enumerate(cases, 1):
        with tempfile.TemporaryDirectory() as temp:
            run = subprocess.run([sys.executable, "-B", ROOT / "tools" / tool, temp], capture_output=True, text=True)
            faults = [run.stderr] if run.returncode else []
            for folder in folders if not faults else []:
                made, kept = files(pathlib.Path(temp) / folder), files(ROOT / folder)
                # findings of the fuzzer join its corpus, so that there may be more than what is made
                extra = set(kept) - set(made) if "corpus" not in folder else set()
                faults += [f"{folder}/{name}" for name in sorted(extra) + [n for n in made if made[n] != kept.get(n)]]
        print(f"{'not ok' if faults else 'ok'} {number} - {tool} writes what is committed")
        for fault in faults:
            print(f"#   {fault}")
        failed = failed or bool(faults)
    print(f"1..{len(cases)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
