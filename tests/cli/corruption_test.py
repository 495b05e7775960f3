"""No damage goes unnoticed: whatever byte of a dataset changes, `verify` says so."""

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import program
from corpus import DELIMITER, make_corpus
from program import ProgramTest, bindery, contents, option_arguments, write_inputs
from reference_packer import Options

SEED = 20240609
CORRUPTIONS = 1000 if program.LONG else 120  # of each kind of dataset
VERIFY_TIMEOUT_SECONDS = 20

Damage = Callable[[random.Random, bytearray], None]


def flip_a_bit(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def change_a_byte(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def zero_a_range(rng: random.Random, data: bytearray) -> None:
    begin = rng.randrange(len(data))
    end = min(len(data), begin + rng.choice([1, 8, 64, 1000]))
    data[begin:end] = bytes(end - begin)


def cut_the_end(rng: random.Random, data: bytearray) -> None:
    del data[rng.choice([0, rng.randrange(len(data)), len(data) - 1]) :]


def append_bytes(rng: random.Random, data: bytearray) -> None:
    data += rng.choice([b"\n", b"\x00", b" ", b"x", rng.randbytes(64)])


def edit_a_number(rng: random.Random, data: bytearray) -> None:
    """Another digit in one of the numbers that are written as text."""
    digits = [match.start() for match in re.finditer(rb"[0-9]", data)]
    data[rng.choice(digits)] = ord(rng.choice("0123456789"))


def drop_a_byte(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data))]


DAMAGES: list[Damage] = [
    flip_a_bit, change_a_byte, zero_a_range, cut_the_end, append_bytes, edit_a_number,
    drop_a_byte,
]


class DamageTest(ProgramTest):
    """A test with a good dataset and a copy of it to be damaged."""

    settings: dict[str, object] = {}

    def setUp(self) -> None:
        super().setUp()
        rng = random.Random(SEED)
        options = Options(seq_len=32, unit_size=700, delimiter=DELIMITER, **self.settings)
        files = write_inputs(self.folder / "corpus", make_corpus(rng, options, 60).inputs)
        whole = self.pack(self.folder / "whole", files, *option_arguments(options))
        for name in ["pack-log.json", ".lock"]:  # which are no part of what is packed
            (whole / name).unlink()
        self.whole = whole
        self.files = contents(whole)
        self.shards = [name for name in self.files if name.endswith(".arrow")]
        self.assertGreater(len(self.shards), 2)
        self.dataset = self.folder / "dataset"

    def restore(self) -> None:
        shutil.rmtree(self.dataset, ignore_errors=True)
        shutil.copytree(self.whole, self.dataset)

    def assert_noticed(self, *names: str) -> None:
        """`verify` answers no, in good time, with a line that names one of the files."""
        result = bindery("verify", self.dataset, timeout=VERIFY_TIMEOUT_SECONDS)
        self.assertIn(result.status, (1, 2), result)
        lines = [line for line in result.output.splitlines() if any(n in line for n in names)]
        self.assertTrue(lines, result)

    def check_changed_bytes(self) -> None:
        for n in range(CORRUPTIONS):
            seed = f"{SEED}-{n}"
            rng = random.Random(seed)
            name = rng.choice(["manifest.json", "plan.json", "tokenizer.json", *self.shards])
            damage = rng.choice(DAMAGES)
            data = bytearray(self.files[name])
            while data == self.files[name]:
                damage(rng, data)
            with self.subTest(seed=seed, file=name, damage=damage.__name__):
                self.restore()
                (self.dataset / name).write_bytes(data)
                self.assert_noticed(name)


class Compressed(DamageTest):
    settings = {"codec": "zstd", "shuffle": 3, "max_documents": 4}

    def test_any_changed_byte_is_noticed(self) -> None:
        self.check_changed_bytes()


class Corruption(DamageTest):
    def test_any_changed_byte_is_noticed(self) -> None:
        self.check_changed_bytes()

    def test_a_deleted_file_is_noticed(self) -> None:
        for name in self.files:
            with self.subTest(file=name):
                self.restore()
                (self.dataset / name).unlink()
                self.assert_noticed(name)

    def test_swapped_shards_are_noticed(self) -> None:
        for one, other in zip(self.shards, self.shards[1:]):
            if self.files[one] == self.files[other]:
                continue
            with self.subTest(one=one, other=other):
                self.restore()
                (self.dataset / one).write_bytes(self.files[other])
                (self.dataset / other).write_bytes(self.files[one])
                self.assert_noticed(one, other)

    def test_a_shard_that_the_manifest_does_not_name_is_noticed(self) -> None:
        self.restore()
        shutil.copy(self.dataset / self.shards[0], self.dataset / "00099-00000.arrow")
        self.assert_noticed("00099-00000.arrow")

    def test_a_file_replaced_by_a_folder_is_noticed(self) -> None:
        for name in ["manifest.json", "plan.json", "tokenizer.json", self.shards[0]]:
            with self.subTest(file=name):
                self.restore()
                (self.dataset / name).unlink()
                (self.dataset / name).mkdir()
                self.assert_noticed(name)

    def test_the_log_of_the_run_does_not_matter(self) -> None:
        self.restore()
        (self.dataset / "pack-log.json").write_bytes(b"\xff")
        self.succeeds("verify", self.dataset)

    def test_inspect_refuses_a_row_that_is_not_its_checksums(self) -> None:
        """Each row of the dataset in turn, with one bit of its ids flipped."""
        first = 0
        for name in self.shards:
            table_rows = pa.ipc.open_file(self.whole / name).read_all().num_rows
            if table_rows == 0:
                continue
            row = random.Random(f"{SEED}-{name}").randrange(table_rows)
            with self.subTest(shard=name, row=row):
                self.restore()
                flip_in_row(self.dataset / name, row)
                result = bindery("inspect", "--row", first + row, self.dataset)
                self.assertEqual(result.status, 2, result)
                self.assertIn(name, result.stderr)
                self.assertRegex(result.stderr, rf"\brow {row}\b|\brow {first + row}\b")
            first += table_rows


def flip_in_row(shard: Path, row: int) -> None:
    """Flips a bit of the row's first id, where it lies in the file."""
    with pa.memory_map(str(shard)) as stream:
        mapping = stream.read_buffer()
    batches = pa.ipc.open_file(mapping)
    for i in range(batches.num_record_batches):
        batch = batches.get_batch(i)
        if row < batch.num_rows:
            ids = batch.column("input_ids").flatten()
            row_bytes = batch.schema.field("input_ids").type.list_size * ids.type.byte_width
            place = ids.buffers()[1].address - mapping.address + row * row_bytes
            break
        row -= batch.num_rows
    with open(shard, "r+b") as file:
        byte = os.pread(file.fileno(), 1, place)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), place)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
