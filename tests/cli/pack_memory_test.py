"""The memory of packing is bounded by the size of a unit, however large the corpus is, and however
much data a table of a few kilobytes stands for. A proof checks first if memory is enough.

With BINDERY_TEST_LONG=1 the corpora have 200 MB and 1 GB, in units of the default size.
"""

import os
import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import program
from program import ProgramTest, bindery
from unfinished import json_lines

SEED = 20240614
MOST_BYTES = 512 << 20
MOST_GROWTH = 1.1  # ratio of the larger corpus to the smaller
MOST_TABLE_BYTES = 1_000_000_000  # while a hostile table is packed or refused


@dataclass(frozen=True)
class Sizes:
    """Sizes of two corpora, and the option that cuts both into many units."""

    small: int
    large: int
    options: tuple[str, ...] = ()


SIZES = (
    Sizes(200_000_000, 1_000_000_000)
    if program.LONG
    else Sizes(20_000_000, 100_000_000, ("--unit-size", "4M"))
)


def write_corpus(path: Path, lines: bytes, size_bytes: int) -> None:
    """Repeats the lines, compressed if the name says so."""
    with pa.output_stream(path, compression="detect") as stream:
        for _ in range(-(-size_bytes // len(lines))):
            stream.write(lines)


class Memory(ProgramTest):
    def run_pack(self, path: Path, *options: str) -> tuple[int, int, str]:
        """Returns exit status, the peak of the program's memory in bytes, and its error
        output."""
        dataset = self.folder / "dataset"
        arguments = ["pack", "-q", "-o", dataset, "--threads", "2", *options, path]
        command = [program.program(), *map(str, arguments)]
        with (self.folder / "said").open("w+b") as said:
            run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=said)
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            words = said.read().decode()
        self.assertEqual((dataset / "manifest.json").exists(), run.returncode == 0, words)
        subprocess.run(["rm", "-rf", dataset], check=True)
        return run.returncode, usage.ru_maxrss * 1024, words

    def peak_of_packing(self, path: Path, *options: str) -> int:
        """Returns the peak of the program's memory in bytes."""
        status, peak, said = self.run_pack(path, *options)
        self.assertEqual(status, 0, said)
        return peak

    def test_a_small_table_cannot_take_all_memory(self) -> None:
        outcomes = {}
        # In another process: the memory of this one would count for its children.
        script = program.ROOT / "tests" / "oracle" / "hostile_tables.py"
        subprocess.run([sys.executable, script, self.folder], check=True)
        for line in (self.folder / "tables").read_text().splitlines():
            name, *options = line.split()
            path = self.folder / name
            with self.subTest(name):
                self.assertLess(path.stat().st_size, 1_000_000)
                status, peak, said = self.run_pack(path, *options)
                self.assertLess(peak, MOST_TABLE_BYTES)
                self.assertIn(status, (0, 2), said)
                if status == 2:
                    self.assertIn(f"'{path}'", said)
                outcomes[name] = f"{peak >> 20} MiB" + (", refused" if status else "")
        print(outcomes)
        self.assertGreaterEqual(len(outcomes), 20)

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

    def test_a_proof_looks_for_memory_first(self) -> None:
        """7 million parameters take 72 bytes each, eight of them for the model."""
        pq.write_table(pa.table({"input_ids": [[1, 2, 3, 4, 5]]}), self.folder / "ids.parquet")
        wide = self.pack(self.folder / "wide", [self.folder / "ids.parquet"], "--seq-len", 8,
                         "--vocab-size", 50_000, "--separator-id", 0)
        said = r"the proof takes \d.* MiB of memory for .* parameters, and .* are free: --probe"
        for n_free, status in ((600 << 20, 2), (None, 0)):
            def limit() -> None:
                if n_free:
                    resource.setrlimit(resource.RLIMIT_AS, (n_free, n_free))
            result = bindery("prove", wide, "--threads", 1, preexec_fn=limit)
            self.assertEqual(result.status, status, result)
            self.assertEqual(bool(re.search(said, result.stderr)), status == 2, result)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
