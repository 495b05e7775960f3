"""The memory of `bindery inspect` and `verify` depends on the shards that are read at once, not on
all shards.

With BINDERY_TEST_LONG=1 the datasets have 400 MB and 2 GB.
"""

import os
import subprocess
from pathlib import Path

import program
from program import ProgramTest
from unfinished import json_lines

SEED = 20240614
SIZES = (200_000_000, 1_000_000_000) if program.LONG else (40_000_000, 160_000_000)  # bytes of text
MOST_BYTES = 200 << 20
# Two threads each map a shard of 34 MB, which may be in memory at the same time; the larger
# dataset has 240 MB more of them.
MOST_GROWTH_BYTES = 68_000_000


class Memory(ProgramTest):
    def packed(self, name: str, size_bytes: int) -> Path:
        lines = json_lines(f"{SEED}", 8_000_000)
        path = self.folder / f"{name}.jsonl"
        with path.open("wb") as stream:
            for _ in range(-(-size_bytes // len(lines))):
                stream.write(lines)
        dataset = self.pack(self.folder / name, [path], "--unit-size", "16M")
        path.unlink()
        return dataset

    def peak(self, expected_status: int, *arguments: object) -> int:
        """Returns the peak of the program's memory in bytes."""
        command = [program.program(), *map(str, arguments), "--threads", "2"]
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(run.returncode, expected_status, command)
        return usage.ru_maxrss * 1024

    def test_a_larger_dataset_takes_no_more_memory(self) -> None:
        small, large = (self.packed(f"d{size}", size) for size in SIZES)
        for options in (["--scan"], ["--duplicates", "--memory", 0], []):
            with self.subTest(options):
                peaks = [self.peak(0, "inspect", *options, dataset) for dataset in (small, large)]
                print(f"{options}: {peaks[0] >> 20} MiB, then {peaks[1] >> 20} MiB")
                self.assertLess(max(peaks), MOST_BYTES)
                self.assertLessEqual(peaks[1], peaks[0] + MOST_GROWTH_BYTES)
        self.assertLess(self.peak(1, "inspect", "--memory", 0, "--diff", small, large), MOST_BYTES)

    def test_documents_of_a_line_take_little_more(self) -> None:
        """Both shards hold 1.5 million documents each."""
        path = self.folder / "lines.jsonl"
        with path.open("wb") as stream:
            for first in range(0, 3_000_000, 10_000):
                numbers = range(first, first + 10_000)
                lines = (b'{"text": "%0*d"}\n' % (7 + n * 11 % 35, n) for n in numbers)
                stream.write(b"".join(lines))
        dataset = self.pack(self.folder / "lines", [path], "--unit-size", "64M")
        for command in (["inspect", "--scan"], ["verify", "--quiet"]):
            with self.subTest(command):
                peak = self.peak(0, *command, dataset)
                print(f"{command}: {peak >> 20} MiB")
                self.assertLess(peak, MOST_BYTES)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
