"""The characters that a test of Unicode's properties goes through."""

import os

from unicodedata2 import category, combining, decomposition

STEP = 17
LAST_OF_WRITING = 0x33FFF  # after it are planes without any, and for private use


def kind(character: str) -> tuple[str, int, bool]:
    """What neighbours in Unicode mostly have in common."""
    return category(character), combining(character), bool(decomposition(character))


def characters() -> list[str]:
    """With BINDERY_TEST_LONG=1 all. Otherwise the first and the last of every run of one kind,
    since what is wrong in a table of ranges is wrong where one ends, and, unless
    BINDERY_TEST_BRIEF=1, every 17th."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    if os.environ.get("BINDERY_TEST_LONG") == "1":
        return every
    chosen = {every[0], every[-1]}
    if os.environ.get("BINDERY_TEST_BRIEF") != "1":
        chosen.update(c for c in every[::STEP] if ord(c) <= LAST_OF_WRITING)
    kinds = [kind(character) for character in every]
    for i in range(1, len(every)):
        if kinds[i] != kinds[i - 1]:
            chosen.update(every[i - 1 : i + 1])
    return sorted(chosen)
