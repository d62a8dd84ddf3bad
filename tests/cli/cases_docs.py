"""Cases of the documents: the manual page and the examples in *.md name the options that the program has."""

import pathlib
import re

from harness import expect, expect_equal, run, test

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAN_OPTION = re.compile(r"Fl -([a-z][a-z-]+)")


def help_text(*command):
    return run("help", *command).out.decode()


def commands():
    found = re.findall(r"^  ([a-z]+) ", help_text(), flags=re.M)
    expect(len(found) > 8, f"commands in the help: {found}")
    return found


@test()
def _():
    """the manual page and the help of every command name the same options"""
    general, sections = (ROOT / "docs" / "tegula.1").read_text().split(".Sh COMMANDS")
    shared = set(MAN_OPTION.findall(general.split(".Ss Options in general")[1]))
    parts = re.split(r"^\.Ss ", sections.split("\n.Sh ")[0], flags=re.M)[1:]
    sections = {part.split()[0]: part for part in parts}
    expect_equal(sorted(sections), sorted(commands()), "commands in the manual page")
    for name, section in sections.items():
        in_help = set(re.findall(r"^  (?:-\w, )?--([a-z][a-z-]*)", help_text(name), flags=re.M))
        items = [line for line in section.splitlines() if line.startswith(".It ")]
        in_items = {option for line in items for option in MAN_OPTION.findall(line)}
        expect_equal(sorted(in_help - shared - set(MAN_OPTION.findall(section))), [], f"{name}: only in the help")
        expect_equal(sorted(in_items - in_help), [], f"{name}: only in the manual page")


@test()
def _():
    """examples in the documents use commands and options that there are"""
    known = commands()
    options = {name: set(re.findall(r"--[a-z][a-z-]*", help_text(name))) for name in known}
    n = 0
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for line in path.read_text().splitlines():
            for name, rest in re.findall(r"tegula ([a-z]+)\b([^`|#]*)", line):
                if name not in known:
                    continue
                n += 1
                unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) - options[name]
                expect_equal(sorted(unknown), [], f"{path.name}: {line.strip()}")
    expect(n > 20, f"examples: {n}")
