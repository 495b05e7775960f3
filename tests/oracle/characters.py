"""The characters on which the tests of Unicode properties run."""

import os

from unicodedata2 import category, combining, decomposition

STEP = 17
LAST_OF_WRITING = 0x33FFF  # the planes after it are empty, or for private use


def kind(character: str) -> tuple[str, int, bool]:
    """Returns properties that neighbours in Unicode mostly share."""
    return category(character), combining(character), bool(decomposition(character))


def characters() -> list[str]:
    """With BINDERY_TEST_LONG=1 all. Otherwise the first and the last of every run of one kind,
    because an error in a table of ranges shows at the end of a range, and, unless
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
