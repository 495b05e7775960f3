"""The output of `bindery export` equals an independent computation from the shards."""

import json
import os
import random
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import datasets  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import xxhash  # noqa: E402

import program  # noqa: E402
from program import ProgramTest, bindery, contents, write_inputs  # noqa: E402
from reference_packer import Input  # noqa: E402
from schemas import validate  # noqa: E402

SEED = 20240612
SEQ_LEN = 33
DEFAULT = ["input_ids", "position_ids", "labels", "seq_lengths"]
EVERY = ["cu_seqlens", *reversed(DEFAULT), "completion_mask", "loss_mask"]
SUFFIXES = {"stream": "arrows", "parquet": "parquet"}


def corpus(rng: random.Random) -> list[Input]:
    """Makes documents of one token (only the separator), of exactly a row, split ones, and
    others."""
    lengths = [0, 0, 1, SEQ_LEN - 2, SEQ_LEN - 1, SEQ_LEN, 5 * SEQ_LEN, 100, 0]
    lengths += [rng.randrange(3 * SEQ_LEN) for _ in range(60)]
    texts = ["".join(rng.choice("abc dé") for _ in range(n)) for n in lengths]
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    return [Input(f"{i}.jsonl", "".join(lines[i::2]).encode()) for i in range(2)]


def expected_row(row: dict) -> dict:
    """Computes a shard's row in every column, token by token. Without a mask all tokens are
    trained."""
    ids, bounds = row["input_ids"], row["cu_seqlens"]
    segment_of = [sum(b <= t for b in bounds) for t in range(len(ids))]  # padding comes last
    used = bounds[-1]
    positions, labels, targets = [], [], []
    trained = row.get("loss_mask", [True] * len(ids))
    for t, segment in enumerate(segment_of):
        positions.append(t - segment_of.index(segment))
        is_target = t > 0 and segment_of[t - 1] == segment and t < used and trained[t]
        targets.append(int(is_target))
        labels.append(ids[t] if is_target else -100)
    segments = sorted(set(segment_of))
    return {
        "input_ids": ids,
        "position_ids": positions,
        "labels": labels,
        "seq_lengths": [segment_of.count(segment) for segment in segments],
        "cu_seqlens": bounds,
        "loss_mask": targets,
        "completion_mask": targets,
    }


def exported(folder: Path) -> dict[str, bytes]:
    """Returns every file of a folder except the lock file."""
    return {name: data for name, data in contents(folder).items() if name != ".lock"}


def read_table(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_stream(path) as stream:
        return stream.read_all()


class Export(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        files = write_inputs(self.folder / "corpus", corpus(random.Random(SEED)))
        self.dataset = self.pack(self.folder / "dataset", files, "--seq-len", SEQ_LEN,
                                 "--unit-size", 1500)
        self.shards = sorted(self.dataset.glob("*.arrow"))
        self.assertGreater(len(self.shards), 2)
        self.out = self.folder / "out"

    def export(self, *arguments: object) -> dict[str, bytes]:
        self.succeeds("export", "-o", self.out, *arguments, self.dataset)
        return exported(self.out)

    def expected(self, shard: Path) -> list[dict]:
        return [expected_row(row) for row in pa.ipc.open_file(shard).read_all().to_pylist()]

    def assert_nothing_exported(self) -> None:
        self.assertEqual(exported(self.out), {})

    def test_the_corpus_has_what_matters(self) -> None:
        rows = [row for shard in self.shards for row in self.expected(shard)]
        stored = [row for shard in self.shards
                  for row in pa.ipc.open_file(shard).read_all().to_pylist()]
        self.assertTrue(any(row["cu_seqlens"][-1] < SEQ_LEN for row in rows))
        self.assertTrue(any(row["cu_seqlens"][-1] == SEQ_LEN for row in rows))
        self.assertTrue(any(1 in row["seq_lengths"] for row in rows))
        self.assertTrue(any(d["offset"] > 0 for row in stored for d in row["documents"]))

    def test_every_column_of_every_format_is_as_computed(self) -> None:
        for file_format, suffix in SUFFIXES.items():
            for columns in (None, EVERY, ["labels"]):
                with self.subTest(format=file_format, columns=columns):
                    given = [] if columns is None else ["--columns", ",".join(columns)]
                    self.export("--overwrite", "--format", file_format, *given)
                    names = {f"{shard.stem}.{suffix}" for shard in self.shards}
                    self.assertEqual(set(exported(self.out)), {"export.json", *names})
                    for shard in self.shards:
                        self.check_table(shard, self.out / f"{shard.stem}.{suffix}",
                                         columns or DEFAULT)

    def check_table(self, shard: Path, path: Path, columns: list[str]) -> None:
        table = read_table(path)
        self.assertEqual(table.column_names, columns)
        for field in table.schema:
            self.assertTrue(pa.types.is_list(field.type), field)
            self.assertEqual(field.type.value_type, pa.int32())
        rows = [{name: row[name] for name in columns} for row in self.expected(shard)]
        self.assertEqual(table.to_pylist(), rows)
        for row in table.to_pylist():
            if "seq_lengths" in row:
                self.assertEqual(sum(row["seq_lengths"]), SEQ_LEN)

    def test_datasets_reads_the_streams_and_the_parquet_files(self) -> None:
        rows = [{name: row[name] for name in DEFAULT}
                for shard in self.shards for row in self.expected(shard)]
        self.export()
        streams = sorted(str(path) for path in self.out.glob("*.arrows"))
        loaded = datasets.concatenate_datasets(
            [datasets.Dataset.from_file(path) for path in streams])
        self.assertEqual(list(loaded), rows)
        self.export("--overwrite", "--format", "parquet")
        parquet = sorted(str(path) for path in self.out.glob("*.parquet"))
        loaded = datasets.load_dataset("parquet", data_files=parquet, split="train",
                                       cache_dir=str(self.folder / "cache"))
        self.assertEqual(list(loaded), rows)

    def test_masked_tokens_are_no_targets(self) -> None:
        rng = random.Random(SEED)
        ids = [[rng.randrange(256) for _ in range(rng.randrange(3 * SEQ_LEN))] for _ in range(60)]
        masks = [[rng.random() < 0.5 for _ in document] for document in ids]
        table = self.folder / "masked.parquet"
        pq.write_table(pa.table({"input_ids": ids, "loss_mask": masks}), table)
        self.dataset = self.pack(self.folder / "masked", [table], "--seq-len", SEQ_LEN)
        (shard,) = self.dataset.glob("*.arrow")
        self.export("--columns", ",".join(EVERY))
        self.check_table(shard, self.out / f"{shard.stem}.arrows", EVERY)
        figures = json.loads((self.dataset / "manifest.json").read_text())["totals"]
        rows = read_table(self.out / f"{shard.stem}.arrows").to_pylist()
        self.assertGreater(figures["masked"], 0)
        self.assertEqual(sum(sum(row["completion_mask"]) for row in rows), figures["targets"])

    def test_summary_says_what_the_files_are(self) -> None:
        for file_format in SUFFIXES:
            files = self.export("--overwrite", "--format", file_format)
            summary = json.loads(files.pop("export.json"))
            validate(summary, "export")
            self.assertEqual(summary["file_format"], file_format)
            self.assertEqual([c["name"] for c in summary["columns"]], DEFAULT)
            manifest = (self.dataset / "manifest.json").read_bytes()
            self.assertEqual(summary["manifest"], xxhash.xxh3_128_hexdigest(manifest))
            self.assertEqual([f["name"] for f in summary["files"]], sorted(files))
            for file in summary["files"]:
                data = files[file["name"]]
                self.assertEqual(file["bytes"], len(data))
                self.assertEqual(file["checksum"], xxhash.xxh3_128_hexdigest(data))
                self.assertEqual(file["rows"], read_table(self.out / file["name"]).num_rows)
            self.assertEqual(summary["rows"], sum(f["rows"] for f in summary["files"]))

    def test_bytes_do_not_depend_on_the_number_of_threads(self) -> None:
        for file_format in SUFFIXES:
            given = ["--overwrite", "--format", file_format]
            one = self.export("--threads", 1, *given)
            self.assertEqual(self.export("--threads", 4, *given), one)

    def test_a_damaged_shard_is_named_and_nothing_is_exported(self) -> None:
        shard = self.shards[-1]
        data = bytearray(shard.read_bytes())
        with pa.memory_map(str(shard)) as stream:
            mapping = stream.read_buffer()
        ids = pa.ipc.open_file(mapping).get_batch(0).column("input_ids").flatten()
        data[ids.buffers()[1].address - mapping.address] ^= 1
        for damaged in (bytes(data), bytes(data[: len(data) // 2]), None):
            with self.subTest(missing=damaged is None):
                shard.unlink() if damaged is None else shard.write_bytes(damaged)
                for file_format in SUFFIXES:
                    result = bindery("export", "-o", self.out, "--format", file_format,
                                     self.dataset)
                    self.assertEqual(result.status, 2, result)
                    self.assertIn(shard.name, result.stderr)
                    self.assert_nothing_exported()

    def test_unknown_and_doubled_columns_are_refused(self) -> None:
        known = ("input_ids, position_ids, labels, seq_lengths, cu_seqlens, loss_mask, "
                 "completion_mask")
        for given, message in {
            "tokens": f"--columns: 'tokens' is not one of {known}",
            "labels,": f"--columns: '' is not one of {known}",
            "": f"--columns: '' is not one of {known}",
            "label": f"--columns: 'label' is not one of {known}",
            "labels,input_ids,labels": "--columns: 'labels' is there twice",
        }.items():
            with self.subTest(given):
                result = bindery("export", "-o", self.out, f"--columns={given}", self.dataset)
                self.assertEqual(result.status, 2, result)
                self.assertIn(f"bindery export: {message}\n", result.stderr)
                self.assertFalse(self.out.exists())

    def test_existing_files_are_never_lost(self) -> None:
        for name in ["notes.txt", "0-0.parquet", "export.json"]:
            for overwrite in ([], ["--overwrite"]):
                with self.subTest(name=name, overwrite=overwrite):
                    self.out.mkdir(exist_ok=True)
                    (self.out / name).write_text("{}")
                    result = bindery("export", "-o", self.out, *overwrite, self.dataset)
                    self.assertEqual(result.status, 2, result)
                    self.assertIn(name, result.stderr)
                    self.assertEqual(exported(self.out), {name: b"{}"})
            (self.out / name).unlink()
        files = self.export()
        result = bindery("export", "-o", self.out, self.dataset)
        self.assertEqual(result.status, 2, result)
        self.assertIn("--overwrite", result.stderr)
        self.assertEqual(exported(self.out), files)
        before = contents(self.dataset)
        result = bindery("export", "-o", self.dataset, "--overwrite", self.dataset)
        self.assertEqual(result.status, 2, result)
        self.assertEqual(contents(self.dataset), before)

    def test_tables_that_no_list_of_ours_names_are_kept(self) -> None:
        left = {f"{self.shards[0].stem}.parquet": b"mine", "00099-00000.arrows": b"too"}
        for name, data in left.items():
            for overwrite in ([], ["--overwrite"]):
                with self.subTest(name, overwrite=overwrite):
                    self.out.mkdir(exist_ok=True)
                    (self.out / name).write_bytes(data)
                    result = bindery("export", "-o", self.out, *overwrite, self.dataset)
                    self.assertEqual(result.status, 2, result)
                    self.assertIn(f"it holds something else ('{name}')", result.stderr)
                    self.assertEqual(exported(self.out), {name: data})
            (self.out / name).unlink()

    def test_tables_of_a_run_that_was_cut_short_are_replaced_if_told_so(self) -> None:
        """The tables have their final names, but the list of them is not complete yet."""
        whole = self.export("--format", "parquet")
        (self.out / "export.json").rename(self.out / ".export.json.0123abcd.part")
        result = bindery("export", "-o", self.out, self.dataset)
        self.assertEqual(result.status, 2, result)
        self.assertIn("--overwrite replaces what a run that was cut short has left", result.stderr)
        self.assertEqual(self.export("--overwrite", "--format", "parquet"), whole)

    def test_files_of_a_killed_run_are_removed(self) -> None:
        self.out.mkdir()
        (self.out / ".00000-00000.arrows.0123abcd.part").write_bytes(b"half")
        self.assertNotIn(".00000-00000.arrows.0123abcd.part", self.export())

    def test_a_folder_that_is_no_dataset_is_refused(self) -> None:
        (self.folder / "empty").mkdir()
        for dataset in ["empty", "absent"]:
            result = bindery("export", "-o", self.out, self.folder / dataset)
            self.assertEqual(result.status, 2, result)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
