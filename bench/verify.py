#!/usr/bin/env python3
"""`bindery verify` and `inspect --scan`: how much of a dataset one core checks in a second.

    bench/corpus                                          once, makes the corpus
    ~/.cache/bindery/venv/bin/python bench/verify.py [--corpus FILE.jsonl] [BUILD]

BUILD is the folder of the release build [default: build]. Two datasets are packed with the
tokenizer `bytes`, best-fit, rows of 2048, and their files are read once, so that they are in
memory:

    corpus    documents as they are, a few thousand tokens each: most of the work is checking ids
    lines     every line is a document of a few dozen tokens: most of the work is checking segments

    floor     XXH3-128 over the mapped files: the least that any check of a checksum takes
    structure, scan, verify
              one thread; and verify on all threads
    against   --against: the corpus is also read and tokenised again

MB are those of the shards. CPU seconds are user plus system time of all threads in the round that
took the least; wall time and peak memory are those of the same round. `x` is the CPU seconds
divided by the floor's.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from pack import SEQ_LEN, Measured, default_corpus, measure, ourselves, report, run


def hash_files(folder: str, _: str) -> None:
    import mmap

    import xxhash

    for path in sorted(Path(folder).glob("*.arrow")):
        with open(path, "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                xxhash.xxh3_128_hexdigest(data)


def to_lines(jsonl: str, lines: str) -> None:
    """Takes every fourth document; each of its lines becomes a document."""
    with open(jsonl, encoding="utf-8") as documents, open(lines, "w") as out:
        for number, document in enumerate(documents):
            if number % 4 == 0:
                for line in json.loads(document)["text"].splitlines():
                    out.write(json.dumps({"text": line}) + "\n")


TASKS = {"hash-files": hash_files, "to-lines": to_lines}


def own_task(task: str, *arguments: Path) -> list[str]:
    command = ourselves(task, *arguments)
    command[1] = __file__
    return command


class Bench:
    def __init__(self, build: Path, scratch: Path, rounds: int) -> None:
        self.bindery, self.scratch, self.rounds = str(build / "bindery"), scratch, rounds

    def must(self, command: list[str]) -> None:
        refusal = run(command)[3]
        if refusal is not None:
            sys.exit(f"verify.py: {' '.join(command)}: {refusal}")

    def pack(self, name: str, corpus: Path) -> Path:
        dataset = self.scratch / name
        options = ["--seq-len", str(SEQ_LEN), "--no-space-check"]
        self.must([self.bindery, "pack", "-q", "-o", str(dataset), *options, str(corpus)])
        return dataset

    def commands(self, dataset: Path, corpus: Path) -> dict[str, list[str]]:
        alone = ["--threads", "1", str(dataset)]
        verify = [self.bindery, "verify", "-q"]
        return {
            "floor: XXH3-128": own_task("hash-files", dataset, dataset),
            "verify --structure": [*verify, "--structure", *alone],
            "inspect --scan": [self.bindery, "inspect", "-q", "--scan", *alone],
            "verify": [*verify, *alone],
            "verify, all threads": [*verify, str(dataset)],
            "verify --against": [*verify, *alone, "--against", str(corpus)],
        }

    def start_seconds(self) -> float:
        """Returns the start-up time of Python, which is not part of the floor."""
        empty = self.scratch / "empty"
        empty.mkdir(exist_ok=True)
        measured = Measured("start")
        for _ in range(self.rounds):
            measure(measured, own_task("hash-files", empty, empty))
        return measured.cpu_seconds

    def compare(self, name: str, corpus: Path) -> None:
        dataset = self.pack(name, corpus)
        totals = json.loads((dataset / "manifest.json").read_text())["totals"]
        megabytes = sum(path.stat().st_size for path in dataset.glob("*.arrow")) / 1e6
        measured = {what: Measured(what) for what in self.commands(dataset, corpus)}
        for _ in range(self.rounds + 1):  # the first run also brings the files into memory
            for what, command in self.commands(dataset, corpus).items():
                measure(measured[what], command)
        floor = measured["floor: XXH3-128"]
        floor.cpu_seconds = max(floor.cpu_seconds - self.start_seconds(), 1e-3)
        print(f"{name}: {megabytes:.1f} MB, {totals['rows']} rows, "
              f"{totals['segments']} segments")
        print(f"{'what':<30} {'CPU-s':>8} {'wall-s':>8} {'MB/CPU-s':>10} {'peak-MiB':>9} "
              f"{'rows':>8} {'x':>7}")
        for one in measured.values():
            report(one, megabytes, floor.cpu_seconds)

    def run(self, corpus: Path) -> None:
        self.compare("corpus", corpus)
        lines = self.scratch / "lines.jsonl"
        self.must(own_task("to-lines", corpus, lines))
        self.compare("lines", lines)


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] in TASKS:
        TASKS[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build", nargs="?", type=Path, default=Path("build"))
    parser.add_argument("--corpus", type=Path, default=default_corpus())
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not given.corpus.exists():
        sys.exit(f"verify.py: there is no {given.corpus}: run bench/corpus")
    beside = {"prefix": "bindery-bench-", "dir": given.corpus.parent}
    with tempfile.TemporaryDirectory(**beside) as scratch:
        Bench(given.build.resolve(), Path(scratch), given.rounds).run(given.corpus)


if __name__ == "__main__":
    main()
