"""Tokenising stays within the memory that `bindery tokenize --help` states, for any text."""

import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import program
import reference_tokenizers as reference
from program import ProgramTest

MIB = 1 << 20
ENCODER_MIB = 128
PER_BYTE = 12
N_BYTES = 10_000_000

# A child's peak is at least that of the process that starts it, so a small process starts it.
MEASURE = """
import os, sys
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@cache
def worst_texts() -> dict[str, bytes]:
    rng = random.Random(8)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    han = "".join(chr(0x4E00 + rng.randrange(20_000)) for _ in range(N_BYTES // 3))
    words = (bytes(rng.choices(letters, k=rng.randrange(1, 12))) for _ in range(N_BYTES // 7))
    return {
        "one letter": b"a" * N_BYTES,
        "no spaces": bytes(rng.choices(letters, k=N_BYTES)),
        "random bytes": rng.randbytes(N_BYTES),
        "no word twice": b" ".join(words),
        "random characters": han.encode(),
        "spaces": b" " * N_BYTES,
    }


class Memory(ProgramTest):
    def peak_mib(self, spec: str, path: Path, *options: str) -> float:
        command = [program.program(), "tokenize", "--tokenizer", spec, "--count", *options, path]
        run = subprocess.run([sys.executable, "-I", "-c", MEASURE, *command], check=True,
                             capture_output=True, text=True)
        return int(run.stdout.splitlines()[-1]) / 1024

    def test_memory_is_bounded_by_the_document_alone(self) -> None:
        path = self.folder / "text"
        for name in ("gpt2", "cl100k"):
            spec = reference.spec(name)
            path.write_bytes(b"")
            empty = self.peak_mib(spec, path)  # the vocabulary, and perhaps the encoder
            for kind, text in worst_texts().items():
                with self.subTest(name, kind=kind):
                    path.write_bytes(text)
                    peak = self.peak_mib(spec, path)
                    self.assertLess(peak, empty + ENCODER_MIB + PER_BYTE * N_BYTES / MIB)

    def test_memory_does_not_grow_with_the_number_of_documents(self) -> None:
        path = self.folder / "text"
        spec = reference.spec("gpt2")
        path.write_bytes(b"")
        empty = self.peak_mib(spec, path)
        text = worst_texts()["no word twice"].replace(b" ", b" \n")
        path.write_bytes(text * 5)
        self.assertLess(self.peak_mib(spec, path, "--lines"), empty + ENCODER_MIB + 16)


if __name__ == "__main__":
    program.main()
