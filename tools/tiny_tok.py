"""tiny_tok: small tokenizers of the five kinds that the tiny models need.

Each kind gives the same vocabulary in both forms in which models carry it: a `tokenizer.json` with its
`tokenizer_config.json`, and GGUF keys. Merges are learned from the text below by a plain byte-pair loop (most frequent
pair first, then alphabetical), so that the result is the same everywhere and no tokenizer library is needed.

kind      | family                  | pre-tokenizer                    | notes
llama3    | byte-level BPE          | llama-3 pattern                  | ignore_merges, begin-of-text added
qwen2     | byte-level BPE          | llama-3 pattern, single digits   | NFC, nothing added
smollm    | byte-level BPE          | single digits, then gpt-2        | nothing added
llama2    | SPM-like, byte fallback | none; a space is put in front    | <s> added
gemma     | SPM-like, byte fallback | none; no space in front          | <bos> added, runs of spaces and newlines are tokens
phi3      | as llama2               |                                  | nothing added; control tokens swallow white space after them
"""
import re

TEXT = """The keeper of the roof counts the tiles in the morning, and the tiles in the evening. There are more in the
evening. A reader who wants to know the reason reads the book of the house: the rain takes the water to the sea, the sea
gives it to the wind, and the wind that sings in the chimney carries the thing that it finds. When the tiles are warm the
cat is there. It is the one thing in this story that does not move; the others, the stones, the rivers and the letters
of the names, are always on their way to another place. In the end the keeper writes the number and closes the door.
Then the next one opens it, counts them again and finds that the number is not the same number as before."""

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3_CHAT = ("{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
               "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
LLAMA2_CHAT = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
               "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}"
               "{% endif %}{% endfor %}")
GEMMA_CHAT = ("{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + "
              "('model' if message['role'] == 'assistant' else message['role']) + '\n' + message['content'] | trim + "
              "'<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}")
PHI3_CHAT = ("{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
             "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}")

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_alphabet():
    """GPT-2's byte -> printable character table."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def learn(words, n):
    """Byte-pair merges of a list of symbol tuples."""
    words, merges = [list(w) for w in words], []
    while len(merges) < n:
        count = {}
        for w in words:
            for pair in zip(w, w[1:]):
                count[pair] = count.get(pair, 0) + 1
        best = min(count, key=lambda p: (-count[p], p))
        merges.append(best)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [best[0] + best[1]]
                i += 1
    return merges


class Tok:
    """tokens and types by id; merges (byte-level) or scores (SPM); hf, config: the two JSON files; keys: for GGUF."""

    def __init__(self, kind, tokens, types):
        self.kind, self.tokens, self.types = kind, tokens, types
        self.merges, self.scores, self.hf, self.config = None, None, None, None
        self.bos = self.eos = None

    def id(self, text):
        return self.tokens.index(text)

    def gguf(self, g):
        from tiny_gguf import ARR, BOOL, F32, I32, STR, U32
        spm = self.scores is not None
        g.key("tokenizer.ggml.model", STR, "llama" if spm else "gpt2")
        g.key("tokenizer.ggml.pre", STR, {"llama3": "llama-bpe", "qwen2": "qwen2", "smollm": "smollm"}.get(self.kind,
                                                                                                         "default"))
        shown = [t.replace("\u2581", " ") if spm and k == USER else t for t, k in zip(self.tokens, self.types)]
        g.key("tokenizer.ggml.tokens", (ARR, STR), shown)
        if spm:
            g.key("tokenizer.ggml.scores", (ARR, F32), self.scores)
        g.key("tokenizer.ggml.token_type", (ARR, I32), self.types)
        if not spm:
            g.key("tokenizer.ggml.merges", (ARR, STR), ["%s %s" % m for m in self.merges])
        if self.bos is not None:
            g.key("tokenizer.ggml.bos_token_id", U32, self.bos)
        g.key("tokenizer.ggml.eos_token_id", U32, self.eos)
        if spm:
            g.key("tokenizer.ggml.unknown_token_id", U32, self.types.index(UNKNOWN))
            g.key("tokenizer.ggml.add_space_prefix", BOOL, self.kind != "gemma")
        g.key("tokenizer.ggml.add_bos_token", BOOL, self.adds_bos())
        g.key("tokenizer.ggml.add_eos_token", BOOL, False)
        g.key("tokenizer.chat_template", STR, self.config["chat_template"])

    def adds_bos(self):
        return self.kind in ("llama3", "llama2", "gemma")


def _added(tok, strip=()):
    return [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": t in strip,
             "normalized": "\u2581" in t, "special": k in (CONTROL, UNKNOWN)}
            for i, (t, k) in enumerate(zip(tok.tokens, tok.types)) if k in (CONTROL, UNKNOWN, USER)]


def _post(tok, other):
    if not tok.adds_bos():
        return other
    t, i = tok.tokens[tok.bos], tok.bos
    special = {"SpecialToken": {"id": t, "type_id": 0}}
    add = {"type": "TemplateProcessing", "single": [special, {"Sequence": {"id": "A", "type_id": 0}}],
           "pair": [special, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
           "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]}}}
    return {"type": "Sequence", "processors": [other, add]} if other else add


def _config(tok, cls, template, **more):
    bos = None if tok.bos is None else tok.tokens[tok.bos]
    decoder = {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in tok.hf["added_tokens"]}
    c = {"added_tokens_decoder": decoder, "bos_token": bos, "eos_token": tok.tokens[tok.eos], "chat_template": template,
         "clean_up_tokenization_spaces": False, "model_max_length": 512, "tokenizer_class": cls}
    if bos is not None:
        c["add_bos_token"] = tok.adds_bos()
    c.update(more)
    return c


def _byte_level(kind, n_vocab):
    special = {"llama3": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                          "<|eot_id|>"],
               "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               "smollm": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]}[kind]
    table = byte_alphabet()
    words = [tuple(table[b] for b in w.encode()) for w in re.findall(r" ?[A-Za-z]+|[.,;:]|\s", TEXT)]
    alphabet = sorted(table.values())
    merges = learn(words, n_vocab - 256 - len(special))
    plain = alphabet + ["".join(m) for m in merges]
    if kind == "smollm":                       # control tokens in front, as SmolLM2 has them
        tok = Tok(kind, special + plain, [CONTROL] * len(special) + [NORMAL] * len(plain))
    else:
        tok = Tok(kind, plain + special, [NORMAL] * len(plain) + [CONTROL] * len(special))
    tok.merges = merges
    tok.eos = tok.id({"llama3": "<|end_of_text|>", "qwen2": "<|im_end|>", "smollm": "<|im_end|>"}[kind])
    tok.bos = tok.id("<|begin_of_text|>") if kind == "llama3" else tok.id("<|im_start|>") if kind == "smollm" else None
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind == "smollm"}
    first = ({"type": "Digits", "individual_digits": True} if kind == "smollm" else
             {"type": "Split", "pattern": {"Regex": LLAMA3 if kind == "llama3" else QWEN2}, "behavior": "Isolated",
              "invert": False})
    own = {t: i for i, t in enumerate(tok.tokens) if tok.types[i] == NORMAL or kind == "smollm"}
    tok.hf = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(tok),
              "normalizer": {"type": "NFC"} if kind == "qwen2" else None,
              "pre_tokenizer": {"type": "Sequence", "pretokenizers": [first, level]},
              "post_processor": _post(tok, dict(level, add_prefix_space=True, use_regex=True)),
              "decoder": dict(level, add_prefix_space=True, use_regex=True),
              "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                        "ignore_merges": kind == "llama3", "vocab": own, "merges": [list(m) for m in merges]}}
    tok.config = _config(tok, "Qwen2Tokenizer" if kind == "qwen2" else "PreTrainedTokenizerFast",
                         LLAMA3_CHAT if kind == "llama3" else CHATML)
    return tok


def _spm(kind, n_vocab):
    bar = "\u2581"
    head = ["<pad>", "<eos>", "<bos>", "<unk>"] if kind == "gemma" else ["<unk>", "<s>", "</s>"]
    user = ["\n\n", "\n\n\n", bar * 2, bar * 3, bar * 4] if kind == "gemma" else []
    tail = {"gemma": ["<start_of_turn>", "<end_of_turn>"], "llama2": [],
            "phi3": ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]}[kind]
    chars = sorted(set(TEXT.replace("\n", " ").replace(" ", bar)) | set("0123456789!?'\"()-éü日本語😀"), key=ord)
    if kind == "gemma":
        chars = ["\n"] + chars
    words = [tuple(w) for w in re.findall(bar + "?[A-Za-z]+", TEXT.replace("\n", " ").replace(" ", bar))]
    n_merges = n_vocab - len(head) - len(user) - len(tail) - 256 - len(chars)
    merges = learn(words, n_merges)
    pieces = ["".join(m) for m in merges]
    tokens = head + user + ["<0x%02X>" % b for b in range(256)] + pieces + chars + tail
    kinds = ([UNKNOWN if t == "<unk>" else CONTROL for t in head] + [USER] * len(user) + [BYTE] * 256
             + [NORMAL] * (len(pieces) + len(chars)) + [CONTROL] * len(tail))
    tok = Tok(kind, tokens, kinds)
    first = len(head) + len(user) + 256
    tok.scores = [float(first - i) if first <= i < len(tokens) - len(tail) else 0.0 for i in range(len(tokens))]
    tok.bos = tok.id("<bos>" if kind == "gemma" else "<s>")
    tok.eos = tok.id({"gemma": "<eos>", "llama2": "</s>", "phi3": "<|endoftext|>"}[kind])
    vocab = {t: i for i, t in enumerate(tokens)}
    # every pair that makes a piece, best score first: what converters from sentencepiece write
    pairs = [(l, r, tok.scores[vocab[l + r]]) for p in pieces for l, r in
             sorted(((p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab),
                    key=lambda x: (vocab[x[0]], vocab[x[1]]))]
    pairs.sort(key=lambda x: -x[2])
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": bar}
    back = [{"type": "Replace", "pattern": {"String": bar}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if kind != "gemma":
        back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    tok.hf = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(tok, tail if kind == "phi3" else ()),
              "normalizer": replace if kind == "gemma" else
              {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": bar}, replace]},
              "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                                "invert": False} if kind == "gemma" else None,
              "post_processor": _post(tok, None), "decoder": {"type": "Sequence", "decoders": back},
              "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                        "vocab": vocab, "merges": [[l, r] for l, r, _ in pairs]}}
    tok.config = _config(tok, "GemmaTokenizer" if kind == "gemma" else "LlamaTokenizer",
                         {"gemma": GEMMA_CHAT, "llama2": LLAMA2_CHAT, "phi3": PHI3_CHAT}[kind], unk_token="<unk>",
                         **({} if kind == "gemma" else {"legacy": False}))
    return tok


_made = {}


def make(kind, n_vocab):
    if (kind, n_vocab) not in _made:
        build = _byte_level if kind in ("llama3", "qwen2", "smollm") else _spm
        _made[kind, n_vocab] = build(kind, n_vocab)
    return _made[kind, n_vocab]
