"""Texts on which tokenizers go wrong, and bytes that are not text. The same every time."""

import random
from collections.abc import Iterator

CONTRACTIONS = ["s", "t", "d", "m", "ll", "ve", "re", "\u017f", "\u017fs", "l", "v", "x"]
SPACES = [" ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u180e",
          "\u2003", "\u2028", "\u2029", "\u200b", "\u202f", "\u205f", "\u3000", "\ufeff"]
EMOJI = ["👍🏽", "👩\u200d👩\u200d👧\u200d👦", "🇩🇪🇫🇷", "❤\ufe0f\u200d🔥", "1\ufe0f\u20e32\ufe0f\u20e3", "🧑🏿\u200d🚀",
         "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"]
RIGHT_TO_LEFT = ["שלום עולם, \u200f123\u200e!", "مرحبا بالعالم ١٢٣",
                 "עברית English עברית", "بِسْمِ ٱللَّهِ"]
ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz  ",
    "0123456789",
    "0123456789 ,.-eE",
    "'sStTrRvVmMdDlLeE\u017f ",
    " \t\r\n",
    " \t\r\na\u3000\xa0\u2003\x85",
    "áéíóúñçàèüößÅŒ ",
    "日本語中文字符かなカナ、。 ",
    "한국어조선말 ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя ",
    "אבגדהוזحخدذرزس ",
    "e\u0301\u0300\u0327\u093f\u0e31\u20dd ",
    "👍🏽👩\u200d🇩🇪\ufe0f ",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "{}()[];:=+-*/<>!&|\"'\\ \n\tabcdef0123",
    "\x00\x01\x02\x1b\x7f\x80\x9f ",
    "¼½¾²³¹ⅣⅫ①②٠١٢०१२𝟘𝟙〇一二三㊀ ",
    "ǅǈǋᾈᾘⅠⅰⒶⓐªº ",
]


def blocks() -> Iterator[str]:
    """Every code point except surrogates, 256 at a time, in words, alone, and among spaces."""
    for begin in range(0, 0x110000, 256):
        if 0xD800 <= begin < 0xE000:
            continue
        letters = [chr(code) for code in range(begin, begin + 256)]
        yield "".join(letters)
        # For planes without characters one form is enough.
        if begin < 0x32000 or 0xE0000 <= begin < 0xE0200:
            yield " ".join(letters)
            yield "".join(f"a{letter}1{letter}\n" for letter in letters)


def edges() -> Iterator[str]:
    """The cases that the patterns were written for."""
    yield ""
    for quote in ["'", "’"]:
        for ending in CONTRACTIONS:
            for cased in {ending, ending.upper(), ending.title(), ending.swapcase()}:
                for before in ["I", "9", " ", "", "!", "é", "\n"]:
                    yield f"{before}{quote}{cased}{quote}{cased} {quote}{cased}x"
    for n in range(1, 40):
        yield "1" * n
        yield " " * n + "x"
        yield "x" + " " * n
        yield "\n" * n + " " * (n % 5) + "x"
        yield "7" * n + "x" + "٣" * n + " ½" * n
    for first in SPACES:
        for second in SPACES:
            yield f"a{first}{second}b{first}{first}{second} c{second}{first}"
            yield f"{first}{second}"
    yield from EMOJI
    yield from RIGHT_TO_LEFT
    yield "".join(EMOJI) * 30
    yield "e" + "\u0301" * 5000 + " x"
    yield "<|endoftext" + "|>"[:1] + " <|endoftext |> <|fim_prefix"
    yield "Z̸̢̨͈͕͇͎͎͖̥̝̦̗̺̟̥̲̍̀̏͐̑̎̓̂͐̀͠͝a̴̧̨̛l̶̢̛̯̗̱̖͙̀g̷̪̑o̵͎͆ text"
    yield "fooBarBAZquxÀÉ́ HTTPServerOK iPhone McDONALD's ŽLUŤOUČKÝ Kůň'S"


def long_runs() -> Iterator[str]:
    """Texts that take quadratic time in careless code. So they do in references: hence only
    spaces."""
    yield " " * 1_000_000
    yield " " * 300_001 + "x"
    yield "\n" * 100_000
    yield "\r\n" * 50_000
    yield "a" * 20_000
    yield "ab" * 10_000
    yield "0123456789" * 3_000
    yield "-" * 20_000
    yield "語" * 8_000
    yield "\x00" * 20_000
    yield "".join(chr(0x4E00 + i * 7 % 20_000) for i in range(20_000))


def texts() -> Iterator[str]:
    yield from edges()
    yield from blocks()
    yield from long_runs()


def random_texts(seed: int, n: int) -> Iterator[str]:
    """Short strings; many use one alphabet, some use all, some use any code points."""
    rng = random.Random(seed)
    for _ in range(n):
        length = rng.choice((1, 2, 3, 5, 8, 13, 21, 40, 80))
        kind = rng.random()
        if kind < 0.6:
            yield "".join(rng.choices(rng.choice(ALPHABETS), k=length))
        elif kind < 0.9:
            chosen = rng.sample(ALPHABETS, 3)
            yield "".join(rng.choice(rng.choice(chosen)) for _ in range(length))
        else:
            yield "".join(random_character(rng) for _ in range(length))


def random_character(rng: random.Random) -> str:
    code = rng.randrange(0x110000 - 0x800) if rng.random() < 0.3 else rng.randrange(0x3000)
    return chr(code if code < 0xD800 else code + 0x800)


def invalid_texts(seed: int) -> list[bytes]:
    """Bytes that are not UTF-8: cut short, overlong, surrogates, too large, and noise."""
    rng = random.Random(seed)
    found = [b"\xff", b"\x80", b"a\xc3", b"a\xe2\x82", b"\xf0\x9f\x91", b"\xc0\xaf",
             b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80",
             b"\xf5\x80\x80\x80", b"\xfe\xff", b" \xa0 \xa0x", b"\xe2\x80 don\xe2't",
             b"1\xff2\xff3", b"\n\xff\n", b"\xef\xbb\xbf\xef\xbb", bytes(range(256)),
             bytes(range(255, -1, -1))]
    for length in (1, 2, 3, 31, 32, 33, 63, 64, 65, 1000, 100_000):
        found.append(rng.randbytes(length))
    whole = "naïve 語 👍 ".encode() * 9
    found += [whole[:cut] for cut in range(1, 40)]
    found += [whole[cut:] for cut in range(1, 40)]
    return found
