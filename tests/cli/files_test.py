"""Files that have changed, or that others have made: anything that lies in the place of a file is
recognised and never waited for; a file that vanishes during a run is missed before the dataset is
called finished; and no command removes or replaces a file that it cannot have made."""

import gzip
import os
import random
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import program
from program import ROOT, ProgramTest, bindery, contents
from run_files import steps, write_run
from unfinished import json_lines, published

SEED = 20240620
FLIPS = program.amount(brief=12, usual=60, long=600)  # for each codec
GOLDEN = ROOT / "tests" / "golden" / "train-1"
DATASET = GOLDEN / "dataset"
MODEL = ["--layers", 1, "--channels", 16, "--heads", 2, "--positions", 64]
PATIENCE_SECONDS = 60  # generous: a command that waits at a FIFO would wait for ever

# Calls that open files without bd_file_open(), and why they are allowed.
OPENS = {
    ("common/base/file.c", "open"): 5,  # bd_file_open() itself, new files, our own pending ones, folders
    ("common/base/folder.c", "opendir"): 1,  # never waits, and opens only folders
    ("common/base/free_memory.c", "fopen"): 3,  # the kernel's own files
    ("common/base/module.c", "dlopen"): 1,  # a module beside the program itself
    ("common/dataset/arrow_io.c", "garrow_file_output_stream_new"): 1,  # our own pending file
    ("packer/export/arrow_tables.c", "garrow_file_output_stream_new"): 1,  # the same
    ("trainer/weights/safetensors.c", "open"): 1,  # the same
    ("trainer/metrics/event_file.c", "fopen"): 1,  # with "x": fails if the file exists
}
OPENING = re.compile(
    r"(?<![\w.>])(open|openat|open64|creat|fopen|freopen|opendir|dlopen"
    r"|g_file_\w+|g_mapped_file_new|garrow_file_\w+_new|garrow_memory_mapped_\w+_new"
    r"|gparquet_arrow_file_(?:reader|writer)_new_path)\s*\("
)
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


class Sources(ProgramTest):
    def test_every_open_asks_for_a_regular_file(self) -> None:
        """All files that others may have made are opened by one function."""
        found: dict[tuple[str, str], int] = {}
        for room in ("common", "packer", "trainer"):
            for path in sorted((ROOT / room).rglob("*.[ch]*")):
                if path.suffix not in (".c", ".h", ".cpp"):
                    continue
                code = COMMENT_OR_STRING.sub('""', path.read_text())
                for call in OPENING.finditer(code):
                    key = (str(path.relative_to(ROOT)), call[1])
                    found[key] = found.get(key, 0) + 1
        self.assertEqual(found, OPENS)


class NoRegularFile(ProgramTest):
    """Returns a FIFO that nobody writes into, and a device that never ends."""

    def put(self, path: Path, what: str) -> None:
        path.unlink()
        if what == "fifo":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")

    def assert_told(self, arguments: list, name: str, statuses: tuple[int, ...] = (2,)) -> None:
        result = bindery(*arguments, timeout=PATIENCE_SECONDS)
        self.assertIn(result.status, statuses, result)
        self.assertIn(name, result.output)
        self.assertIn("not a regular file", result.output)

    def test_a_shard_that_is_none_is_told_by_every_command(self) -> None:
        name = "00000-00000.arrow"
        for what in ("fifo", "device"):
            dataset = self.folder / what
            shutil.copytree(DATASET, dataset)
            self.put(dataset / name, what)
            out = self.folder / f"out-{what}"
            for arguments in [
                ["verify", dataset],
                ["verify", "--structure", dataset],
                ["verify", dataset, "--against", GOLDEN / "corpus"],
                ["inspect", dataset],
                ["inspect", dataset, "--html", out],
                ["locate", dataset, "0:0"],
                ["repack", dataset, "--seq-len", 32, "-o", out],
                ["export", dataset, "-o", out],
                ["train", "--data", dataset, *MODEL, "--steps", 1, "-o", out],
            ]:
                with self.subTest(what, command=arguments[:2]):
                    self.assert_told(arguments, name, (1, 2))
                    self.assertFalse((out / "manifest.json").exists())

    def test_other_files_of_a_dataset_that_are_none_are_told(self) -> None:
        for name in ("manifest.json", "plan.json", "tokenizer.json"):
            for what in ("fifo", "device"):
                with self.subTest(name, what=what):
                    dataset = self.folder / f"{name}-{what}"
                    shutil.copytree(DATASET, dataset)
                    self.put(dataset / name, what)
                    self.assert_told(["verify", dataset], name, (1, 2))

    def test_weights_that_are_none_are_told_by_every_command(self) -> None:
        whole = self.folder / "whole"
        train = ["train", "--data", DATASET, *MODEL]
        self.succeeds(*train, "--steps", 1, "-o", whole)
        name = "step-00000001.safetensors"
        for what in ("fifo", "device"):
            run = self.folder / what
            shutil.copytree(whole, run)
            self.put(run / name, what)
            for arguments in [
                [*train, "--steps", 2, "-o", run],
                ["eval", run, DATASET],
                ["generate", run, "--prompt", "a"],
                ["export", "--model", run, "-o", self.folder / "model"],
                ["prove", DATASET, "--run", run],
            ]:
                with self.subTest(what, command=arguments[0]):
                    self.assert_told(arguments, name)

    def test_a_corpus_and_a_tokenizer_that_are_none_are_told(self) -> None:
        fifo = self.folder / "a.jsonl"
        os.mkfifo(fifo)
        for arguments in [
            ["pack", "-o", self.folder / "out", fifo],
            ["pack", "-o", self.folder / "out", "--tokenizer", fifo, GOLDEN / "corpus"],
            ["tokenize", "--tokenizer", fifo],
            ["pack", "--settings", fifo, "-o", self.folder / "out", GOLDEN / "corpus"],
        ]:
            with self.subTest(arguments[:3]):
                result = bindery(*arguments, timeout=PATIENCE_SECONDS)
                self.assertEqual(result.status, 2, result)


class Replacing(ProgramTest):
    def test_a_page_never_replaces_what_is_no_regular_file(self) -> None:
        run = write_run(self.folder / "run", steps(3, 1))
        link = self.folder / "null.html"
        link.symlink_to("/dev/null")
        fifo = self.folder / "fifo.html"
        os.mkfifo(fifo)
        for arguments in (["report", run, "-o"], ["inspect", DATASET, "--html"]):
            for path in (fifo, link):
                with self.subTest(arguments[0], path=path.name):
                    before = os.lstat(path)
                    result = bindery(*arguments, path, "--overwrite", timeout=PATIENCE_SECONDS)
                    self.assertEqual(result.status, 2, result)
                    self.assertIn(f"cannot replace '{path}': not a regular file", result.stderr)
                    after = os.lstat(path)
                    self.assertEqual((before.st_ino, before.st_mode), (after.st_ino, after.st_mode))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                         ["fifo.html", "null.html", "run"])

    def test_a_page_never_replaces_a_link(self) -> None:
        """For example /dev/stdout, which leads to a regular file if the output is one."""
        run = write_run(self.folder / "run", steps(3, 1))
        link = self.folder / "stdout"
        link.symlink_to("/proc/self/fd/1")
        for arguments in (["report", run, "-o"], ["inspect", DATASET, "--html"]):
            with self.subTest(arguments[0]), open(self.folder / "page.html", "wb") as page:
                result = subprocess.run([program.program(), *arguments, link, "--overwrite"], stdout=page,
                                        stderr=subprocess.PIPE, timeout=PATIENCE_SECONDS)
                self.assertEqual(result.returncode, 2, result)
                self.assertIn(b"it is a link", result.stderr)
                self.assertTrue(link.is_symlink())

    def test_a_dataset_never_replaces_what_is_no_regular_file(self) -> None:
        """For any name: the manifest is written by the same function."""
        out = self.pack(self.folder / "out", [GOLDEN / "corpus"])
        (out / "manifest.json").unlink()
        (out / "tokenizer_config.json").unlink()
        os.mkfifo(out / "tokenizer_config.json")
        result = bindery("pack", "-o", out, GOLDEN / "corpus", timeout=PATIENCE_SECONDS)
        self.assertEqual(result.status, 2, result)
        self.assertIn("tokenizer_config.json': not a regular file", result.stderr)
        self.assertTrue(stat.S_ISFIFO(os.lstat(out / "tokenizer_config.json").st_mode))


# ---- While a command runs --------------------------------------------------------------------


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replace(path: Path) -> None:
    """Replaces the file by a copy with the same size and times."""
    times = path.stat()
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    flip(copy)
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    copy.rename(path)


class Vanishing(ProgramTest):
    """Packs a corpus that comes through a pipe: when the first shard exists, the rest is still to
    come, and the test can change the finished files until then."""

    def pack_disturbed(self, out: Path, lines: list[bytes], disturb: Callable[[], None]) -> tuple:
        half = len(lines) // 2
        command = [program.program(), "pack", "-q", "-o", str(out), *self.options, "-"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            process.stdin.write(b"".join(lines[:half]))
            process.stdin.flush()
            end = time.monotonic() + PATIENCE_SECONDS
            while not all((out / name).exists() for name in self.awaited):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            disturb()
            _, said = process.communicate(b"".join(lines[half:]), timeout=PATIENCE_SECONDS)
            return process.returncode, said.decode()

    def test_a_missing_or_changed_file_is_told_before_there_is_a_manifest(self) -> None:
        lines = json_lines(f"{SEED}", 1_200_000).splitlines(keepends=True)
        corpus = b"".join(lines)
        for options, folders in [((), ("",)), (("--holdout", "40%"), ("", "holdout/"))]:
            self.options = ["--seq-len", 256, "--unit-size", "64K", *options]
            self.options = list(map(str, self.options))
            whole = self.folder / f"whole{len(options)}"
            self.succeeds("pack", "-q", "-o", whole, *self.options, "-", input=corpus)
            self.awaited = [f"{folder}00000-00000.arrow" for folder in folders]
            cases = [
                (folder + name, how)
                for folder in folders
                for name in ("00000-00000.arrow", "plan.json", "tokenizer.json",
                             "tokenizer_config.json")
                for how in (remove, cut, flip, replace)
            ]
            if program.BRIEF:  # each file and each kind of change once
                cases = cases[:4] + cases[4::5]
            for name, how in cases:
                with self.subTest(name, how=how.__name__):
                    out = self.folder / "out"
                    shutil.rmtree(out, ignore_errors=True)
                    status, said = self.pack_disturbed(out, lines, lambda: how(out / name))
                    self.assertEqual(status, 2, said)
                    self.assertIn(f"'{out / name}'", said)
                    self.assertIn("since it was written; the same command makes it again", said)
                    self.assertFalse((out / "manifest.json").exists())
                    self.succeeds("pack", "-q", "-o", out, *self.options, "-", input=corpus)
                    self.assertEqual(published(out), published(whole))

    def test_nothing_is_told_of_what_is_as_it_was(self) -> None:
        lines = json_lines(f"{SEED}-good", 1_200_000).splitlines(keepends=True)
        self.options = ["--seq-len", "256", "--unit-size", "64K"]
        self.awaited = ["00000-00000.arrow"]
        out = self.folder / "out"
        status, said = self.pack_disturbed(out, lines, lambda: None)
        self.assertEqual(status, 0, said)


class Flipped(ProgramTest):
    def test_no_flipped_bit_of_an_unfinished_dataset_is_kept(self) -> None:
        """If any byte of a finished shard has changed, its unit is packed again."""
        corpus = self.folder / "corpus.jsonl"
        corpus.write_bytes(json_lines(f"{SEED}-flips", 20_000))
        for codec in ("none", "zstd"):
            rng = random.Random(f"{SEED}-{codec}")
            arguments = ["--seq-len", 64, "--unit-size", "8K", "--compress", codec, corpus]
            whole = self.pack(self.folder / codec, [], *arguments)
            reference = published(whole)
            name = "00001-00000.arrow" if "00001-00000.arrow" in reference else "00000-00001.arrow"
            data = reference[name]
            head_end = 16 + int.from_bytes(data[12:16], "little")  # the leading schema's message
            footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
            for i in range(FLIPS):
                begin, end = [(0, head_end), (footer, len(data)), (0, len(data))][i % 3]
                place, bit = rng.randrange(begin, end), rng.randrange(8)
                with self.subTest(codec, place=place, bit=bit):
                    out = self.folder / "out"
                    shutil.rmtree(out, ignore_errors=True)
                    shutil.copytree(whole, out)
                    (out / "manifest.json").unlink()
                    changed = bytearray(data)
                    changed[place] ^= 1 << bit
                    (out / name).write_bytes(changed)
                    self.pack(out, [], *arguments)
                    self.assertEqual(published(out), reference)


# ---- Files of others -------------------------------------------------------------------------

FOREIGN = [
    "notes.txt", ".hidden", "data.bin", ".anything.0123abcd.part", "90000-00000.arrow",
    "00000-90000.arrow", "90000-00000.parquet", "00000-90000.arrows", "manifest.json.bak",
    ".notes.txt.0123abcd.part", "step-00000001.safetensors", "metrics.jsonl", "model.safetensors",
    ".model.safetensors.0123abcd.part", "events.out.tfevents.1", "folder/plan.json",
    "holdout/notes.txt", "holdout/90000-00000.arrow", "holdout/.x.0123abcd.part",
]


class Foreign(ProgramTest):
    """A file that a command cannot have made survives it byte for byte, in every folder that the
    command uses."""

    def setUp(self) -> None:
        super().setUp()
        self.first = self.pack(self.folder / "first", [GOLDEN / "corpus"], "--holdout", "30%")
        self.run_folder = write_run(self.folder / "run", steps(3, 1))

    def ways(self) -> dict[str, list]:
        """Commands without their output option and without --overwrite."""
        return {
            "pack": ["pack", "--holdout", "30%", GOLDEN / "corpus", "-o"],
            "repack": ["repack", "--seq-len", 32, self.first, "-o"],
            "export": ["export", self.first, "-o"],
            "export --format parquet": ["export", "--format", "parquet", self.first, "-o"],
        }

    def check(self, arguments: list, out: Path, foreign: str) -> None:
        path = out / foreign
        path.parent.mkdir(parents=True, exist_ok=True)
        data = random.Random(f"{SEED}-{foreign}").randbytes(100)
        path.write_bytes(data)
        before = contents(out)
        result = bindery(*arguments)
        self.assertIn(result.status, (0, 2), result)
        self.assertTrue(path.is_file(), result)
        self.assertEqual(path.read_bytes(), data)
        if result.status == 2:  # then nothing else was changed, either
            after = contents(out)
            after.pop(".lock", None)
            before.pop(".lock", None)
            self.assertEqual(after, before, result)

    def test_a_foreign_file_survives_every_command_in_its_folder(self) -> None:
        for name, arguments in self.ways().items():
            whole = self.folder / "whole"
            shutil.rmtree(whole, ignore_errors=True)
            self.succeeds(*arguments, whole)
            last = "export.json" if name.startswith("export") else "manifest.json"
            rng = random.Random(f"{SEED}-{name}")
            for state in ("new", "unfinished", "finished"):
                for overwrite in ([], ["--overwrite"]):
                    chosen = rng.sample(FOREIGN, 5) if program.BRIEF else FOREIGN
                    for foreign in chosen:
                        with self.subTest(name, state=state, overwrite=overwrite, file=foreign):
                            out = self.folder / "out"
                            shutil.rmtree(out, ignore_errors=True)
                            if state != "new":
                                shutil.copytree(whole, out)
                            if state == "unfinished":
                                (out / last).unlink()
                            self.check([*arguments, out, *overwrite], out, foreign)

    def test_a_foreign_file_survives_pages_written_beside_it(self) -> None:
        out = self.folder / "out"
        for arguments in (["report", self.run_folder, "-o"], ["inspect", self.first, "--html"]):
            for foreign in FOREIGN + [".page.html.0123abcd.part"]:
                with self.subTest(arguments[0], file=foreign):
                    shutil.rmtree(out, ignore_errors=True)
                    self.check([*arguments, out / "page.html", "--overwrite"], out, foreign)
                    self.assertTrue((out / "page.html").is_file())

    def test_a_foreign_file_survives_in_the_folders_that_are_read(self) -> None:
        """The program removes nothing at all from these folders."""
        for foreign in ("notes.txt", ".anything.0123abcd.part", "90000-00000.arrow"):
            for source in (self.first, self.first / "holdout", self.run_folder):
                (source / foreign).write_bytes(b"mine")
        before = contents(self.first), contents(self.run_folder)
        out = self.folder / "out"
        for arguments in [
            ["verify", self.first], ["inspect", self.first], *([*way, out] for way in
            list(self.ways().values())[1:3]), ["report", self.run_folder, "-o", out / "page.html"],
        ]:
            with self.subTest(arguments[0]):
                shutil.rmtree(out, ignore_errors=True)
                bindery(*arguments)
                self.assertEqual((contents(self.first), contents(self.run_folder)), before)


class Units(ProgramTest):
    def test_hundreds_of_thousands_of_tiny_shards_are_refused(self) -> None:
        corpus = self.folder / "a.jsonl"
        corpus.write_bytes(json_lines(f"{SEED}-units", 20_000))
        out = self.folder / "out"
        result = bindery("pack", "-o", out, "--unit-size", 1, corpus)
        self.assertEqual(result.status, 2, result)
        self.assertIn("more than 4096 units of less than 1 MiB: give a larger --unit-size",
                      result.stderr)
        self.assertFalse(out.exists())
        (self.folder / "b.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
        self.succeeds("pack", "-q", "-o", out, "--unit-size", 1000, self.folder / "b.jsonl.gz")


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
