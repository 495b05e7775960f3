"""What is trained is what the corpus says: masks come through packing, repacking and updates
unchanged, and `verify` finds every bit that is not the corpus's."""

import dataclasses
import json
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import program
from corpus_files import MASKED_FORMATS, jsonl
from dataset_checker import check_dataset, rebuild_documents, rebuild_masks
from forged_dataset import Forgery
from program import bindery, option_arguments, write_inputs
from reference_packer import Cut, Input, Options
from reference_test_case import ReferenceTestCase, dataset_rows
from same_bytes_test import published
from shard_checker import read_shard

SEED = 20250612
N_SHIFTED = 100
N_FLIPPED = program.amount(brief=10, usual=40, long=300)
TABLE = MASKED_FORMATS["parquet of tokens with masks, append"]


def random_texts(rng: random.Random, n: int) -> list[bytes]:
    letters = [rng.choice(b"abc d") for _ in range(120)]
    return [bytes(rng.sample(letters, rng.choice([0, 1, 2, 9, 30, 80]))) for _ in range(n)]


def documents_with_masks(dataset: Path) -> list[tuple]:
    """Returns every document and its mask, wherever they lie."""
    masks = rebuild_masks(dataset)
    return sorted((key, ids, masks[key]) for key, ids in rebuild_documents(dataset).items())


def shift(rng: random.Random, forgery: Forgery) -> int:
    """Moves the mask of one segment by one token, and returns its row."""
    choices = []
    for r, row in enumerate(forgery.shards[0].rows):
        for begin, end in zip(row.boundaries, row.boundaries[1:]):
            own = row.mask[begin + 1 : end]
            for moved in ([False, *own[:-1]], [*own[1:], False]):
                if moved != own and any(moved):
                    choices.append((r, row, begin + 1, end, moved))
    r, row, begin, end, moved = rng.choice(choices)
    row.mask[begin:end] = moved
    forgery.recount()
    return r


class Masks(ReferenceTestCase):
    def table(self, seed: str, n: int = 60, name: str = "corpus") -> tuple[Path, Input]:
        rng = random.Random(seed)
        [item] = TABLE.write(rng, random_texts(rng, n))
        [path] = write_inputs(self.folder / name, [item])
        return path, item

    # ---- Packing -------------------------------------------------------------------------

    def test_inputs_without_masks_are_trained_whole_beside_one_that_has_them(self) -> None:
        for n, seq_len in enumerate([7, 9, 33, 1001]):
            with self.subTest(seq_len=seq_len), \
                    tempfile.TemporaryDirectory(dir=self.folder) as name:
                rng = random.Random(f"{SEED}-{n}")
                texts = random_texts(rng, 40)
                inputs = [*TABLE.write(rng, texts[:20]), *jsonl(rng, texts[20:])]
                options = Options(seq_len=seq_len, bos=rng.choice([None, 7]),
                                  strategy=rng.choice(["best-fit", "concat"]))
                files = write_inputs(Path(name, "corpus"), inputs)
                dataset = Path(name, "dataset")
                self.assertTrue(self.packs(dataset, files, inputs, options))
                stated = json.loads((dataset / "manifest.json").read_bytes())["inputs"][0]
                cut = Cut(stated["weight"], stated["extent"], tuple(stated["starts"]))
                inputs[0] = dataclasses.replace(inputs[0], cut=cut)
                self.check_packed(dataset, inputs, texts, options)
                self.succeeds("verify", dataset, "--against", Path(name, "corpus"))

    def test_the_plan_names_the_column(self) -> None:
        ids, mask = [[1, 2], [3]], [[0, 1], [1]]
        for column in ("loss_mask", "completion_mask", "assistant_masks"):
            path = self.folder / f"{column}.parquet"
            pq.write_table(pa.table({"input_ids": ids, column: mask}), path)
            dataset = self.pack(self.folder / column, [path], "--seq-len", 8)
            [item] = json.loads((dataset / "plan.json").read_bytes())["inputs"]
            self.assertEqual(item["mask_column"], column)

    def test_a_dataset_without_masks_says_nothing_of_them(self) -> None:
        """All of its tokens are trained; a mask that says the same makes another dataset."""
        plain, masked = self.folder / "plain.parquet", self.folder / "masked.parquet"
        ids = [[1, 2, 3], [4, 5]]
        pq.write_table(pa.table({"input_ids": ids}), plain)
        pq.write_table(pa.table({"input_ids": ids, "labels": ids}), masked)
        for path, version in [(plain, "1.2"), (masked, "2.0")]:
            dataset = self.pack(self.folder / path.stem, [path], "--seq-len", 8)
            (shard,) = dataset.glob("*.arrow")
            text = (dataset / "manifest.json").read_text() + (dataset / "plan.json").read_text()
            stored = read_shard(shard)
            is_masked = version == "2.0"
            self.assertEqual({json.loads((dataset / name).read_bytes())["format"]
                              for name in ("manifest.json", "plan.json")}, {version})
            self.assertEqual(stored.metadata["format"], version)
            self.assertEqual("loss_mask" in text, is_masked)
            self.assertEqual("untrained" in text, is_masked)
            self.assertEqual("loss_mask" in stored.schema.names, is_masked)
            self.assertEqual(stored.metadata["figures"]["targets"], 5)

    def test_a_corpus_without_a_target_is_refused(self) -> None:
        path = self.folder / "a.parquet"
        pq.write_table(pa.table({"input_ids": [[1, 2], [3]], "loss_mask": [[1, 0], [0]]}), path)
        result = bindery("pack", "-q", "-o", self.folder / "dataset", path)
        self.assertEqual(result.status, 2, result)
        self.assertIn("nothing to pack: the inputs hold no document with a token that is trained",
                      result.stderr)

    # ---- Verifying -----------------------------------------------------------------------

    def test_a_mask_shifted_by_one_token_is_found_by_the_corpus(self) -> None:
        """With every checksum and every figure right."""
        path, _ = self.table(f"{SEED}-shifted")
        dataset = self.pack(self.folder / "dataset", [path], "--seq-len", 31)
        n_found = 0
        for n in range(N_SHIFTED):
            rng = random.Random(f"{SEED}-{n}")
            forgery = Forgery.load(dataset)
            row = shift(rng, forgery)
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                forged = Path(name, "forged")
                forgery.write(forged)
                self.assertEqual(check_dataset(forged), [])
                self.succeeds("verify", forged)
                result = bindery("verify", forged, "--against", path)
                self.assertEqual(result.status, 1, result)
                said = rf"row \d+: token \d+ of the document is (not )?trained, .*, row {row},"
                self.assertRegex(result.output, said)
                n_found += 1
        self.assertEqual(n_found, N_SHIFTED)

    def test_a_flipped_bit_is_found_by_the_rows_checksum(self) -> None:
        for seq_len in (7, 9, 64):
            path, _ = self.table(f"{SEED}-flipped", name=f"corpus-{seq_len}")
            dataset = self.pack(self.folder / f"{seq_len}", [path], "--seq-len", seq_len)
            (shard,) = dataset.glob("*.arrow")
            good = shard.read_bytes()
            stored = read_shard(shard)
            [batch] = stored.batches
            bits = batch.column("loss_mask").flatten().buffers()[1]
            begin = bits.address - stored.mapping.address
            n_bits = batch.num_rows * seq_len
            for n in range(N_FLIPPED):
                bit = random.Random(f"{SEED}-{n}").randrange(n_bits)
                with self.subTest(seq_len=seq_len, bit=bit):
                    damaged = bytearray(good)
                    damaged[begin + bit // 8] ^= 1 << bit % 8
                    shard.write_bytes(damaged)
                    result = bindery("verify", dataset)
                    self.assertEqual(result.status, 1, result)
                    self.assertIn(f"row {bit // seq_len}: R7: the checksum", result.output)

    def test_a_corpus_with_another_mask_is_not_what_was_packed(self) -> None:
        ids = [[1, 2, 3], [4, 5, 6]]
        path = self.folder / "a.parquet"
        pq.write_table(pa.table({"input_ids": ids, "loss_mask": [[0, 1, 1], [0, 1, 0]]}), path)
        dataset = self.pack(self.folder / "dataset", [path], "--seq-len", 8)
        self.succeeds("verify", dataset, "--against", path)
        for columns, said in [
            ({"loss_mask": [[0, 1, 1], [0, 0, 1]]}, "token 1 of the document is not trained, and"),
            ({"labels": [[-100, 2, 3], [-100, 5, -100]]},
             "was said by column 'loss_mask', and now by 'labels'"),
            ({}, "was said by column 'loss_mask', and now by ''"),
        ]:
            with self.subTest(columns=columns):
                pq.write_table(pa.table({"input_ids": ids, **columns}), path)
                result = bindery("verify", dataset, "--against", path)
                self.assertEqual(result.status, 1, result)
                self.assertIn(said, result.output)

    # ---- Packing again -------------------------------------------------------------------

    def test_repacking_keeps_masks(self) -> None:
        path, _ = self.table(f"{SEED}-repack")
        dataset = self.pack(self.folder / "dataset", [path], "--seq-len", 31)
        expected = documents_with_masks(dataset)
        for n, (seq_len, strategy) in enumerate([(7, "concat"), (9, "best-fit"), (1001, "concat")]):
            out = self.folder / f"repacked-{n}"
            self.succeeds("repack", "-q", dataset, "-o", out, "--seq-len", seq_len,
                          "--strategy", strategy)
            self.assertEqual(check_dataset(out), [])
            self.assertEqual(documents_with_masks(out), expected)
            self.succeeds("verify", out, "--against", path)

    def test_joining_with_masks_is_packing_together(self) -> None:
        """Of datasets with masks and without, in any order. An empty document, which is its
        separator alone, can be no target."""
        for bos in (None, 7):
            options = ["--seq-len", 31, *(["--bos", bos] if bos else [])]
            tables = [self.table(f"{SEED}-join-{n}", name=f"corpus-{n}-{bos}")[0] for n in (0, 1)]
            plain = self.folder / f"plain-{bos}.jsonl"
            texts = ["plain", "", "a text that is longer than a row of tokens", ""]
            plain.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
            for n, files in enumerate([tables, [tables[0], plain], [plain, *tables]]):
                with self.subTest(bos=bos, n=n):
                    parts = [
                        self.pack(self.folder / f"{bos}-{n}-{i}", [path], *options)
                        for i, path in enumerate(files)
                    ]
                    joined = self.folder / f"{bos}-{n}-joined"
                    self.succeeds("repack", "-q", *parts, "-o", joined)
                    self.assertEqual(check_dataset(joined), [])
                    together = self.pack(self.folder / f"{bos}-{n}-together", files, *options)
                    self.assertEqual(documents_with_masks(joined), documents_with_masks(together))
                    figures = [json.loads((dataset / "manifest.json").read_bytes())["totals"]
                               for dataset in (joined, together)]
                    for name in ("untrained", "untrained_documents", "text", "separators"):
                        self.assertEqual(figures[0][name], figures[1][name], name)
                    against = [part for path in files for part in ("--against", path)]
                    self.succeeds("verify", joined, *against)

    def test_an_update_notices_a_mask_that_has_changed(self) -> None:
        """The ids are the same, and so is the file's size."""
        ids = [[1, 2, 3], [4, 5, 6]]
        path, options = self.folder / "a.arrow", option_arguments(Options(seq_len=8))
        for mask in ([[0, 1, 1], [0, 1, 0]], [[0, 1, 0], [0, 1, 1]]):
            table = pa.table({"input_ids": ids, "loss_mask": mask})
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
            self.succeeds("pack", "-q", "-o", self.folder / "dataset", "--update", *options, path)
        self.pack(self.folder / "fresh", [path], *options)
        self.assertEqual(dataset_rows(self.folder / "dataset"), dataset_rows(self.folder / "fresh"))
        self.assertEqual(published(self.folder / "dataset"), published(self.folder / "fresh"))

    # ---- Seeing --------------------------------------------------------------------------

    def test_trained_and_masked_tokens_are_told_by_source(self) -> None:
        arguments = []
        for name in ("chats", "code"):
            path, _ = self.table(f"{SEED}-{name}", name=name)
            arguments += ["--source", f"{name}={path}"]
        dataset = self.pack(self.folder / "dataset", arguments, "--seq-len", 31)
        shown = self.succeeds("inspect", dataset).stdout
        told = json.loads(self.succeeds("inspect", "--json", dataset).stdout)
        for name in ("masked", "untrained"):
            self.assertIn(f"{told['figures'][name]:,}", shown)
        self.assertRegex(shown, r"untrained documents +\d+")
        for source in told["sources"]:
            figures = source["figures"]
            share = 100 * figures["targets"] / (figures["targets"] + figures["masked"])
            self.assertRegex(shown, rf"{source['name']} +{figures['targets']:,} "
                                    rf"+{figures['masked']:,} +{share:.2f}%")


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
