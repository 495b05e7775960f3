"""Changed inputs are noticed when a run is continued, and packed again by `--update`, which keeps
unchanged shards and ends with the bytes of a new run."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import program
from program import ProgramTest, bindery, changed, contents

SEED = 20251119
ROUNDS = program.amount(brief=6, usual=24, long=400)
KILLS = program.amount(brief=4, usual=12, long=100)
MIB = 1 << 20


def published(dataset: Path) -> dict[str, bytes]:
    files = contents(dataset)
    return {name: files[name] for name in files
            if Path(name).name != "pack-log.json" and not name.endswith(".part")}


def shard_files(dataset: Path) -> dict[str, tuple[int, int]]:
    """Returns inode and time of each shard, which show whether it was written again."""
    found = {}
    for path in dataset.rglob("*.arrow"):
        found[str(path.relative_to(dataset))] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def lines_of(records: list[bytes]) -> bytes:
    return b"".join(record + b"\n" for record in records)


def record(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


def table(records: list[bytes]) -> bytes:
    texts = [json.loads(line)["text"] for line in records if line.strip()]
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(pa.table({"text": texts}), sink, row_group_size=7,
                           compression="none", write_statistics=False)
    return sink.getvalue().to_pybytes()


STORES = {
    "a.jsonl": lines_of,
    "b.jsonl.gz": lambda records: gzip.compress(lines_of(records), 1, mtime=0),
    "c.jsonl.zst": lambda records: pa.compress(lines_of(records), "zstd", asbytes=True),
    "d.parquet": table,
    "e.txt": lambda records: b"\n%\n".join(records),
    "f0.jsonl": lines_of,
    "f1.jsonl": lines_of,
    "f2.jsonl": lines_of,
    "f3.jsonl": lines_of,
}


class UpdateTest(ProgramTest):
    options: list[object] = ["--seq-len", 64, "--unit-size", 1500, "--delimiter", "%"]

    def command(self, dataset: Path, *more: object) -> list[object]:
        return ["pack", "-q", "-o", dataset, *changed(self.options, *more), self.corpus]

    def setUp(self) -> None:
        super().setUp()
        self.corpus = self.folder / "corpus"
        self.corpus.mkdir()
        self.dataset = self.folder / "dataset"

    def fresh(self, *more: object) -> dict[str, bytes]:
        dataset = self.folder / "fresh"
        self.succeeds(*self.command(dataset, *more))
        self.succeeds("verify", "-q", dataset, "--against", self.corpus)
        files = published(dataset)
        shutil.rmtree(dataset)
        return files

    def make_unfinished(self, n_lost: int = 1) -> None:
        """As after a kill: there is no manifest, and the last shards are missing."""
        for path in self.dataset.rglob("manifest.json"):
            path.unlink()
        for path in sorted(self.dataset.glob("*.arrow"))[-n_lost:]:
            path.unlink()


class Noticed(UpdateTest):
    """A change that is visible neither in the size nor in the first and last MiB of a file."""

    options = ["--seq-len", 512, "--unit-size", "256K"]
    n_bytes = 5 * MIB

    def write(self, name: str, at: int | None = None) -> None:
        rng = random.Random(SEED)
        records, size = [], 0
        while size < self.n_bytes:
            records.append(record(rng.randbytes(rng.randrange(2000)).hex()))
            size += len(records[-1])
        if at is not None:
            middle = len(records) // 2
            text = json.loads(records[middle])["text"]
            records[middle] = record("z" * len(text))
        # Frames are stored without compression, so that a change moves nothing.
        stored = {"a.jsonl": lines_of, "a.parquet": table,
                  "a.jsonl.gz": lambda r: gzip.compress(lines_of(r), 0, mtime=0)}
        (self.corpus / name).write_bytes(stored[name](records))

    def test_when_a_run_is_continued(self) -> None:
        for name in ["a.jsonl", "a.jsonl.gz", "a.parquet"]:
            with self.subTest(name):
                path = self.corpus / name
                self.write(name)
                size = path.stat().st_size
                self.succeeds(*self.command(self.dataset))
                self.make_unfinished()
                before = contents(self.dataset)
                self.write(name, at=1)
                self.assertEqual(path.stat().st_size, size)
                result = bindery(*self.command(self.dataset))
                self.assertEqual(result.status, 2, result)
                self.assertIn(name, result.stderr)
                self.assertIn("--update", result.stderr)
                if not name.endswith(".gz"):  # a .gz ends with a checksum of everything
                    self.assertIn("1 finished unit differs", result.stderr)
                self.assertEqual(contents(self.dataset), before)
                kept = shard_files(self.dataset)
                self.succeeds(*self.command(self.dataset, "--update"))
                self.assertEqual(published(self.dataset), self.fresh())
                now = shard_files(self.dataset)
                again = [shard for shard in kept if kept[shard] != now[shard]]
                self.assertEqual(len(again), 1, again)
                path.unlink()
                shutil.rmtree(self.dataset)

    def test_when_a_dataset_is_finished(self) -> None:
        self.write("a.jsonl")
        self.succeeds(*self.command(self.dataset))
        self.assertEqual(bindery(*self.command(self.dataset)).stderr, "")
        files = contents(self.dataset)
        self.write("a.jsonl", at=1)
        result = self.succeeds(*self.command(self.dataset))
        self.assertIn("a.jsonl", result.stderr)
        self.assertIn("--against", result.stderr)
        self.assertEqual(contents(self.dataset), files)

    def test_another_time_alone_is_no_reason_to_stop(self) -> None:
        self.write("a.jsonl")
        expected = self.fresh()
        self.succeeds(*self.command(self.dataset))
        self.make_unfinished(3)
        kept = shard_files(self.dataset)
        os.utime(self.corpus / "a.jsonl", ns=(1, 1))
        self.succeeds(*self.command(self.dataset))
        self.assertEqual(published(self.dataset), expected)
        self.assertLessEqual(kept.items(), shard_files(self.dataset).items())

    def test_units_behind_the_limit_are_none_that_differ(self) -> None:
        self.write("a.jsonl")
        more = ["--limit", 100]
        expected = self.fresh(*more)
        self.succeeds(*self.command(self.dataset, *more))
        (self.dataset / "manifest.json").unlink()
        os.utime(self.corpus / "a.jsonl", ns=(1, 1))
        self.succeeds(*self.command(self.dataset, *more))
        self.assertEqual(published(self.dataset), expected)

    def test_without_a_log_everything_is_compared(self) -> None:
        self.write("a.jsonl")
        self.succeeds(*self.command(self.dataset))
        self.make_unfinished()
        (self.dataset / "pack-log.json").unlink()
        time_before = (self.corpus / "a.jsonl").stat().st_mtime_ns
        self.write("a.jsonl", at=1)
        os.utime(self.corpus / "a.jsonl", ns=(time_before, time_before))
        result = bindery(*self.command(self.dataset))
        self.assertEqual(result.status, 2, result)
        self.assertIn("--update", result.stderr)

    def test_while_it_is_packed(self) -> None:
        self.write("a.jsonl")
        (self.corpus / "b.jsonl").write_bytes(record("short") + b"\n")
        run = subprocess.Popen(
            [program.program(), *map(str, self.command(self.dataset, "--threads", 1))],
            stderr=subprocess.PIPE)
        while run.poll() is None and not any(self.dataset.glob("*.arrow")):
            time.sleep(0.001)
        run.send_signal(signal.SIGSTOP)
        with open(self.corpus / "a.jsonl", "r+b") as file:
            file.seek(12)
            file.write(b"z")
        run.send_signal(signal.SIGCONT)
        _, said = run.communicate()
        self.assertEqual(run.returncode, 2, said)
        self.assertIn(b"a.jsonl", said)
        self.assertFalse((self.dataset / "manifest.json").exists())
        self.succeeds(*self.command(self.dataset, "--update"))
        self.assertEqual(published(self.dataset), self.fresh())

    def test_by_processes_that_share(self) -> None:
        self.write("a.jsonl")
        self.succeeds(*self.command(self.dataset))
        self.make_unfinished(4)
        self.write("a.jsonl", at=1)
        result = bindery(*self.command(self.dataset, "--rank", 1, "--ranks", 2))
        self.assertEqual(result.status, 2, result)
        self.assertIn("--update", result.stderr)


class Updated(UpdateTest):
    def random_records(self, rng: random.Random, n: int) -> list[bytes]:
        return [record(rng.randbytes(rng.randrange(60)).hex()) for _ in range(n)]

    def write_corpus(self, corpus: dict[str, list[bytes]]) -> None:
        for name, records in corpus.items():
            path = self.corpus / name
            data = STORES[name](records)
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)

    def random_corpus(self, rng: random.Random) -> dict[str, list[bytes]]:
        return {name: self.random_records(rng, 4 if name.startswith("f") else 80)
                for name in STORES}

    def edit(self, rng: random.Random, corpus: dict[str, list[bytes]]) -> str:
        name = rng.choice(list(corpus))
        records = corpus[name]
        at = rng.randrange(len(records)) if records else 0
        kind = rng.choice(["change", "blank", "insert", "delete", "shorten", "grow", "swap",
                           "empty", "touch"])
        if kind == "change" and records:
            records[at] = record("z" * (len(records[at]) - len(record(""))))
        elif kind == "blank" and name.endswith(("jsonl", "gz", "zst")):
            records.insert(at, b"")
        elif kind == "insert":
            records.insert(at, record("new"))
        elif kind == "delete" and len(records) > 1:
            del records[at]
        elif kind == "shorten":
            del records[len(records) // 3 + 1:]
        elif kind == "grow":
            records += self.random_records(rng, 60)
        elif kind == "swap":
            corpus["f1.jsonl"], corpus["f2.jsonl"] = corpus["f2.jsonl"], corpus["f1.jsonl"]
        elif kind == "empty" and name.startswith("f"):
            records.clear()
        elif kind == "touch":
            os.utime(self.corpus / name)
        return f"{kind} {name}"

    def check_update(self, expected: dict[str, bytes], before: dict, kept: dict,
                     limited: bool = False) -> None:
        """Expects the bytes of a new run, and that no shard with the same bytes was written again.
        (A limit makes every unit depend on those before it.)"""
        self.assertEqual(list(published(self.dataset)), list(expected))
        found = published(self.dataset)
        self.assertEqual([name for name in found if found[name] != expected[name]], [])
        if limited:
            return
        now = shard_files(self.dataset)
        again = [name for name in now
                 if before.get(name) == found[name] and kept[name] != now[name]
                 and not name.startswith("holdout/")]
        self.assertEqual(again, [])

    def test_any_change_gives_the_bytes_of_a_fresh_run(self) -> None:
        variants = [[], ["--holdout", "30%"], ["--shuffle", 5], ["--limit", 150], [],
                    ["--compress", "zstd"]]
        for n in range(ROUNDS):
            rng = random.Random(f"{SEED}-{n}")
            more = variants[n % len(variants)]
            corpus = self.random_corpus(rng)
            self.write_corpus(corpus)
            self.succeeds(*self.command(self.dataset, *more))
            if rng.random() < 0.4:
                self.make_unfinished(rng.randint(1, 9))
            for _ in range(2):
                edits = [self.edit(rng, corpus) for _ in range(rng.randint(1, 3))]
                with self.subTest(seed=f"{SEED}-{n}", options=more, edits=edits):
                    self.write_corpus(corpus)
                    before, kept = published(self.dataset), shard_files(self.dataset)
                    self.succeeds(*self.command(self.dataset, *more, "--update"))
                    self.check_update(self.fresh(*more), before, kept, "--limit" in more)
            shutil.rmtree(self.dataset)
            shutil.rmtree(self.corpus)
            self.corpus.mkdir()

    def test_an_update_that_was_killed_is_continued_with_and_without_the_option(self) -> None:
        rng = random.Random(f"{SEED}-kill")
        corpus = self.random_corpus(rng)
        self.write_corpus(corpus)
        more = ["--holdout", "20%"]
        self.succeeds(*self.command(self.dataset, *more))
        whole = self.folder / "whole"
        shutil.copytree(self.dataset, whole)
        for _ in range(6):
            self.edit(rng, corpus)
        self.write_corpus(corpus)
        expected = self.fresh(*more)
        begin = time.monotonic()
        self.succeeds(*self.command(self.dataset, *more, "--update"))
        seconds = time.monotonic() - begin
        n_middle = 0
        for n in range(KILLS):
            shutil.rmtree(self.dataset)
            shutil.copytree(whole, self.dataset)
            command = [program.program(),
                       *map(str, self.command(self.dataset, *more, "--update"))]
            run = subprocess.Popen(command)
            time.sleep(seconds * rng.random())
            run.kill()
            run.wait()
            is_whole = (self.dataset / "manifest.json").exists()
            n_middle += not is_whole
            again = self.command(self.dataset, *more, *(["--update"] if n % 2 else []))
            result = bindery(*again)
            # Before the first step the old dataset is complete, and only an update may change it.
            if result.status == 2:
                self.assertIn("--update", result.stderr)
                self.succeeds(*self.command(self.dataset, *more, "--update"))
            self.assertEqual(published(self.dataset), expected)

    def stop_update(self) -> None:
        """As after a kill between the first steps of an update and its first shard."""
        for path in self.dataset.rglob("manifest.json"):
            path.unlink()
        (self.dataset / "pack-log.json").write_text('{"updating": true}')

    def test_only_a_process_alone_goes_on_with_one_that_was_stopped(self) -> None:
        corpus = {"f0.jsonl": self.random_records(random.Random(SEED), 20)}
        self.write_corpus(corpus)
        self.succeeds(*self.command(self.dataset))
        corpus["f0.jsonl"][3] = record("another")
        self.write_corpus(corpus)
        self.succeeds(*self.command(self.dataset, "--update"))
        self.stop_update()
        files = contents(self.dataset)
        for more in [["--finish"], ["--rank", 0, "--ranks", 2]]:
            result = bindery(*self.command(self.dataset, *more))
            self.assertEqual(result.status, 2, result)
            self.assertIn("in one process alone", result.stderr)
            self.assertEqual(contents(self.dataset), files)
        self.succeeds(*self.command(self.dataset))
        self.assertEqual(published(self.dataset), self.fresh())

    def test_a_held_out_shard_that_was_left_alone_goes(self) -> None:
        """An input is shorter now, and a kill came between the two shards of its last unit."""
        name, more = "b.jsonl.gz", ["--holdout", "20%"]
        records = self.random_records(random.Random(SEED), 200)
        self.write_corpus({name: records})
        self.succeeds(*self.command(self.dataset, *more))
        last = max(path.name for path in self.dataset.glob("*.arrow"))
        alone = (self.dataset / "holdout" / last).read_bytes()
        self.write_corpus({name: records[:100]})
        self.succeeds(*self.command(self.dataset, *more, "--update"))
        self.assertFalse((self.dataset / last).exists())
        self.stop_update()
        (self.dataset / "holdout" / last).write_bytes(alone)
        self.succeeds(*self.command(self.dataset, *more))
        self.assertEqual(published(self.dataset), self.fresh(*more))

    def test_shards_behind_the_limit_go_whatever_they_are(self) -> None:
        """Also shards that do not belong to this plan, and would only be overwritten."""
        records = self.random_records(random.Random(SEED), 60)
        corpus = {"a.jsonl": records[:10], "b.jsonl.gz": records[10:40]}
        self.write_corpus(corpus)
        more = ["--limit", 40, "--holdout", "20%"]
        self.succeeds(*self.command(self.dataset, *more))
        self.write_corpus({"a.jsonl": records, "b.jsonl.gz": records[10:30]})
        self.succeeds(*self.command(self.dataset, *more, "--update"))
        self.assertEqual(published(self.dataset), self.fresh(*more))

    def test_a_corrected_line_keeps_the_shards_of_all_other_units(self) -> None:
        rng = random.Random(f"{SEED}-line")
        corpus = self.random_corpus(rng)
        corpus["f3.jsonl"] = [*self.random_records(rng, 60), b'{"text": null}']
        self.write_corpus(corpus)
        result = bindery(*self.command(self.dataset, "--threads", 1))
        self.assertEqual(result.status, 2, result)
        self.assertIn("f3.jsonl", result.stderr)
        kept = shard_files(self.dataset)
        self.assertGreater(len(kept), 10)
        corpus["f3.jsonl"][-1] = record("not null any more")
        self.write_corpus(corpus)
        refused = bindery(*self.command(self.dataset))
        self.assertEqual(refused.status, 2, refused)
        self.assertIn("f3.jsonl", refused.stderr)
        self.assertIn("--update", refused.stderr)
        self.succeeds(*self.command(self.dataset, "--update"))
        self.assertEqual(published(self.dataset), self.fresh())
        self.assertLessEqual(kept.items(), shard_files(self.dataset).items())

    def test_a_refused_update_changes_nothing(self) -> None:
        rng = random.Random(f"{SEED}-refused")
        self.write_corpus(self.random_corpus(rng))
        self.succeeds(*self.command(self.dataset))
        files = contents(self.dataset)
        extra = self.corpus / "g.jsonl"
        extra.write_bytes(record("another input") + b"\n")
        for arguments, said in [
            (self.command(self.dataset, "--update"), "another plan"),
            (self.command(self.dataset, "--update", "--seq-len", 32), "another plan"),
            (self.command(self.dataset, "--update", "--overwrite"), "either"),
            (self.command(self.dataset, "--update", "--rank", 0, "--ranks", 2), "alone"),
            (["pack", "-o", self.dataset, "--update", "-"], "standard input"),
        ]:
            with self.subTest(arguments):
                result = bindery(*arguments)
                self.assertEqual(result.status, 2, result)
                self.assertIn(said, result.stderr)
                self.assertEqual(contents(self.dataset), files)

    def test_a_record_that_moves_to_the_file_beside_it(self) -> None:
        """Neither its bytes nor its position change, nor does anything else."""
        records = self.random_records(random.Random(SEED), 1)
        self.write_corpus({"f0.jsonl": [], "f1.jsonl": records, "f2.jsonl": []})
        self.succeeds(*self.command(self.dataset))
        for holder in ["f2.jsonl", "f0.jsonl"]:
            self.write_corpus({f"f{i}.jsonl": [] for i in range(3)} | {holder: records})
            self.succeeds(*self.command(self.dataset, "--update"))
            self.assertEqual(published(self.dataset), self.fresh())

    def test_an_update_of_nothing_is_a_run_of_its_own(self) -> None:
        self.write_corpus(self.random_corpus(random.Random(SEED)))
        self.succeeds(*self.command(self.dataset, "--update"))
        self.assertEqual(published(self.dataset), self.fresh())

    def test_another_share_of_bad_records_is_an_update_too(self) -> None:
        self.write_corpus(self.random_corpus(random.Random(SEED)))
        skip = ["--bad-records", "skip"]
        self.succeeds(*self.command(self.dataset, *skip))
        kept = shard_files(self.dataset)
        result = bindery(*self.command(self.dataset, *skip, "--max-bad", "2%"))
        self.assertEqual(result.status, 2, result)
        self.assertIn("--update", result.stderr)
        self.succeeds(*self.command(self.dataset, *skip, "--max-bad", "2%", "--update"))
        self.assertEqual(published(self.dataset), self.fresh(*skip, "--max-bad", "2%"))
        self.assertEqual(shard_files(self.dataset), kept)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
