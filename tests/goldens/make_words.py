#!/usr/bin/env python3
"""Writes tests/goldens/words.h: how the patterns of GPT-2, Llama 3, Qwen 2 and SmolLM (digits) cut texts into words, by the package regex, for tests/test_language_gguf.c.

    python3 tests/goldens/make_words.py > tests/goldens/words.h
"""
import regex

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": LLAMA3,
    "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}
TEXTS = [
    "Once upon a time, there's a girl.", "I'LL say it's 'Twas  the   night\n\n  before\tX", "12345 6789.0 + 3,141,592 = x2y3",
    "a\r\n\r\nb \n c\n", "  leading and trailing  ", "\t\ttabs\tand_underscores__x", "zwölf Boxkämpfer: naïve café №5 ½ ٣٤٥٦", "你好，世界！ 👋🌍 ok",
    "f(x)=x**2;//c\n\n\n", " ", "\n", " \n", "' s 'd'D'mx'VEry", "$100.00!?\r\n--end", "a\u00a0b\u3000c \u2028 d", "don't WON'T we'Re",
]


def quoted(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()) + '"'


print("/* Written by tests/goldens/make_words.py with regex", regex.__version__ + ". */")
print("static const struct words {\n    const char *pattern, *text;\n    int bytes[32]; /* of each word; 0 ends them */\n} word_goldens[] = {")
for name, pattern in [*PATTERNS.items(), ("digits", PATTERNS["gpt2"])]:
    for text in TEXTS:
        parts = regex.split(r"(\p{N})", text) if name == "digits" else [text]  # llama.cpp cuts by one pattern after the other
        cuts = [len(m.group().encode()) for part in parts for m in regex.finditer(pattern, part)]
        assert sum(cuts) == len(text.encode()) and len(cuts) < 32
        print(f"    {{ \"{name}\", {quoted(text)}, {{ {', '.join(map(str, cuts))} }} }},")
print("};")
