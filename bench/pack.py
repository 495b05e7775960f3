#!/usr/bin/env python3
"""`bindery pack` on a mixed corpus, beside plain Python and beside lower bounds ("floors").

    bench/corpus                                          once, makes the corpus
    ~/.cache/bindery/venv/bin/python bench/pack.py [--corpus FILE.jsonl] [--rivals|--chats] [BUILD]

BUILD is the folder of the release build [default: build]; it must hold bindery, bench/bench_read
and bench/bench_json. With the tokenizer `bytes`, best-fit, rows of 2048:

    bindery   the corpus as JSONL, gzip, zstd and Parquet; and its reader alone
    python    json.loads, str.encode, best-fit decreasing with a sorted list, pyarrow; it stores
              ids and boundaries, but neither documents, checksums nor a ledger
    floors    simdjson over the lines, gzip -d and zstd -d to /dev/null, and a plain write of as
              many bytes as the dataset has (2 per byte of text, for ids of 16 bits)

With the tokenizer of GPT-2 (scripts/setup --test fetches its files), the same rows, one thread:

    bindery   the corpus as JSONL
    --rivals  also gigatoken and TRL's pack_dataset; datasets, Hugging Face's tokenizers and
              TRL; datatrove (bench/pack-rivals.py): minutes, once each. They are installed from
              the Python index into bench-pack beside what scripts/setup makes, without PyTorch

    --chats   instead of all of the above: the corpus cut into messages of chats, beside the same
              text rendered before, as plain JSONL; what finding messages, rendering and masks cost

MB are those of the uncompressed JSONL. CPU seconds are user plus system time of all threads in the
round that took the least; wall time and peak memory are those of the same round. `x` is the CPU
seconds divided by those of the first line.
"""

import argparse
import bisect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SEQ_LEN = 2048
SEPARATOR = 256
ONE_UNIT = "4G"  # more than the corpus: best-fit over all of it, as the Python below does


# ---- Measuring ----------------------------------------------------------------------------
# A child's peak memory is at least that of the process that starts it, so this one stays small:
# pyarrow and numpy are imported in children alone.


@dataclass
class Measured:
    name: str
    cpu_seconds: float = float("inf")
    wall_seconds: float = 0.0
    peak_mib: float = 0.0
    rows: int | None = None
    refusal: str | None = None  # the reason why there is nothing to measure


def run(command: list[str]) -> tuple[float, float, float, str | None]:
    """Returns CPU seconds, wall seconds, peak MiB, and the error output if the command failed."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace").strip() or f"exit {child.returncode}"
    refusal = text if child.returncode != 0 else None
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, refusal


def measure(measured: Measured, command: list[str], output: Path | None = None) -> None:
    """Keeps the round with the least CPU time. An existing output is removed before."""
    if output and output.is_dir():
        shutil.rmtree(output)
    cpu, wall, peak, measured.refusal = run(command)
    if measured.refusal is None and cpu < measured.cpu_seconds:
        measured.cpu_seconds, measured.wall_seconds, measured.peak_mib = cpu, wall, peak


def report(measured: Measured, megabytes: float, unit_seconds: float) -> None:
    if measured.refusal is not None:
        print(f"{measured.name:<30} left out: {measured.refusal}")
        return
    wall = f"{measured.wall_seconds:.2f}" if measured.wall_seconds else ""
    peak = f"{measured.peak_mib:.0f}" if measured.peak_mib else ""
    rows = "" if measured.rows is None else f"{measured.rows}"
    print(
        f"{measured.name:<30} {measured.cpu_seconds:>8.2f} {wall:>8} "
        f"{megabytes / measured.cpu_seconds:>10.1f} {peak:>9} {rows:>8} "
        f"{measured.cpu_seconds / unit_seconds:>7.2f}",
        flush=True,
    )


# ---- The corpus in every format -------------------------------------------------------------


def to_parquet(jsonl: str, parquet: str) -> None:
    import pyarrow
    from pyarrow import parquet as pq

    with open(jsonl, encoding="utf-8") as lines:
        table = pyarrow.Table.from_pylist([json.loads(line) for line in lines])
    pq.write_table(table, parquet, compression="zstd", row_group_size=10_000)


@dataclass(frozen=True)
class Format:
    name: str
    ending: str
    make: Callable[[Path, Path], list[str]] | None = None  # command from JSONL to this
    floor: tuple[str, ...] | None = None  # command that only decompresses it


def ourselves(task: str, *arguments: Path) -> list[str]:
    return [sys.executable, __file__, task, *map(str, arguments)]


FORMATS = [
    Format("JSONL", ".jsonl"),
    Format("gzip", ".jsonl.gz", lambda a, b: ["sh", "-c", 'gzip -c "$0" >"$1"', str(a), str(b)],
           ("gzip", "-dc")),
    Format("zstd", ".jsonl.zst", lambda a, b: ["zstd", "-qf", str(a), "-o", str(b)],
           ("zstd", "-qdc")),
    Format("Parquet", ".parquet", lambda a, b: ourselves("to-parquet", a, b)),
]


# ---- Plain Python ---------------------------------------------------------------------------


def read_documents(path: str) -> list[bytes]:
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"].encode() for line in lines]


def pieces_of(documents: list[bytes]) -> list[tuple[int, int, int]]:
    """Yields document, offset and length in tokens; a piece after the first repeats a token."""
    pieces = []
    for number, text in enumerate(documents):
        n_tokens, offset = len(text) + 1, 0
        while True:
            length = min(SEQ_LEN, n_tokens - offset)
            pieces.append((number, offset, length))
            if offset + length == n_tokens:
                break
            offset += length - 1
    return pieces


def best_fit(pieces: list[tuple[int, int, int]]) -> list[list[int]]:
    """Puts the longest piece first, into the fullest row with room; returns lists of pieces."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # sorted: tokens left, row
    for number in sorted(range(len(pieces)), key=lambda n: -pieces[n][2]):
        length = pieces[number][2]
        place = bisect.bisect_left(free, (length, -1))
        if place < len(free):
            left, row = free.pop(place)
        else:
            left, row = SEQ_LEN, len(rows)
            rows.append([])
        rows[row].append(number)
        if left > length:
            bisect.insort(free, (left - length, row))
    return rows


def pack_in_python(path: str, folder: str) -> None:
    import numpy
    import pyarrow

    documents = read_documents(path)
    pieces = pieces_of(documents)
    rows = best_fit(pieces)
    ids = numpy.full((len(rows), SEQ_LEN), SEPARATOR, dtype=numpy.uint16)
    boundaries = []
    for row, numbers in enumerate(rows):
        bounds = [0]
        for number in numbers:
            document, offset, length = pieces[number]
            # The row is filled with separators already, so the one after the text is there.
            text = numpy.frombuffer(documents[document][offset : offset + length], numpy.uint8)
            ids[row, bounds[-1] : bounds[-1] + len(text)] = text
            bounds.append(bounds[-1] + length)
        boundaries.append(bounds)
    table = pyarrow.table({
        "input_ids": pyarrow.FixedSizeListArray.from_arrays(ids.reshape(-1), SEQ_LEN),
        "cu_seqlens": pyarrow.array(boundaries, pyarrow.list_(pyarrow.int32())),
    })
    with pyarrow.ipc.new_file(Path(folder, "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    Path(folder, "rows").write_text(str(len(rows)))


# ---- Chats ----------------------------------------------------------------------------------

MESSAGE_CHARACTERS = 400  # about a paragraph


def chats_of(jsonl: str) -> Iterator[list[tuple[str, str]]]:
    """Yields each document as messages, whose roles take turns."""
    for text in map(bytes.decode, read_documents(jsonl)):
        cuts = range(0, len(text) or 1, MESSAGE_CHARACTERS)
        yield [(("user", "assistant")[i % 2], text[cut : cut + MESSAGE_CHARACTERS])
               for i, cut in enumerate(cuts)]


def to_chats(jsonl: str, chats: str) -> None:
    with open(chats, "w", encoding="utf-8") as lines:
        for chat in chats_of(jsonl):
            messages = [{"role": role, "content": text} for role, text in chat]
            lines.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


def to_rendered(jsonl: str, rendered: str) -> None:
    """Writes the text that the chat format `plain` makes of the chats."""
    with open(rendered, "w", encoding="utf-8") as lines:
        for chat in chats_of(jsonl):
            text = "".join(f"{role.capitalize()}:\n{text}\n\n" for role, text in chat)
            lines.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


TASKS = {"to-parquet": to_parquet, "in-python": pack_in_python, "to-chats": to_chats,
         "to-rendered": to_rendered}


# ---- The table ----------------------------------------------------------------------------


class Bench:
    def __init__(self, build: Path, corpus: Path, scratch: Path, rounds: int) -> None:
        self.bindery = build / "bindery"
        self.reader, self.json_floor = (build / "bench" / f"bench_{n}" for n in ("read", "json"))
        self.corpus, self.scratch, self.rounds = corpus, scratch, rounds
        self.megabytes = corpus.stat().st_size / 1e6
        self.dataset = scratch / "dataset"

    def make_inputs(self) -> list[tuple[Format, Path]]:
        inputs = []
        for item in FORMATS:
            path = self.scratch / f"corpus{item.ending}" if item.make else self.corpus
            if item.make:
                subprocess.run(item.make(self.corpus, path), check=True)
            inputs.append((item, path))
        return inputs

    def pack(self, measured: Measured, path: Path, *options: str) -> None:
        command = [str(self.bindery), "pack", "-q", "-o", str(self.dataset)]
        command += ["--seq-len", str(SEQ_LEN), *options, str(path)]
        measure(measured, command, self.dataset)
        if measured.refusal is None:
            manifest = json.loads((self.dataset / "manifest.json").read_text())
            measured.rows = manifest["totals"]["rows"]
        else:
            measured.refusal = measured.refusal.replace(f"{self.scratch}/", "")

    def measure_bindery(self, inputs: list[tuple[Format, Path]]) -> list[Measured]:
        runs = [(Measured(f"bindery {item.name}, 1 thread"), path, ("--threads", "1"))
                for item, path in inputs]
        runs += [(Measured("bindery JSONL, all threads"), self.corpus, ()),
                 (Measured("bindery JSONL, one unit"), self.corpus, ("--unit-size", ONE_UNIT))]
        for _ in range(self.rounds):
            for measured, path, options in runs:
                self.pack(measured, path, *options)
        return [measured for measured, _, _ in runs]

    def measure_python(self) -> Measured:
        output = self.scratch / "python"
        output.mkdir()
        measured = Measured("python JSONL, one unit")
        measure(measured, ourselves("in-python", self.corpus, output))
        if measured.refusal is None:
            measured.rows = int((output / "rows").read_text())
        return measured

    def measure_gpt2(self) -> Measured:
        measured = Measured("bindery GPT-2, 1 thread")
        for _ in range(self.rounds):
            self.pack(measured, self.corpus, "--tokenizer", str(vocabularies() / "gpt2"),
                      "--threads", "1")
        return measured

    def run_chats(self) -> None:
        options = ("--tokenizer", str(vocabularies() / "gpt2"), "--threads", "1", "--long", "split")
        runs = [(Measured("GPT-2, rendered text"), "to-rendered", options),
                (Measured("GPT-2, chats"), "to-chats",
                 (*options, "--messages-field", "messages", "--chat-format", "plain"))]
        paths = [self.scratch / f"{task}.jsonl" for _, task, _ in runs]
        for (_, task, _), path in zip(runs, paths, strict=True):
            subprocess.run(ourselves(task, self.corpus, path), check=True)
        for _ in range(self.rounds):
            for (measured, _, options), path in zip(runs, paths, strict=True):
                self.pack(measured, path, *options)
        megabytes = [path.stat().st_size / 1e6 for path in paths]
        print(f"{'what':<30} {'CPU-s':>8} {'wall-s':>8} {'MB/CPU-s':>10} {'peak-MiB':>9} "
              f"{'rows':>8} {'x':>7}")
        for (measured, _, _), size in zip(runs, megabytes, strict=True):
            report(measured, size, runs[0][0].cpu_seconds)
        more = runs[1][0].cpu_seconds - runs[0][0].cpu_seconds
        print(f"chats of {megabytes[1]:.0f} MB take {more:.2f} CPU seconds more: "
              f"{200 * more / megabytes[1]:.2f} for 200 MB")

    def measure_rival(self, python: Path, tokenizer: Path, name: str) -> Measured:
        output = self.scratch / name
        output.mkdir()
        measured = Measured(f"{RIVALS[name]} GPT-2")
        measure(measured, [str(python), str(Path(__file__).with_name("pack-rivals.py")), name,
                           str(self.corpus), str(tokenizer), str(output)])
        if measured.refusal is None:
            measured.rows = int((output / "rows").read_text())
        else:
            measured.refusal = measured.refusal.splitlines()[-1]
        shutil.rmtree(output)
        return measured

    def run_gpt2(self, with_rivals: bool) -> None:
        """Measures GPT-2's tokenizer; the rivals get the tokenizer.json that our dataset keeps."""
        ours = self.measure_gpt2()
        report(ours, self.megabytes, ours.cpu_seconds)
        if ours.refusal is not None or not with_rivals:
            return
        tokenizer = self.scratch / "tokenizer.json"
        shutil.copy(self.dataset / "tokenizer.json", tokenizer)
        python = make_environment()
        for name in RIVALS:
            measured = self.measure_rival(python, tokenizer, name)
            report(measured, self.megabytes, ours.cpu_seconds)

    def measure_json(self) -> list[Measured]:
        command = [self.json_floor, self.corpus]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        names = {"read": "read alone", "dom": "simdjson DOM", "on-demand": "simdjson on demand"}
        return [Measured(f"floor: {names[line.split()[0]]}", float(line.split()[1]))
                for line in lines.splitlines()]

    def measure_reading(self, inputs: list[tuple[Format, Path]]) -> list[Measured]:
        """Measures reading without tokenising, for comparison with the floors."""
        readable = [(item, path) for item, path in inputs if item.name != "Parquet"]
        command = [self.reader, *(path for _, path in readable)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return [Measured(f"bindery's reader, {item.name}", float(line.split()[-3]))
                for (item, _), line in zip(readable, lines.splitlines(), strict=True)]

    def measure_decompression(self, inputs: list[tuple[Format, Path]]) -> list[Measured]:
        floors = []
        for item, path in inputs:
            if item.floor:
                floors.append(Measured(f"floor: {' '.join(item.floor)}"))
                for _ in range(self.rounds):
                    measure(floors[-1], [*item.floor, str(path)])
        return floors

    def measure_writing(self) -> Measured:
        """Measures writing as many bytes as the shards of the last packed dataset have."""
        n_bytes = sum(path.stat().st_size for path in self.dataset.glob("*.arrow"))
        output = self.scratch / "zeros"
        measured = Measured(f"floor: write and sync {n_bytes / 1e6:.0f} MB")
        command = ["dd", "if=/dev/zero", f"of={output}", "bs=4M", "iflag=count_bytes",
                   f"count={n_bytes}", "conv=fsync", "status=none"]
        for _ in range(self.rounds):
            measure(measured, command)
            output.unlink()
        return measured

    def run(self, with_rivals: bool) -> None:
        inputs = self.make_inputs()
        print(f"{self.corpus}: {self.megabytes:.1f} MB, rows of {SEQ_LEN} tokens")
        print(f"{'what':<30} {'CPU-s':>8} {'wall-s':>8} {'MB/CPU-s':>10} {'peak-MiB':>9} "
              f"{'rows':>8} {'x':>7}")
        ours = self.measure_bindery(inputs)
        unit = ours[0].cpu_seconds
        for measured in ours:
            report(measured, self.megabytes, unit)
        report(self.measure_python(), self.megabytes, unit)
        readers = self.measure_reading(inputs)
        for measured in readers:
            report(measured, self.megabytes, unit)
        reading, dom, on_demand = self.measure_json()
        writing = self.measure_writing()
        for measured in [reading, dom, on_demand, writing, *self.measure_decompression(inputs)]:
            report(measured, self.megabytes, unit)
        print(f"the reader takes {readers[0].cpu_seconds / dom.cpu_seconds:.2f} times the CPU "
              "seconds of simdjson DOM alone")
        least = reading.cpu_seconds + dom.cpu_seconds + writing.cpu_seconds
        print(f"bindery JSONL, 1 thread, takes {unit / least:.1f} times the CPU seconds of "
              "reading, simdjson DOM and writing together")
        self.run_gpt2(with_rivals)


# ---- Packages that the rivals need ----------------------------------------------------------

RIVALS = {"gigatoken": "gigatoken + TRL", "trl": "tokenizers + TRL", "datatrove": "datatrove"}
PACKAGES = ["gigatoken==0.10.0", "tokenizers==0.23.3", "datasets==5.2.0",
            "transformers==5.22.2", "datatrove[io,processing]==0.10.1"]
WITHOUT_DEPENDENCIES = ["trl==1.16.0", "accelerate==1.15.0"]  # no PyTorch: packing does not use it


def deps() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BINDERY_DEPS") or Path(cache) / "bindery")


def vocabularies() -> Path:
    return deps() / "vocabularies"


def make_environment() -> Path:
    """Returns the interpreter of a virtual environment with the rivals."""
    folder = deps() / "bench-pack"
    python, stamp = folder / "bin/python", folder / "stamp"
    wanted = "\n".join([*PACKAGES, *WITHOUT_DEPENDENCIES])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing the rivals into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *PACKAGES], check=True)
        subprocess.run([*install, "--no-deps", *WITHOUT_DEPENDENCIES], check=True)
        stamp.write_text(wanted)
    return python


def default_corpus() -> Path:
    return deps() / "bench-corpus" / "corpus.jsonl"


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
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--chats", action="store_true")
    given = parser.parse_args()
    if not given.corpus.exists():
        sys.exit(f"pack.py: there is no {given.corpus}: run bench/corpus")
    beside = {"prefix": "bindery-bench-", "dir": given.corpus.parent}
    with tempfile.TemporaryDirectory(**beside) as scratch:
        bench = Bench(given.build.resolve(), given.corpus, Path(scratch), given.rounds)
        if given.chats:
            bench.run_chats()
        else:
            bench.run(given.rivals)


if __name__ == "__main__":
    main()
