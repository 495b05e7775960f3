"""No damage goes unnoticed: `verify` reports every changed byte of a dataset; a forgery whose
checksums are right is found if it breaks a rule."""

import copy
import json
import os
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import program
from corpus import DELIMITER, make_corpus
from forged_dataset import ForgedRow, ForgedShard, Forgery, seal
from program import ProgramTest, bindery, contents, option_arguments, write_inputs
from reference_packer import VOCAB_SIZE, Options
from shard_checker import BAD_FIGURES, FIGURE_KEYS, NOT_ALWAYS_COUNTED

SEED = 20240609
CORRUPTIONS = program.amount(brief=20, usual=70, long=1000)  # for each kind of dataset
FORGERIES = 300 if program.LONG else 18  # the same
VERIFY_TIMEOUT_SECONDS = 20
# Files that no checksum of the dataset covers: about the run, or for other programs.
NO_PART_OF_IT = ["pack-log.json", ".lock", "README.md", "tokenizer_config.json"]

Interval = tuple[int, int]  # [begin, end)

# ---- Where the bytes of a shard lie ------------------------------------------------


def footer_of(data: bytes) -> Interval:
    """Returns the range of the footer's table, its length, and the magic at the end."""
    n_bytes = int.from_bytes(data[-10:-6], "little")
    return len(data) - 10 - n_bytes, len(data)


def gaps(taken: list[Interval], n_bytes: int) -> list[Interval]:
    """Returns the ranges between: heads of messages, and padding up to 8 bytes."""
    found, at = [], 0
    for begin, end in [*sorted(taken), (n_bytes, n_bytes)]:
        if at < begin:
            found.append((at, begin))
        at = max(at, end)
    return found


def regions_of(data: bytes) -> dict[str, list[Interval]]:
    """Maps every byte of a shard to the part that it belongs to. The buffers of a compressed shard
    do not lie in the file as they are: there they count as gaps."""
    regions: dict[str, list[Interval]] = defaultdict(list)
    regions["footer"].append(footer_of(data))
    mapping = pa.py_buffer(data)
    batches = pa.ipc.open_file(mapping)
    metadata = batches.schema.metadata[b"bindery"]
    begin = data.index(metadata)
    regions["metadata"].append((begin, begin + len(metadata)))
    for i in range(batches.num_record_batches):
        batch = batches.get_batch(i)
        for name, column in zip(batch.schema.names, batch.columns):
            for number, buffer in enumerate(column.buffers()):
                at = buffer.address - mapping.address if buffer else -1
                if 0 <= at < len(data) and buffer.size > 0:
                    regions[f"{name} {number}"].append((at, at + buffer.size))
    regions["between"] = gaps([one for some in regions.values() for one in some], len(data))
    return dict(regions)


def place_in(rng: random.Random, intervals: list[Interval]) -> int:
    begin, end = rng.choices(intervals, [end - begin for begin, end in intervals])[0]
    return rng.randrange(begin, end)


# ---- Damage ------------------------------------------------------------------------
# Each function gets the file and the part of it to be damaged.

Damage = Callable[[random.Random, bytearray, list[Interval]], None]


def flip_a_bit(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    data[place_in(rng, part)] ^= 1 << rng.randrange(8)


def change_a_byte(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    data[place_in(rng, part)] = rng.randrange(256)


def zero_a_range(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    begin = place_in(rng, part)
    end = min(len(data), begin + rng.choice([1, 8, 64, 1000]))
    data[begin:end] = bytes(end - begin)


def cut_the_end(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    del data[rng.choice([0, place_in(rng, part), len(data) - 1]) :]


def append_bytes(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    data += rng.choice([b"\n", b"\x00", b" ", b"x", rng.randbytes(64)])


def edit_a_number(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    """Changes a digit of a number that is written as text."""
    digits = [match.start() for match in re.finditer(rb"[0-9]", data)]
    data[rng.choice(digits)] = ord(rng.choice("0123456789"))


def drop_a_byte(rng: random.Random, data: bytearray, part: list[Interval]) -> None:
    del data[place_in(rng, part)]


DAMAGES: list[Damage] = [
    flip_a_bit, flip_a_bit, change_a_byte, zero_a_range, cut_the_end, append_bytes,
    edit_a_number, drop_a_byte,
]


def damage_anywhere(rng: random.Random, data: bytearray) -> None:
    rng.choice(DAMAGES)(rng, data, [(0, len(data))])


# ---- Forgeries: every checksum is right, and a rule is broken ------------------------

Change = Callable[[random.Random, Forgery], str]  # returns the name of the changed file


def some_shard(rng: random.Random, forgery: Forgery) -> ForgedShard:
    return rng.choice([shard for shard in forgery.shards if shard.rows])


def some_row(rng: random.Random, forgery: Forgery) -> tuple[ForgedShard, ForgedRow]:
    shard = some_shard(rng, forgery)
    return shard, rng.choice(shard.rows)


def move_a_boundary(rng: random.Random, forgery: Forgery) -> str:
    shard, row = some_row(rng, forgery)
    row.boundaries[rng.randrange(len(row.boundaries))] += rng.choice([-1, 1])
    return shard.name


def leave_the_vocabulary(rng: random.Random, forgery: Forgery) -> str:
    shard, row = some_row(rng, forgery)
    row.ids[rng.randrange(len(row.ids))] = rng.choice([VOCAB_SIZE, 0xFFFF])
    return shard.name


def change_an_entry(rng: random.Random, forgery: Forgery) -> str:
    """Changes offset or length of a segment: its document is not covered, or figures differ."""
    shard, row = some_row(rng, forgery)
    entry = rng.choice(row.documents)
    key = rng.choice(["offset", "length"])
    entry[key] = max(0, entry[key] + rng.choice([-1, 1, 100])) if entry[key] else 1
    return shard.name


def leave_the_unit(rng: random.Random, forgery: Forgery) -> str:
    shard, row = some_row(rng, forgery)
    rng.choice(row.documents)[rng.choice(["input", "position"])] += 1 << 30
    return shard.name


def repeat_a_row(rng: random.Random, forgery: Forgery) -> str:
    shard, row = some_row(rng, forgery)
    shard.rows.insert(rng.randrange(len(shard.rows) + 1), copy.deepcopy(row))
    shard.recount(forgery.packing)
    return shard.name


def lose_a_row(rng: random.Random, forgery: Forgery) -> str:
    shard, row = some_row(rng, forgery)
    shard.rows.remove(row)
    shard.figures = {**shard.figures, "rows": shard.figures["rows"] - 1}
    return shard.name


def swap_two_rows(rng: random.Random, forgery: Forgery) -> str:
    shard = max(forgery.shards, key=lambda s: len(s.rows))
    one, other = rng.sample(range(len(shard.rows)), 2)
    shard.rows[one], shard.rows[other] = shard.rows[other], shard.rows[one]
    return shard.name


def edit_a_figure(rng: random.Random, forgery: Forgery) -> str:
    """Changes shard, manifest and totals alike, except figures that rows cannot show."""
    shard = some_shard(rng, forgery)
    unseen = {"invalid_utf8_documents", "headless_documents", *BAD_FIGURES, *NOT_ALWAYS_COUNTED}
    name = rng.choice([name for name in FIGURE_KEYS if name not in unseen])
    figure = shard.figures[name]
    if isinstance(figure, list):
        figure = [*figure[:-1], figure[-1] + 1]
    else:
        figure += rng.choice([-1, 1]) if figure else 1
    shard.figures = {**shard.figures, name: figure}
    return shard.name


def edit_a_total(rng: random.Random, forgery: Forgery) -> str:
    numbers = set(FIGURE_KEYS) - {"added_tokens"}
    name = rng.choice(sorted(n for n in numbers if not n.endswith("histogram")))
    forgery.totals[name] = sum(shard.figures[name] for shard in forgery.shards) + 1
    return "manifest.json"


CHANGES: list[Change] = [
    move_a_boundary, leave_the_vocabulary, change_an_entry, leave_the_unit, repeat_a_row,
    lose_a_row, swap_two_rows, edit_a_figure, edit_a_total,
]


class DamageTest(ProgramTest):
    """A test with a good dataset and a copy of it that will be damaged."""

    settings: dict[str, object] = {}
    part = "."  # of the dataset that was packed

    def setUp(self) -> None:
        super().setUp()
        self.whole = self.pack_corpus("whole", SEED) / self.part
        self.files = contents(self.whole)
        self.shards = [name for name in self.files if name.endswith(".arrow")]
        self.assertGreater(len(self.shards), 2)
        self.dataset = self.folder / "dataset"

    def pack_corpus(self, name: str, seed: int) -> Path:
        rng = random.Random(seed)
        options = Options(seq_len=32, unit_size=700, delimiter=DELIMITER, **self.settings)
        inputs = make_corpus(rng, options, 60).inputs
        files = write_inputs(self.folder / f"corpus of {name}", inputs)
        whole = self.pack(self.folder / name, files, *option_arguments(options))
        for beside in NO_PART_OF_IT:
            (whole / beside).unlink()
        return whole

    def restore(self) -> None:
        shutil.rmtree(self.dataset, ignore_errors=True)
        shutil.copytree(self.whole, self.dataset)

    def assert_said(self, names: tuple[str, ...], statuses: tuple[int, ...], *how: str) -> None:
        result = bindery("verify", *how, self.dataset, timeout=VERIFY_TIMEOUT_SECONDS)
        self.assertIn(result.status, statuses, result)
        lines = [line for line in result.output.splitlines() if any(n in line for n in names)]
        self.assertTrue(lines, result)

    def assert_noticed(self, *names: str) -> None:
        """`verify` exits with 1, in good time, with a line that names one of the files; and so
        does `verify --structure`."""
        self.assert_said(names, (1,))
        self.assert_said(names, (1,), "--structure")

    def check_changed_bytes(self) -> None:
        regions = {name: regions_of(self.files[name]) for name in self.shards}
        for n in range(CORRUPTIONS):
            seed = f"{SEED}-{n}"
            rng = random.Random(seed)
            name = rng.choice(["manifest.json", "plan.json", "tokenizer.json", *self.shards])
            where = rng.choice(sorted(regions[name])) if name in regions else "all"
            data = bytearray(self.files[name])
            part = regions[name][where] if name in regions else [(0, len(data))]
            damage = rng.choice(DAMAGES)
            while data == self.files[name]:
                damage(rng, data, part)
            with self.subTest(seed=seed, file=name, where=where, damage=damage.__name__):
                self.restore()
                (self.dataset / name).write_bytes(data)
                self.assert_noticed(name)

    def check_forgeries(self) -> None:
        for n in range(FORGERIES):
            seed = f"{SEED}-forgery-{n}"
            rng = random.Random(seed)
            change = CHANGES[n % len(CHANGES)]
            forgery = Forgery.load(self.whole)
            name = change(rng, forgery)
            with self.subTest(seed=seed, change=change.__name__):
                shutil.rmtree(self.dataset, ignore_errors=True)
                forgery.write(self.dataset)
                self.assert_said((name, "manifest.json"), (1,))  # its sums may be wrong now


class Compressed(DamageTest):
    settings = {"codec": "zstd", "shuffle": 3, "max_documents": 4}

    def test_any_changed_byte_is_noticed(self) -> None:
        self.check_changed_bytes()

    def test_a_broken_rule_is_noticed_though_checksums_are_right(self) -> None:
        self.check_forgeries()


class HeldOut(DamageTest):
    settings = {"holdout": 400_000, "bos": 255, "min_tokens": 1}
    part = "holdout"

    def test_any_changed_byte_is_noticed(self) -> None:
        self.check_changed_bytes()

    def test_a_broken_rule_is_noticed_though_checksums_are_right(self) -> None:
        self.check_forgeries()


class Corruption(DamageTest):
    def test_any_changed_byte_is_noticed(self) -> None:
        self.check_changed_bytes()

    def test_a_broken_rule_is_noticed_though_checksums_are_right(self) -> None:
        self.check_forgeries()

    def test_every_region_of_a_shard_is_known(self) -> None:
        """Makes sure that the places above are drawn from all regions."""
        data = self.files[max(self.shards, key=lambda name: len(self.files[name]))]
        regions = regions_of(data)
        self.assertGreaterEqual(len(regions), 3 + 1 + 2 + 5 + 1)
        places = sorted(one for some in regions.values() for one in some)
        self.assertEqual(places[0][0], 0)
        self.assertEqual(places[-1][1], len(data))
        for (_, end), (begin, _) in zip(places, places[1:]):
            self.assertEqual(end, begin)

    def test_a_count_that_the_manifest_alone_has_changed_is_noticed(self) -> None:
        """The manifest's checksum is made right again, but the shards contradict it."""
        good = json.loads(self.files["manifest.json"])
        del good["checksum"]
        for key in ["rows", "segments", "text", "targets", "longest_segment"]:
            with self.subTest(key=key):
                manifest = copy.deepcopy(good)
                manifest["shards"][0]["figures"][key] += 1
                self.restore()
                seal(self.dataset / "manifest.json", manifest)
                self.assert_noticed("manifest.json", self.shards[0])

    def test_a_shard_of_another_dataset_is_noticed(self) -> None:
        other = self.pack_corpus("other", SEED + 1)
        for name in self.shards[:3]:
            with self.subTest(file=name):
                self.restore()
                shutil.copy(other / name, self.dataset / name)
                self.assert_noticed(name)

    def test_a_deleted_file_is_noticed(self) -> None:
        for name in self.files:
            with self.subTest(file=name):
                self.restore()
                (self.dataset / name).unlink()
                if name == "manifest.json":  # without it there is no dataset yet
                    self.assert_said((name,), (2,))
                else:
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

    def test_a_file_replaced_by_a_folder_is_noticed(self) -> None:
        for name in ["manifest.json", "plan.json", "tokenizer.json", self.shards[0]]:
            with self.subTest(file=name):
                self.restore()
                (self.dataset / name).unlink()
                (self.dataset / name).mkdir()
                self.assert_said((name,), (1, 2))

    def test_the_log_of_the_run_does_not_matter(self) -> None:
        self.restore()
        (self.dataset / "pack-log.json").write_bytes(b"\xff")
        self.succeeds("verify", self.dataset)

    def test_inspect_refuses_a_row_that_is_not_its_checksums(self) -> None:
        """Flips one bit of the ids of each row of the dataset in turn."""
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
    """Flips a bit of the row's first id in the file."""
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
