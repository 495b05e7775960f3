"""Inputs and outputs that appear, vanish or are replaced while a command runs.

A command may succeed or refuse. But it never crashes or hangs, and a dataset that it calls
finished is good and holds, for each input, the documents of one of its versions.

The command is stopped (SIGSTOP) before a file is changed, so that its progress is known: a change
after the last access to a file cannot be noticed.
"""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import program
from dataset_checker import rebuild_documents
from program import SANITIZER_REPORT, ProgramTest, Result, bindery, contents

SEED = 20240703
ROUNDS = program.amount(brief=1, usual=4, long=60)  # for each change
FINISHED = 0
STATUSES = (0, 1, 2)
PATIENCE_SECONDS = 300  # a busy machine with sanitizers took 60 once
# Files of a dataset that its manifest does not list, and those that a test adds.
NO_PART_OF_IT = ("pack-log.json", "README.md", "tokenizer_config.json", ".lock", "stranger.txt")
N_DOCUMENTS, N_INPUTS = 400, 4
PACK = ["pack", "-q", "--seq-len", 128, "--unit-size", "32K", "--threads", 2, "--holdout", "20%"]


def records(version: str, name: str) -> bytes:
    """Makes lines whose texts tell where they come from; both versions have equal lengths."""
    rng = random.Random(f"{SEED}-{name}")
    texts = [f"{version} {name} {n} " + "z" * rng.randrange(600) for n in range(N_DOCUMENTS)]
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def stored(path: Path, lines: bytes) -> bytes:
    return gzip.compress(lines, 1, mtime=0) if path.suffix == ".gz" else lines


def texts_of(data: bytes) -> set[bytes] | None:
    """Returns the current texts of an input, or None if this is not one of its versions."""
    try:
        lines = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return {json.loads(line)["text"].encode() for line in lines.splitlines()}
    except (ValueError, OSError, EOFError):
        return None


def rounds(way: str, changes: dict[str, Callable[[Path], None]]) -> list[tuple[str, Callable]]:
    """Yields (seed, change) for every round."""
    return [
        (f"{SEED}-{way}-{name}-{n}", change)
        for name, change in changes.items()
        for n in range(ROUNDS)
    ]


def whole(out: Path) -> dict[str, bytes]:
    """Returns the files that a command wrote and lists in its manifest."""
    return {
        name: data for name, data in contents(out).items()
        if Path(name).name not in NO_PART_OF_IT
    }


def published(folder: Path) -> list[Path]:
    """Returns the files that lie there under final names."""
    return sorted(
        path for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".part") and path.name != ".lock"
    )


# ---- Changes -----------------------------------------------------------------------


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_by(path: Path, data: bytes) -> None:
    """Renames another file over it, as careful programs do."""
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(data)
    os.replace(other, path)


def overwrite(path: Path, data: bytes) -> None:
    """Writes in place, into the same inode."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    """Changes a byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def become_folder(path: Path) -> None:
    remove(path)
    path.mkdir()


def become_fifo(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def become_endless(path: Path) -> None:
    remove(path)
    path.symlink_to("/dev/zero")


def other_version(path: Path) -> bytes:
    return stored(path, records("new", path.name))


INPUT_CHANGES: dict[str, Callable[[Path], None]] = {
    "replaced": lambda path: replace_by(path, other_version(path)),
    "overwritten": lambda path: overwrite(path, other_version(path)),
    "longer": lambda path: overwrite(path, path.read_bytes() + other_version(path)),
    "shorter": lambda path: overwrite(path, stored(path, records("new", path.name)[:2000])),
    "cut": cut,
    "emptied": empty,
    "removed": remove,
    "folder": become_folder,
    "fifo": become_fifo,
    "endless": become_endless,
    "newcomer": lambda path: path.with_name("zzz.jsonl").write_bytes(records("new", "zzz")),
}
FILE_CHANGES: dict[str, Callable[[Path], None]] = {
    "replaced": lambda path: replace_by(path, b"something else"),
    "cut": cut,
    "emptied": empty,
    "flipped": flip,
    "removed": remove,
    "folder": become_folder,
    "fifo": become_fifo,
    "endless": become_endless,
    "newcomer": lambda path: path.with_name("stranger.txt").write_bytes(b"mine"),
    "stray": lambda path: path.with_name("stray.arrow").write_bytes(b"mine"),
}


@dataclass
class Stopped:
    """A run that is suspended while files change."""

    run: subprocess.Popen
    n_done: int  # outputs that exist
    is_running: bool


class ChangingFilesTest(ProgramTest):
    def start(self, arguments: list[object]) -> subprocess.Popen:
        command = [program.program(), *map(os.fspath, map(program.as_argument, arguments))]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, **pipes)
        self.addCleanup(run.kill)
        return run

    def stop_after(
        self, arguments: list[object], out: Path, pattern: str, n: int, seconds: float
    ) -> Stopped:
        """Starts a command and suspends it when `n` outputs exist and the time is over."""
        run = self.start(arguments)
        end = time.monotonic() + seconds
        while run.poll() is None:
            if time.monotonic() >= end and len(list(out.glob(pattern))) >= n:
                break
            time.sleep(0.0005)
        if run.poll() is None:
            run.send_signal(signal.SIGSTOP)
        return Stopped(run, len(list(out.glob(pattern))), run.poll() is None)

    def finish(self, stopped: Stopped) -> Result:
        """Lets the command continue to its end, which must not be a crash or a hang."""
        run = stopped.run
        if run.poll() is None:
            run.send_signal(signal.SIGCONT)
        try:
            out, said = run.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            self.fail(f"it does not end: {run.args}")
        result = Result([os.fsdecode(a) for a in run.args], run.returncode,
                        out.decode(errors="replace"), said.decode(errors="replace"))
        self.assertIn(run.returncode, STATUSES, result)
        self.assertIsNone(SANITIZER_REPORT.search(result.stderr), result)
        return result

    @contextmanager
    def round(self, seed: str) -> Iterator[tuple[Path, random.Random]]:
        """A subtest with its own folder and random numbers."""
        with self.subTest(seed=seed), tempfile.TemporaryDirectory(dir=self.folder) as place:
            yield Path(place), random.Random(seed)

    def assert_same(self, found: dict[str, bytes], expected: dict[str, bytes]) -> None:
        self.assertEqual(found.keys(), expected.keys())
        self.assertEqual([name for name in found if found[name] != expected[name]], [])

    def write_corpus(self, folder: Path) -> list[Path]:
        folder.mkdir()
        names = [f"{n}.jsonl" for n in range(N_INPUTS - 1)] + ["last.jsonl.gz"]
        for name in names:
            path = folder / name
            path.write_bytes(stored(path, records("old", name)))
        return [folder / name for name in names]

    def assert_of_one_version(self, dataset: Path, versions: dict[str, list[set]]) -> None:
        """The dataset is good, and each input's documents are those of one of its versions."""
        for part in (dataset, dataset / "holdout"):
            verdict = bindery("verify", part)
            self.assertEqual(verdict.status, 0, verdict)
        inputs = json.loads((dataset / "manifest.json").read_bytes())["inputs"]
        found: dict[str, set[bytes]] = {Path(item["name"]).name: set() for item in inputs}
        for part in (dataset, dataset / "holdout"):
            for (index, _), tokens in rebuild_documents(part).items():
                found[Path(inputs[index]["name"]).name].add(bytes(tokens[:-1]))
        for name, texts in found.items():
            self.assertIn(texts, versions[name], name)


class Inputs(ChangingFilesTest):
    def test_a_dataset_has_one_version_of_each_input(self) -> None:
        undisturbed = self.folder / "undisturbed"
        self.write_corpus(self.folder / "corpus")
        self.succeeds(*PACK, self.folder / "corpus", "-o", undisturbed)
        n_shards = len(list(undisturbed.glob("*.arrow")))
        n_changed = 0
        for seed, change in rounds("input", INPUT_CHANGES):
            with self.round(seed) as (place, rng):
                n_changed += self.check_input(place, change, rng, n_shards)
        print(f"{self.id()}: {n_changed} inputs changed in the middle of a run")
        self.assertGreater(n_changed, 0)

    def check_input(
        self, place: Path, change: Callable[[Path], None], rng: random.Random, n_shards: int
    ) -> bool:
        """Returns whether an input was changed in the middle of the run."""
        files = self.write_corpus(place / "corpus")
        n = rng.randrange(n_shards)
        being_read = files[n * len(files) // n_shards]
        path = rng.choice([being_read, being_read, *files])
        versions = {p.name: [texts_of(p.read_bytes())] for p in files}
        out = place / "out"
        arguments = [*PACK, place / "corpus", "-o", out]
        stopped = self.stop_after(arguments, out, "[0-9]*.arrow", n, 0)
        is_changed = stopped.is_running and stopped.n_done < n_shards
        if is_changed:
            change(path)
            for p in (place / "corpus").iterdir():
                if p.is_file() and not p.is_symlink():
                    versions.setdefault(p.name, []).append(texts_of(p.read_bytes()))
        result = self.finish(stopped)
        if result.status == FINISHED:
            self.assert_of_one_version(out, versions)
        self.assertEqual((out / "manifest.json").exists(), result.status == FINISHED, result)
        # A second attempt gives a good dataset, or a message that says why not.
        if result.status != FINISHED and path.is_file() and not path.is_symlink():
            again = bindery(*arguments)
            self.assertIn(again.status, (0, 2), again)
            if again.status == FINISHED:
                self.assert_of_one_version(out, versions)
        return is_changed


class Outputs(ChangingFilesTest):
    def setUp(self) -> None:
        super().setUp()
        self.write_corpus(self.folder / "corpus")
        self.dataset = self.folder / "dataset"
        self.succeeds(*PACK, self.folder / "corpus", "-o", self.dataset)

        self.ways = {  # commands that write many files, and the pattern of those
            "pack": ([*PACK, self.folder / "corpus"], "[0-9]*.arrow"),
            "repack": (["repack", "-q", "--seq-len", 100, self.dataset], "[0-9]*.arrow"),
        }

    def test_a_finished_dataset_is_complete(self) -> None:
        for name, (arguments, pattern) in self.ways.items():
            undisturbed = self.folder / f"undisturbed-{name}"
            self.succeeds(*arguments, "-o", undisturbed)
            expected = whole(undisturbed)
            n_files = len(list(undisturbed.glob(pattern)))
            self.assertGreater(n_files, 10, name)
            n_changed = 0
            for seed, change in rounds(name, FILE_CHANGES):
                with self.round(seed) as (place, rng):
                    out = place / "out"
                    n = rng.randrange(1, n_files - 1)
                    stopped = self.stop_after([*arguments, "-o", out], out, pattern, n, 0)
                    if stopped.is_running and stopped.n_done < n_files - 1:
                        change(rng.choice(published(out)))
                        n_changed += 1
                    result = self.finish(stopped)
                    if result.status == FINISHED:
                        self.assert_same(whole(out), expected)
            print(f"{self.id()}: {name}: {n_changed} outputs changed in the middle of a run")
            self.assertGreater(n_changed, 0, name)

    def test_a_folder_that_goes_away_is_missed(self) -> None:
        # An export publishes everything at the end.
        export = {"export": (["export", "-q", self.dataset], ".*.part")}
        for name, (arguments, pattern) in (self.ways | export).items():
            with self.subTest(name):
                out = self.folder / f"out-{name}"
                stopped = self.stop_after([*arguments, "-o", out], out, pattern, 1, 0)
                moved = self.folder / f"moved-{name}"
                self.assertTrue(stopped.is_running, name)
                out.rename(moved)
                result = self.finish(stopped)
                self.assertEqual(result.status, 2, result)
                self.assertFalse((moved / "manifest.json").exists())


class Readers(ChangingFilesTest):
    """Commands that only read may report what they find, and must end."""

    def test_every_command_ends_without_a_crash(self) -> None:
        original = self.folder / "original"
        self.write_corpus(self.folder / "corpus")
        self.succeeds(*PACK, self.folder / "corpus", "-o", original)
        ways = {
            "verify": ["verify", "-q"],
            "verify --against": ["verify", "-q", "--against", self.folder / "corpus"],
            "inspect --scan": ["inspect", "--scan"],
            "repack": ["repack", "-q", "-o", "OUT", "--seq-len", 50],
            "export": ["export", "-q", "-o", "OUT"],
        }
        for name, way in ways.items():
            begin = time.monotonic()
            self.succeeds(*[self.folder / name if a == "OUT" else a for a in way], original)
            duration = time.monotonic() - begin
            n_changed = 0
            for seed, change in rounds(f"read by {name}", FILE_CHANGES):
                with self.round(seed) as (place, rng):
                    dataset = place / "dataset"
                    shutil.copytree(original, dataset)
                    arguments = [place / "out" if a == "OUT" else a for a in way]
                    moment = rng.random() * duration
                    stopped = self.stop_after([*arguments, dataset], place, "*", 0, moment)
                    if stopped.is_running:
                        change(rng.choice(published(dataset)))
                        n_changed += 1
                    result = self.finish(stopped)
                    if result.status == FINISHED and "OUT" in way:
                        self.assert_same(whole(place / "out"), whole(self.folder / name))
            print(f"{self.id()}: {name}: {n_changed} files changed in the middle of a run")


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
