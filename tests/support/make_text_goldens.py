"""Prints tests/support/text_goldens.h: texts and the tokens GPT-2's tokeniser gives them.

    python make_text_goldens.py SHARED_DATA >text_goldens.h

Needs PyPI's tiktoken and regex. Each text is also encoded by the rule as published (radford2019, encoder.py): cut with
the pattern, then merge all places of the best pair, over and over; the two must agree.
"""
import pathlib
import random
import sys

import regex
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
data = pathlib.Path(sys.argv[1])
vocabulary = data / "gpt2-bpe"
ranks = data_gym_to_mergeable_bpe_ranks(str(vocabulary / "vocab.bpe"), str(vocabulary / "encoder.json"))
gpt2 = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})


def by_the_rule(text):
    tokens = []
    for word in regex.findall(PATTERN, text):
        parts = [bytes([b]) for b in word.encode()]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda pair: ranks.get(pair[0] + pair[1], 1 << 30))
            if best[0] + best[1] not in ranks:
                break
            merged, i = [], 0
            while i < len(parts):
                joined = i + 1 < len(parts) and (parts[i], parts[i + 1]) == best
                merged.append(parts[i] + parts[i + 1] if joined else parts[i])
                i += 2 if joined else 1
            parts = merged
        tokens += [ranks[p] for p in parts]
    return tokens


TEXTS = [
    "This is some text", "indivisible", "hello 👋 world 🌍", "", " ", "  ", "a", " a", "  a", "a  b", "a \n b", "\n\n\n", "\t\tx",
    "it's I'll we've they're I'm he'd don't 'tis ''s '", "IT'S I'LL", " 's", "x's's", "'", "'l", "'r", "'re've",
    "1234567890 12 1.5e-7 $3.50 50%", "a1b2c3", "½ ² Ⅷ ٣ 一二三", "don’t “quote” — dash…", "naïve café déjà vu",
    "Ελληνικά Русский العربية हिन्दी 中文 日本語 한국어", "e\u0301 combining a\u0308", "👨‍👩‍👧‍👦 🇩🇪 ☕️", "\u00a0nbsp\u2003em\u3000wide\u2028line",
    "   trailing   ", "x\r\ny\r\n", "\x00\x01\x1f\x7f", "<|endoftext|>", "int main(void)\n{\n    return 0;\n}\n", "=" * 70, " " * 70,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis", "a" * 60, "https://example.org/?q=a+b&c=d#e",
    "\ufeffbom \ufffd \U0001f600\U0010fffd", "ⅠⅡ𝟙𝟚 𝒜𝒷", "_snake_case camelCase", "\x85\x1c\x1d",
]
rng = random.Random(6)
alphabet = "abcdefgh   '''stremvld\n\t0123.,;-!éß中あ🙂\u00a0\u0301½"
TEXTS += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 60))) for _ in range(24)]


def literal(text):
    return '"' + "".join(f"\\{b:03o}" if b < 32 or b > 126 or b in b'"\\?' else chr(b) for b in text.encode()) + '"'


def fnv(numbers):
    h = 0xCBF29CE484222325
    for n in numbers:
        h = (h ^ n) * 0x100000001B3 % 2**64
    return h


print("/* Made by tests/support/make_text_goldens.py with tiktoken", tiktoken.__version__, "and regex", regex.__version__ + ". */")
print("/* clang-format off */")
print("static const struct { const char *text; int bytes, count; int32_t tokens[160]; } bpe_goldens[] = {")
for text in TEXTS:
    tokens = gpt2.encode_ordinary(text)
    assert tokens == by_the_rule(text), text
    assert len(tokens) <= 160
    body = ", ".join(map(str, tokens)) or "0"
    print(f"    {{ {literal(text)}, {len(text.encode())}, {len(tokens)}, {{ {body} }} }},")
print("};")
play = gpt2.encode_ordinary((data / "tinyshakespeare" / "input.txt").read_text())
print("/* Tiny Shakespeare: tokens, and FNV-1a over their numbers. */")
print(f"enum {{ SHAKESPEARE_TOKENS = {len(play)} }};")
print(f"static const uint64_t shakespeare_hash = 0x{fnv(play):016x}u;")
