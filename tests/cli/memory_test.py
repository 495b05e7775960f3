"""Packing takes the memory of its units, however large the corpus is.

With BINDERY_TEST_LONG=1 the corpora have 200 MB and 1 GB, in units of the default size.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import program
from program import ProgramTest
from unfinished import json_lines

SEED = 20240614
MOST_BYTES = 512 << 20
MOST_GROWTH = 1.1  # of the larger corpus over the smaller


@dataclass(frozen=True)
class Sizes:
    """Of two corpora, and the option of the units that they have both many of."""

    small: int
    large: int
    options: tuple[str, ...] = ()


SIZES = (
    Sizes(200_000_000, 1_000_000_000)
    if program.LONG
    else Sizes(20_000_000, 100_000_000, ("--unit-size", "4M"))
)


def write_corpus(path: Path, lines: bytes, size_bytes: int) -> None:
    """The lines again and again, compressed if the name says so."""
    with pa.output_stream(path, compression="detect") as stream:
        for _ in range(-(-size_bytes // len(lines))):
            stream.write(lines)


class Memory(ProgramTest):
    def peak_of_packing(self, path: Path, *options: str) -> int:
        """The most bytes that the program had in memory at once."""
        dataset = self.folder / "dataset"
        arguments = ["pack", "-q", "-o", dataset, "--threads", "2", *options, path]
        command = [program.program(), *map(str, arguments)]
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(run.returncode, 0, command)
        self.assertTrue((dataset / "manifest.json").exists())
        subprocess.run(["rm", "-r", dataset], check=True)
        return usage.ru_maxrss * 1024

    def test_a_larger_corpus_takes_no_more_memory(self) -> None:
        lines = json_lines(f"{SEED}", 8_000_000)
        for ending in ["jsonl", "jsonl.zst"]:
            with self.subTest(ending):
                peaks = []
                for size_bytes in (SIZES.small, SIZES.large):
                    path = self.folder / f"corpus.{ending}"
                    write_corpus(path, lines, size_bytes)
                    peaks.append(self.peak_of_packing(path, *SIZES.options))
                    path.unlink()
                print(f"{ending}: {peaks[0] >> 20} MiB, then {peaks[1] >> 20} MiB")
                self.assertLess(max(peaks), MOST_BYTES)
                self.assertLessEqual(peaks[1], peaks[0] * MOST_GROWTH)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
