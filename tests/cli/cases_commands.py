"""Cases with a model: what each command prints."""

import json
import os
import pathlib
import re
import tempfile
import xml.etree.ElementTree

from harness import MODEL, ROOT, Skip, expect, expect_done, expect_equal, expect_error, read_npy, run, test

# ---- with a model ----


def ids_of(text, *args):
    result = run("tokenize", MODEL, *args, stdin=text)
    expect_done(result)
    return [int(line) for line in result.text.split()]


@test(needs_model=True)
def _():
    """tokenize: -p, -f, stdin and --json agree; every byte counts"""
    text = b"Hello world\n"
    ids = ids_of(text)
    expect_equal(json.loads(run("tokenize", MODEL, "--json", stdin=text).out), {"ids": ids}, "--json")
    expect_equal([int(x) for x in run("tokenize", MODEL, "-p", text.decode()).text.split()], ids, "-p")
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        expect_equal([int(x) for x in run("tokenize", MODEL, "-f", file.name).text.split()], ids, "-f")
        expect_equal([int(x) for x in run("tokenize", "-f", file.name, "--", MODEL).text.split()], ids, "order")
    expect(ids_of(text[:-1]) != ids, "the final newline counts")
    expect_equal(ids_of(b"", "--bos", "off"), [], "no text, no ids")


@test(needs_model=True)
def _():
    """tokenize --decode gives the bytes back, from every source"""
    text = "Tegula: one two, drei."
    ids = ids_of(text.encode(), "--bos", "off")
    spaced, listed = " ".join(map(str, ids)), json.dumps(ids)
    decoded = run("tokenize", MODEL, "--decode", *ids)
    expect_done(decoded)
    for result in (run("tokenize", MODEL, "--decode", stdin=spaced.encode()),
                   run("tokenize", MODEL, "--decode", "-p", spaced.replace(" ", ",")),
                   run("tokenize", "--decode", MODEL, "-p", listed),
                   run("tokenize", MODEL, "--decode", stdin=json.dumps({"ids": ids}).encode())):
        expect_done(result)
        expect_equal(result.out, decoded.out, "decoded")
    expect(text in decoded.text, f"expected {text!r} in {decoded.text!r}")
    expect_equal(json.loads(run("tokenize", MODEL, "--decode", "--json", *ids).out), {"text": decoded.text}, "--json")


@test(needs_model=True)
def _():
    """an id outside the vocabulary is named"""
    expect_error(run("tokenize", MODEL, "--decode", "2000000000"), 1, "2000000000")
    expect_error(run("logits", MODEL, "--json", "--ids", "1,2000000000"), 1, "2000000000")
    expect_error(run("perplexity", MODEL, "--ids", "1,2000000000"), 1, "2000000000")


@test(needs_model=True)
def _():
    """run streams text and closes with prefill and decode apart"""
    result = run("run", MODEL, "-p", "Hello world", "-n", 8, "--temp", 0, "--ignore-eos")
    expect_done(result)
    lines = result.errors.splitlines()
    expect_equal(len(lines), 3, f"closing lines {lines}")
    expect(re.match(r"prefill: \d+ tokens from depth 0 in 1 chunks, [\d.]+ s, [\d.]+ tokens/s, first token [\d.]+ ms$",
                    lines[0]), lines[0])
    expect(re.match(r"decode:  7 tokens from depth \d+, [\d.]+ s, [\d.]+ tokens/s, stopped by length$", lines[1]),
           lines[1])
    expect(re.match(r"memory:  weights .+, KV .+, scratch .+, peak RSS .+$", lines[2]), lines[2])
    expect("\033" not in result.errors, "no colours in a pipe")


RUN_FIELDS = {
    "prefill": {"tokens", "reused_tokens", "chunks", "seconds", "tokens_per_second", "first_token_ms"},
    "decode": {"tokens", "seconds", "tokens_per_second"},
    "memory": {"weights_bytes", "kv_bytes", "scratch_bytes", "peak_rss_bytes"},
}


def run_json(*args, **kwargs):
    result = run("run", MODEL, "--json", *args, **kwargs)
    expect_done(result)
    expect_equal(result.err, b"", "standard error")
    document = json.loads(result.out)
    for key in ("text", "prompt_tokens", "tokens", "stop", "options"):
        expect(key in document, key)
    for group, fields in RUN_FIELDS.items():
        expect(fields <= set(document[group]), f"{group}: {sorted(document[group])}")
    expect(document["stop"] in ("eos", "length", "stop", "interrupt"), document["stop"])
    return document


@test(needs_model=True)
def _():
    """run --json: every field, and figures that add up"""
    document = run_json("-p", "Hello world", "-n", 8, "--temp", 0, "--ignore-eos", "--chunk", 1)
    expect_equal(len(document["tokens"]), 8, "tokens")
    expect_equal(document["decode"]["tokens"], 7, "decode steps")
    expect_equal(document["stop"], "length", "stop")
    expect_equal(document["prefill"]["tokens"], document["prompt_tokens"], "prefill tokens")
    expect_equal(document["prefill"]["chunks"], document["prompt_tokens"], "chunks of one token")
    expect_equal(document["prompt_tokens"], len(ids_of(b"Hello world")), "prompt tokens")
    expect_equal(document["options"]["n"], 8, "options")
    expect_equal(document["options"]["chunk"], 1, "options")


@test(needs_model=True)
def _():
    """the same seed gives the same text; chunk and threads change nothing"""
    first = run_json("-p", "Hello world", "-n", 16, "--seed", 7, "--temp", 1)
    for more in ([], ["--chunk", "1"], ["--chunk", "3", "--threads", "1"], ["--threads", "3"]):
        again = run_json("-p", "Hello world", "-n", 16, "--seed", 7, "--temp", 1, *more)
        expect_equal(again["tokens"], first["tokens"], f"tokens with {more}")
    expect_equal(first["options"]["seed"], 7, "seed")
    seeds = {run_json("-p", "x", "-n", 0)["options"]["seed"] for _ in range(3)}
    expect(len(seeds) > 1, "random seeds differ")


@test(needs_model=True)
def _():
    """-n 0 prefills only; streamed text equals the text of --json"""
    nothing = run_json("-p", "Hello world", "-n", 0)
    expect_equal((nothing["text"], nothing["tokens"], nothing["stop"]), ("", [], "length"), "nothing generated")
    args = ("-p", "Hello world", "-n", 24, "--temp", 0)
    expect_equal(run("run", MODEL, *args).text, run_json(*args)["text"], "text")
    expect_equal(run("run", MODEL, *args[2:], stdin=b"Hello world").text, run_json(*args)["text"], "stdin")


@test(needs_model=True)
def _():
    """--stop ends before the text; --logit-bias forbids a token"""
    args = ("-p", "Hello world", "-n", 24, "--temp", 0, "--ignore-eos")
    plain = run_json(*args)
    text = plain["text"]
    expect(len(text) > 2, "some text")
    wanted = text[len(text) // 2]
    stopped = run_json(*args, "--stop", wanted)
    expect_equal(stopped["stop"], "stop", "stop")
    expect_equal(stopped["text"], text[:text.index(wanted)], "text before the stop")
    first = plain["tokens"][0]
    expect(run_json(*args, "--logit-bias", f"{first}=-inf")["tokens"][0] != first, "forbidden token")
    expect_error(run("run", MODEL, "-p", "x", "--logit-bias", "2000000000=1"), 1, "2000000000")


@test(needs_model=True)
def _():
    """the context's end stops generation; a longer prompt is an error"""
    n = len(ids_of(b"Hello world"))
    document = run_json("-p", "Hello world", "-n", -1, "--ctx", n + 4, "--ignore-eos", "--temp", 0)
    expect_equal(document["stop"], "length", "stop")
    expect_equal(len(document["tokens"]), 5, "the context's tokens and one more")
    result = run("run", MODEL, "-p", "Hello world", "--ctx", max(1, n - 1))
    expect_error(result, 1)


@test(needs_model=True)
def _():
    """template prints what the model sees, without a newline added"""
    messages = b'[{"role":"user","content":"Hi"}]'
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "t.jinja"
        path.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}")
        plain = run("template", MODEL, "--template", path, stdin=messages)
        expect_done(plain)
        expect_equal(plain.out, b"<user>Hi", "text")
        prompt = run("template", MODEL, "--template", path, "--add-generation-prompt", "--json", stdin=messages)
        expect_equal(json.loads(prompt.out), {"text": "<user>Hi<assistant>"}, "--json")
        tools = pathlib.Path(folder) / "tools.json"
        tools.write_text('[{"name": "roof"}]')
        path.write_text("{{ tools[0].name }}|{{ strftime_now('%Y') }}")
        expect_equal(run("template", MODEL, "--template", path, "--tools", tools, "--now", "86400", stdin=messages).out,
                     b"roof|1970", "tools and time")


@test()
def _():
    """messages and tools that are no JSON arrays of objects"""
    for bad, part in ((b"", "byte 0"), (b"{", "messages"), (b"[1]", "item 0"), (b'{"role":"user"}', "array"),
                      (b'[{"role":"user"},{"content":"x"}]', "item 1"), (b'[{"role":1}]', '"role"'),
                      (b'[], "tools": []', "messages")):
        expect_error(run("template", "m", stdin=bad), 1, part)
    with tempfile.TemporaryDirectory() as folder:
        tools = pathlib.Path(folder) / "tools.json"
        for bad in ("{}", "[1]", "[", ""):
            tools.write_text(bad)
            expect_error(run("template", "m", "--tools", tools, stdin=b"[]"), 1, "tools")
        tools.write_bytes(b"[\0]")
        expect_error(run("template", "m", "--tools", tools, stdin=b"[]"), 1, "NUL")


def has_template():
    return run("template", MODEL, stdin=b'[{"role":"user","content":"Hi"}]').code == 0


@test(needs_model=True)
def _():
    """--chat: a line a turn, history kept by reusing the session"""
    if not has_template():
        raise Skip("the model has no chat template")
    document = run_json("--chat", "-n", 4, "--temp", 0, stdin=b"one two three\n\n  \nfour\n")
    roles = [message["role"] for message in document["messages"]]
    expect_equal(roles, ["user", "assistant", "user", "assistant"], "roles")
    expect_equal(document["messages"][0]["content"], "one two three", "first turn")
    expect(document["prefill"]["reused_tokens"] > 0, "the second turn reuses the first")
    expect_equal(document["prefill"]["reused_tokens"] + document["prefill"]["tokens"], document["prompt_tokens"], "sum")
    # A fresh session that gets the whole conversation says the same.
    first = run_json("--chat", "-p", "one two three", "--system", "Be brief.", "-n", 4, "--temp", 0)
    expect_equal(first["messages"][0], {"role": "system", "content": "Be brief."}, "system")
    expect_error(run("run", MODEL, "--chat", stdin=b"\n"), 1, "empty prompt")


@test(needs_model=True)
def _():
    """--system alone is one templated turn"""
    if not has_template():
        raise Skip("the model has no chat template")
    document = run_json("--system", "S", "-p", "Hi", "-n", 2, "--temp", 0)
    expect_equal([message["role"] for message in document["messages"]], ["system", "user", "assistant"], "roles")
    expect(document["options"]["templated"], "templated")


@test(needs_model=True)
def _():
    """logits: shapes, --last, --top and chunk invariance, bit for bit"""
    ids = ids_of(b"Hello world, hello tiles")
    listed = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i}.npy") for i in range(4)]
        result = run("logits", MODEL, "--ids", listed, "-o", paths[0], "--json", "--top", 3)
        expect_done(result)
        expect_done(run("logits", MODEL, "--ids", json.dumps(ids), "-o", paths[1], "--chunk", 1))
        expect_done(run("logits", MODEL, "--ids", listed, "-o", paths[2], "--last"))
        shape, values = read_npy(paths[0])
        expect_equal(shape[0], len(ids), "rows")
        expect_equal(read_npy(paths[1])[1], values, "chunk 1")
        last_shape, last = read_npy(paths[2])
        expect_equal(last_shape, (1, shape[1]), "--last")
        expect_equal(last, values[-shape[1]:], "last row")
        document = json.loads(result.out)
        order = sorted(range(shape[1]), key=lambda i: (-last[i], i))[:3]
        expect_equal([item[0] for item in document["top"]], order, "--top")
        expect(all(abs(item[1] - last[item[0]]) < 1e-4 for item in document["top"]), "top logits")
        piped = run("logits", MODEL, "--ids", listed, "-o", "-")
        expect_done(piped)
        expect_equal(piped.out, pathlib.Path(paths[0]).read_bytes(), "-o -")
        text = run("logits", MODEL, "-p", "Hello world, hello tiles", "-o", paths[3])
        expect_done(text)
        expect_equal(read_npy(paths[3])[0][0], len(ids), "rows of the text")


@test(needs_model=True)
def _():
    """logits --layers writes one file per value, rows of all chunks"""
    ids = ids_of(b"Hello world, hello tiles")
    with tempfile.TemporaryDirectory() as folder:
        contents = []
        for chunk in ("256", "2"):
            directory = os.path.join(folder, chunk)
            expect_done(run("logits", MODEL, "--ids", ",".join(map(str, ids)), "--json", "--layers", directory,
                            "--chunk", chunk))
            names = sorted(os.listdir(directory))
            expect(names and all(name.endswith(".npy") for name in names), names)
            contents.append({name: read_npy(os.path.join(directory, name)) for name in names})
        expect(any(shape[0] == len(ids) for shape, _ in contents[0].values()), "a value with all rows")
        expect_equal(sorted(contents[1]), sorted(contents[0]), "names")
        for name, (shape, values) in contents[0].items():
            if shape[0] == len(ids):
                expect_equal(contents[1][name], (shape, values), name)
        expect_error(run("logits", MODEL, "--ids", "1", "--json", "--layers", "/dev/null"), 1, "/dev/null")


@test(needs_model=True)
def _():
    """perplexity: agrees with logits; each token scored once in sliding windows"""
    import math
    text = "Hello world, hello tiles, hello roofs and houses"
    ids = ids_of(text.encode())
    result = run("perplexity", MODEL, "-p", text, "--json")
    expect_done(result)
    document = json.loads(result.out)
    expect_equal(document["tokens"], len(ids) - 1, "tokens")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "l.npy")
        expect_done(run("logits", MODEL, "--ids", ",".join(map(str, ids)), "-o", path))
        (n, width), values = read_npy(path)
    total = 0.0
    for row in range(n - 1):
        logits = values[row * width:(row + 1) * width]
        high = max(logits)
        total += high + math.log(math.fsum(math.exp(x - high) for x in logits)) - logits[ids[row + 1]]
    expect(abs(document["nll_sum"] - total) < 1e-6 * max(1, abs(total)), (document["nll_sum"], total))
    expect(abs(document["nll"] - total / (n - 1)) < 1e-6, "mean")
    expect(abs(document["perplexity"] / math.exp(total / (n - 1)) - 1) < 1e-6, "perplexity")
    for ctx, stride in ((4, 1), (5, 2), (6, 3), (len(ids) - 1, 1), (len(ids), 1)):
        if ctx > 3:
            windows = run("perplexity", MODEL, "-p", text, "--json", "--ctx", ctx, "--stride", stride)
            expect_done(windows)
            expect_equal(json.loads(windows.out)["tokens"], len(ids) - 1, f"tokens with ctx {ctx}, stride {stride}")
    line = run("perplexity", MODEL, "-p", text)
    expect(re.match(r"perplexity [\d.]+, nll -?[\d.]+ per token, \d+ tokens scored, context \d+, stride \d+\n$",
                    line.text), line.text)
    expect_error(run("perplexity", MODEL, "--ids", "1"), 1, "at least 2 tokens")


@test(needs_model=True)
def _():
    """inspect shows a model that cannot run, and says why"""
    data = pathlib.Path(MODEL).read_bytes()
    key = b"general.architecture"
    at = data.index(key) + len(key) + 4 + 8  # type, length
    length = int.from_bytes(data[at - 8:at], "little")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.gguf")
        pathlib.Path(path).write_bytes(data[:at] + b"mamba-and-so-on"[:length] + data[at + length:])
        facts = run("inspect", path)
        expect_done(facts)
        expect(re.search(r"^runs +no: cannot run model: .*found mamba", facts.text, re.M), facts.text)
        expect("mode " not in facts.text, "no mode")
        expect("found mamba" in json.loads(run("inspect", path, "--json").out)["refusal"], "refusal")
        expect_error(run("run", path, "-p", "x"), 1, "architecture", "expected one that docs/FORMATS.md lists", "a state-space model")
    expect_equal(json.loads(run("inspect", MODEL, "--json").out)["refusal"], None, "refusal of a model that runs")


@test(needs_model=True)
def _():
    """inspect: facts, sections and --json agree"""
    plain = run("inspect", MODEL)
    expect_done(plain)
    facts = json.loads(run("inspect", MODEL, "--json").out)
    for key in ("format", "architecture", "vocab_tokens", "n_layers", "context_tokens", "n_weights", "n_metadata"):
        expect(key in facts, key)
    expect(facts["format"] in plain.text and facts["architecture"] in plain.text, plain.text)
    full = run("inspect", MODEL, "--json", "--metadata", "--weights", "--ops", "--plan")
    expect_done(full)
    document = json.loads(full.out)
    expect_equal(len(document["metadata"]), facts["n_metadata"], "metadata")
    expect_equal(len(document["weights"]), facts["n_weights"], "weights")
    expect(facts["n_weights"] > 0 and facts["n_metadata"] > 0, "there are weights and metadata")
    expect(document["ops"] and document["plan"], "ops and plan")
    for section in ("--metadata", "--weights", "--ops", "--plan"):
        result = run("inspect", section, MODEL)
        expect_done(result)
        expect(len(result.out) > 0, section)


@test(needs_model=True)
def _():
    """inspect --plan: how often threads wait for one another"""
    found = re.search(r"(\d+) steps in (\d+) stages; barriers: (\d+) for a chunk, (\d+) in lanes, (\d+) for one token",
                      run("inspect", MODEL, "--plan").text)
    expect(found, "counts")
    steps, stages, chunk, lanes, token = map(int, found.groups())
    expect(steps > stages > max(token, lanes) and min(token, lanes) > 0 and chunk in (stages, stages + 1), found.group(0))


@test()
def _():
    """--pack-cache: the same results, a file that the next start maps, a warning where it is damaged"""
    mixed = str(ROOT / "tests" / "data" / "tiny" / "llama-mixed.gguf")
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, "cache")
        args = ("--mode", "fast", "--pack-cache", cache)

        def logits(*more):
            out = os.path.join(folder, "x.npy")
            result = run("logits", mixed, "--ids", "1,2,3,4", "-o", out, *more)
            expect_done(result)
            return pathlib.Path(out).read_bytes(), result.errors

        plain, _ = logits("--mode", "fast")
        for _ in range(2):
            expect_equal(logits(*args, "--pin"), (plain, ""), "written, then mapped")
        files = os.listdir(cache)
        expect(len(files) == 1 and files[0].startswith("llama-mixed.gguf-") and files[0].endswith(".tegpack"), files)
        with open(os.path.join(cache, files[0]), "r+b") as f:
            f.seek(5000)
            f.write(b"damage")
        got, errors = logits(*args)
        expect_equal(got, plain, "damaged")
        expect(errors.startswith("tegula: warning: pack cache: ") and errors.count("\n") == 1, errors)
        expect_equal(logits(*args), (plain, ""), "written again")
        for command in (["run", mixed, "-p", "a", "-n", "1"], ["bench", mixed, "--pp", "4", "--tg", "0", "--reps", "1"],
                        ["perplexity", mixed, "-f", __file__, "--ctx", "64"]):
            result = run(*command, *args, "--pin")
            expect_done(result)
            expect("warning" not in result.errors, result.errors)
        expect_equal(os.listdir(cache), files, "one file")


@test(needs_model=True)
def _():
    """bench: one row per combination in every format; rates for a single one"""
    args = ["bench", MODEL, "--pp", "8,4", "--tg", "2", "--depth", "0,3", "--chunk", "2,4", "--threads", "1",
            "--kv", "f32,f16", "--reps", "2"]
    result = run(*args, "--format", "json")
    expect_done(result)
    document = json.loads(result.out)
    rows = document["rows"]
    expect_equal(len(rows), 2 * (2 * 2 * 2) + 2 * 2, "rows")
    expect("pp_tps" not in document and "tg_tps" not in document, "no single rate for many rows")
    expect("cpu" in document["machine"] and "cpus" in document["machine"], "machine")
    for row in rows:
        low, mid, high = (row[k] for k in ("min_tokens_per_second", "median_tokens_per_second",
                                           "max_tokens_per_second"))
        expect(0 < low <= mid <= high, row)
        expect(row["test"] in ("pp", "tg") and row["ms_per_chunk"] > 0 and row["reps"] == 2, row)
        expect({"tokens", "depth", "chunk", "threads", "kv", "kv_bytes", "scratch_bytes", "weights_bytes"} <= set(row),
               row)
    csv = run(*args, "--format", "csv")
    expect_equal(len(csv.text.splitlines()), len(rows) + 1, "csv lines")
    table = run(*args)
    expect_equal(len([line for line in table.text.splitlines() if line.startswith("| ")]), len(rows) + 1, "md rows")
    one = json.loads(run("bench", MODEL, "--pp", "4", "--tg", "2", "--reps", "1", "--json").out)
    expect(one["pp_tps"] > 0 and one["tg_tps"] > 0, "single rates")
    only = json.loads(run("bench", MODEL, "--pp", "4", "--tg", "0", "--reps", "1", "--json").out)
    expect("pp_tps" in only and "tg_tps" not in only, "prefill only")
    work = one["rows"][0]
    expect(work["bytes_moved"] > work["kv_bytes"] and work["peak_share"] > 0 and work["bandwidth_share"] > 0, work)
    expect(work["int8_multiply_adds"] + work["float_multiply_adds"] > 0 and work["attention_multiply_adds"] > 0, work)
    double = json.loads(run("bench", MODEL, "--pp", "8", "--chunk", "4", "--tg", "0", "--reps", "1", "--json").out)
    expect_equal(double["rows"][0]["float_multiply_adds"] + double["rows"][0]["int8_multiply_adds"] -
                 work["float_multiply_adds"] - work["int8_multiply_adds"] > 0, True, "more tokens, more work")


@test(needs_model=True)
def _():
    """bench: a page that is well-formed and loads nothing; the machine alone"""
    result = run("bench", MODEL, "--pp", "8", "--tg", "2", "--reps", "2", "--threads", "1", "--format", "html")
    expect_done(result)
    page = xml.etree.ElementTree.fromstring(result.text.split("\n", 1)[1])
    space = "{http://www.w3.org/2000/svg}"
    expect_equal(len(page.findall(f".//{space}rect")), 2, "bars")
    for part in page.iter():
        expect(not ({"src", "href"} & set(part.attrib)) and not part.tag.endswith("script"), part.tag)
    machine = run("bench", "--machine", "--threads", "1", "--json")
    expect_done(machine)
    peaks = json.loads(machine.out)["peaks"]
    expect_equal([p["threads"] for p in peaks], [1], "threads")
    expect(peaks[0]["read_gb_per_second"] > 0, peaks)
    expect("GB/s" in run("bench", "--machine", "--threads", "1").text, "text")
    expect_error(run("bench", "--machine", MODEL), 2, "--machine", "leave it out")
    expect_error(run("bench"), 2, "MODEL")


@test(needs_model=True)
def _():
    """tune: the table, the choice, and that later commands use what was applied"""
    with tempfile.TemporaryDirectory() as folder:
        env = {"XDG_CACHE_HOME": folder}
        args = ["tune", MODEL, "--chunk", "3,5", "--threads", "1", "--ctx", "10", "--budget", "1"]
        plain = run(*args, env=env)
        expect_done(plain)
        expect("| 3 | 64 | 1 |" in plain.text and "chosen" in plain.text, plain.text)
        expect_equal(os.listdir(folder), [], "nothing is kept without --apply")
        page = os.path.join(folder, "page.html")
        result = run(*args, "--apply", "--json", "--html", page, env=env)
        expect_done(result)
        choice = json.loads(result.out)["choice"]
        expect(choice["chunk"] in (3, 5) and choice["threads"] == 1 and choice["reason"], choice)
        drawn = xml.etree.ElementTree.parse(page).getroot()
        space = "{http://www.w3.org/2000/svg}"
        expect_equal((len(drawn.findall(f".//{space}svg")), len(drawn.findall(f".//{space}circle"))), (4, 8), "plots")
        expect(not any({"src", "href"} & set(part.attrib) for part in drawn.iter()), "nothing is loaded")
        options = json.loads(run("run", MODEL, "-p", "a", "-n", "1", "--json", env=env).out)["options"]
        expect_equal((options["chunk"], options["threads"]), (choice["chunk"], 1), "used")
        options = json.loads(run("run", MODEL, "-p", "a", "-n", "1", "--chunk", "7", "--json", env=env).out)["options"]
        expect_equal(options["chunk"], 7, "an option wins")
        lost = run(*args, "--apply", env={"XDG_CACHE_HOME": "/proc/none"})
        expect(lost.code == 1 and "cannot remember" in lost.errors, lost.errors)
    expect_error(run("tune", MODEL, "--chunk", ",".join(map(str, range(1, 70)))), 2, "too many candidates")
