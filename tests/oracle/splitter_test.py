"""The words are those of tiktoken and of Hugging Face's tokenizers: for code points of every kind
beside letters, digits, spaces and apostrophes, and for random text; and the tables are those that
the script makes.

Usage: splitter_test.py SPLIT_WORDS. With BINDERY_TEST_LONG=1 for every code point (tiktoken: every
assigned one) and for more random text; with BINDERY_TEST_BRIEF=1, for less."""

import os
import random
import struct
import subprocess
import sys
import unittest
from pathlib import Path

import tiktoken
import unicodedata2
from characters import characters
from tokenizers import Regex, pre_tokenizers

ROOT = Path(__file__).resolve().parents[2]
SPLIT_WORDS = sys.argv.pop()
LONG = os.environ.get("BINDERY_TEST_LONG") == "1"
BRIEF = os.environ.get("BINDERY_TEST_BRIEF") == "1" and not LONG
SEED = 8

SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PREFIXED = r"[^\r\n\p{L}\p{N}]?"
MARKS = r" ?[^\s\p{L}\p{N}]+"
O200K = (
    rf"{PREFIXED}{UPPER}*{LOWER}+{SUFFIX}?|{PREFIXED}{UPPER}+{LOWER}*{SUFFIX}?"
    rf"|\p{{N}}{{1,3}}|{MARKS}[\r\n/]*|{LINES}"
)
LLAMA3 = rf"{SUFFIX}|{PREFIXED}\p{{L}}+|\p{{N}}{{1,3}}|{MARKS}[\r\n]*|{LINES}"
# The patterns as Hugging Face's files write them.
HUGGING_FACE = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": rf"{SUFFIX}|{PREFIXED}\p{{L}}+|\p{{N}}{{1,3}}|{MARKS}[\r\n]*|\s+\z|{LINES}",
    "llama3": LLAMA3,
    "qwen2": rf"{SUFFIX}|{PREFIXED}\p{{L}}+|\p{{N}}|{MARKS}[\r\n]*|{LINES}",
    "o200k": O200K,
    "digit": r"\p{N}",
}
# Other spellings that bd_pattern_of_expression() recognises.
OTHER_SPELLINGS = [
    ("gpt2", r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    ("gpt2", r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    (
        "llama3",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
]
# Expressions that match one character of a set.
SETS = [
    *[rf"\p{{{name}}}" for name in ("L", "Lu", "Ll", "Lt", "M", "N", "Nd", "Z", "Letter")],
    *[r"\P{L}", r"\p{^Ll}", r"\d", r"\D", r"\s", r"\S", "(?i:[k-t])", "(?i:[^k-t])"],
    *[r"[\p{Lm}\p{Lo}]", r"[^\P{M}]", r"[\P{N}1]", r"[^\S\p{Lu}]", r"(?i:\p{Lu})"],
    *[UPPER, LOWER, r"(?i)[\s\dk]", r"[\D]", r"(?i:k|s)", r"(?i:[^\s\dk])"],
]
# The patterns of tiktoken_ext/openai_public.py in tiktoken 0.14, and of Llama 3's own code.
TIKTOKEN = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": O200K,
    "llama3": LLAMA3,
}
FRAGMENTS = [
    *"   \n\r\t\u00a0\u0085\u2028\u3000\u200b\u180e''''stSTſ12٣½Ⅷ𝟘abZéÉǅʰ漢あก\u0301\u0903😀!/-_.\0",
    *["re", "ve", "ll", "'re", "'VE", "'s", "'ſ", "\r\n", "👍🏽", "𝒜", "𐐀", "\U0002ebf0"],
]


def words_of(steps: list[str], texts: list[bytes]) -> list[list[bytes]]:
    """Returns the words that the splitter cuts each of `texts` into."""
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    command = [SPLIT_WORDS, *steps]
    out = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
    found, at = [], 0
    for text in texts:
        (n,) = struct.unpack_from("<I", out, at)
        ends = struct.unpack_from(f"<{n}I", out, at + 4)
        at += 4 + 4 * n
        found.append([text[a:b] for a, b in zip((0, *ends), ends)])
    assert at == len(out)
    return found


def split_of(expression: str):
    return pre_tokenizers.Split(Regex(expression), "isolated")


def hugging_face_words(splitter, text: str) -> list[bytes]:
    return [word.encode() for word, _ in splitter.pre_tokenize_str(text)]


def tiktoken_words(expression: str, texts: list[str]) -> list[list[bytes]]:
    """tiktoken does not show words, but a word that is a token as a whole becomes that token. So
    with every part of every text as a token, its tokens are the words."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    for text in texts:
        data = text.encode()
        for begin in range(len(data)):
            for end in range(begin + 1, len(data) + 1):
                ranks.setdefault(data[begin:end], len(ranks))
    encoding = tiktoken.Encoding(
        "words", pat_str=expression, mergeable_ranks=ranks, special_tokens={}
    )
    parts = {rank: part for part, rank in ranks.items()}
    return [[parts[token] for token in encoding.encode_ordinary(text)] for text in texts]


def random_texts(n: int, longest: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [
        "".join(source.choice(FRAGMENTS) for _ in range(source.randint(1, longest)))
        for _ in range(n // 10 if BRIEF else n)
    ]


class Words(unittest.TestCase):
    maxDiff = 2000

    def test_tables_are_what_the_script_makes(self):
        script = ROOT / "scripts" / "make-unicode-tables"
        made = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, check=True)
        kept = (ROOT / "common" / "tokenizer" / "split" / "unicode_tables.c").read_bytes()
        self.assertTrue(made.stdout == kept, "scripts/make-unicode-tables makes another table")

    def test_code_points_are_cut_as_hugging_face_does(self):
        """Each in contexts that show its class."""
        points = characters()
        texts = [
            "".join(f" {x}a{x} 1{x}1 {x}{x}'{x}A{x}\n{x}\n" for x in points[i : i + 64])
            for i in range(0, len(points), 64)
        ]
        encoded = [text.encode() for text in texts]
        for name, expression in HUGGING_FACE.items():
            splitter = split_of(expression)
            for text, found in zip(texts, words_of([name], encoded)):
                self.assertEqual(hugging_face_words(splitter, text), found, name)

    def test_code_points_are_cut_as_tiktoken_does(self):
        """All assigned code points, or only those where the category changes."""
        category = unicodedata2.category
        points = [
            x
            for x in characters()
            if (LONG and category(x) != "Cn")
            or category(x) != category(chr(max(ord(x), 1) - 1))
        ]
        for name, expression in TIKTOKEN.items():
            for i in range(0, len(points), 20000):
                some = points[i : i + 20000]
                texts = [
                    text
                    for x in some
                    for text in (f" {x}", f"a{x}", f"1{x}", f"{x}a", f"{x}1", f"'{x}", f"A{x}!")
                ]
                found = words_of([name], [text.encode() for text in texts])
                self.assertEqual(tiktoken_words(expression, texts), found, name)

    def test_random_text_is_cut_as_hugging_face_does(self):
        texts = random_texts(100_000 if LONG else 4_000, 60, SEED)
        for name, expression in [*HUGGING_FACE.items(), *OTHER_SPELLINGS]:
            splitter = split_of(expression)
            for text, found in zip(texts, words_of([name], [t.encode() for t in texts])):
                self.assertEqual(hugging_face_words(splitter, text), found, name)

    def test_random_text_is_cut_as_tiktoken_does(self):
        for seed in range(SEED, SEED + (20 if LONG else 1)):
            texts = random_texts(4000 if LONG else 2000, 12, seed)
            for name, expression in TIKTOKEN.items():
                found = words_of([name], [text.encode() for text in texts])
                self.assertEqual(tiktoken_words(expression, texts), found, name)

    def test_steps_are_cut_as_hugging_face_does(self):
        """StarCoder's Digits and then GPT-2's pattern."""
        both = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), split_of(HUGGING_FACE["gpt2"])]
        )
        texts = random_texts(10_000 if LONG else 4_000, 40, SEED)
        for text, found in zip(texts, words_of(["digit", "gpt2"], [t.encode() for t in texts])):
            self.assertEqual(hugging_face_words(both, text), found)

    def check_expressions(self, expressions: list[str], texts: list[str]):
        encoded = [text.encode() for text in texts]
        for expression in expressions:
            splitter = split_of(expression)
            for text, found in zip(texts, words_of(["/" + expression], encoded)):
                self.assertEqual(hugging_face_words(splitter, text), found, expression)

    def test_code_points_are_in_the_sets_of_hugging_face(self):
        """Also code points that are newer than the version of Unicode that PCRE2 knows."""
        points = characters()
        texts = [
            "".join(f"{x}\x01" for x in points[i : i + 64]) for i in range(0, len(points), 64)
        ]
        self.check_expressions(SETS, texts)

    def test_other_expressions_are_cut_as_hugging_face_does(self):
        expressions = [
            *HUGGING_FACE.values(),
            r"[!-/]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+| ?[^\s\p{L}\p{M}]+[\r\n]*|\s+",
            rf"{PREFIXED}{UPPER}*{LOWER}+|{PREFIXED}{UPPER}+{LOWER}*|\p{{N}}|{MARKS}|\s+",
            r"\p{N}{1,3}+|\S",
            r"[^\S ]+|a{,2}",
            r"(?i:'s|s1)|$|^.",
            r"\P{L}\v|\p{^N}{2,3}?s|\d+",
            r"(?i:[s1][^t]\p{Lu}?|[^a-m\s])|[-\p{L}]+|[^\d-]",
            r"",
        ]
        self.check_expressions(expressions, random_texts(3000, 40, SEED))


if __name__ == "__main__":
    unittest.main()
