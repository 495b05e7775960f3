"""Each rule of `schemas/shard-v1.md`, broken alone with every checksum right, is found: by the
oracle, and by `verify`, which names it in the same words with any number of threads."""

import copy
import dataclasses
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import program
from corpus import DELIMITER, make_corpus, with_compression
from corpus_files import MASKED_FORMATS
from dataset_checker import check_dataset, sum_figures
from forged_dataset import ForgedRow, ForgedShard, Forgery, seal
from program import ProgramTest, bindery, option_arguments, write_inputs
from reference_packer import Options
from shard_checker import BAD_FIGURES, FIGURE_KEYS, NOT_ALWAYS_COUNTED, left_out

SEED = 20240611
OPTIONS = Options(
    seq_len=32, unit_size=1500, delimiter=DELIMITER, separator=10, bos=256, padding=0
)

# Figures, and changes to others that keep the ledger balanced.
BALANCE = {
    "segments": {"targets": -1}, "targets": {"segments": -1}, "text": {"separators": -1},
    "separators": {"text": -1}, "bos": {"repeated": -1}, "repeated": {"text": -1},
    "truncated": {"text": 1}, "dropped": {"text": 1}, "too_short": {"text": 1},
    "held_out": {"text": 1}, "packed": {"padding": -1, "targets": 1, "text": 1},
    "padding": {"packed": -1, "targets": -1, "text": -1},
}
ONLY_BOUNDED = ["invalid_utf8_documents", "headless_documents", *BAD_FIGURES]

Change = Callable[[Forgery], None]
CHANGES: list[tuple[str, str, Change, dict]] = []


def breaks(rule: str, said: str = "", **settings: object) -> Callable[[Change], Change]:
    """Registers a change that breaks `rule` of a dataset that was packed with OPTIONS and these
    settings; the function's name says how, and `said` is expected in the message of `verify`."""

    def register(change: Change) -> Change:
        CHANGES.append((rule, said, change, settings))
        return change

    return register


def rows_of(forgery: Forgery) -> list[ForgedRow]:
    return [row for shard in forgery.shards for row in shard.rows]


def row_where(forgery: Forgery, wanted: Callable[[ForgedRow], bool]) -> ForgedRow:
    return next(row for row in rows_of(forgery) if wanted(row))


def several(row: ForgedRow) -> bool:
    """Tells whether the row has two segments or more."""
    return len(row.documents) > 1


def padded(row: ForgedRow) -> bool:
    return row.boundaries[-1] < len(row.ids)


def whole_documents(row: ForgedRow) -> bool:
    """Tells whether the row has several segments, each of them a whole document with text."""
    sizes = [end - begin for begin, end in zip(row.boundaries, row.boundaries[1:])]
    return several(row) and all(
        d["length"] == size > 2 for d, size in zip(row.documents, sizes)
    )


def continued(forgery: Forgery) -> tuple[ForgedShard, ForgedRow]:
    """Returns a row whose only segment is a middle piece of its document, and its shard."""
    for shard in forgery.shards:
        for row in shard.rows:
            first = row.documents[0]
            if 0 < first["offset"] < first["length"] - len(row.ids):
                return shard, row
    raise LookupError("no document of three pieces")


def busiest(forgery: Forgery) -> ForgedShard:
    return max(forgery.shards, key=lambda shard: len(shard.rows))


def balance(figures: dict) -> None:
    """Balances the ledger by changing the number of text tokens."""
    taken = figures["packed"] + figures["truncated"] + sum(figures[k] for k in left_out(figures))
    figures["text"] = taken - figures["bos"] - figures["separators"] - figures["repeated"]


def change_packing(forgery: Forgery, **entries: object) -> None:
    """Changes the plan, too."""
    forgery.packing.update(entries)
    forgery.plan["packing"].update(entries)


# ---- R ---------------------------------------------------------------------------


@breaks("R1", "cu_seqlens has 1 entries")
def a_row_without_a_segment(forgery: Forgery) -> None:
    row = rows_of(forgery)[0]
    row.boundaries, row.documents = [0], []


@breaks("R1", "cu_seqlens has 0 entries")
def a_row_without_boundaries(forgery: Forgery) -> None:
    row = rows_of(forgery)[0]
    row.boundaries, row.documents = [], []


@breaks("R1", "cu_seqlens has 3 entries and does not begin with 0")
def boundaries_that_begin_late(forgery: Forgery) -> None:
    row_where(forgery, several).boundaries[0] = 1


@breaks("R1", "boundary 2 is 32 after 32")
def boundaries_that_stand_still(forgery: Forgery) -> None:
    row = row_where(forgery, several)
    row.boundaries[1] = row.boundaries[2]


@breaks("R1", "boundary 1 is 33 after 0")
def boundaries_that_turn_back(forgery: Forgery) -> None:
    row = row_where(forgery, several)
    row.boundaries[1] = row.boundaries[2] + 1


@breaks("R1", "cu_seqlens has 3 entries and does not begin with 0")
def a_negative_boundary(forgery: Forgery) -> None:
    row_where(forgery, several).boundaries[0] = -1


@breaks("R1", "boundary 2 is 33 after 7")
def boundaries_past_the_row(forgery: Forgery) -> None:
    rows_of(forgery)[0].boundaries[-1] = OPTIONS.seq_len + 1


@breaks("R2", "1 documents for 2 segments")
def a_document_too_few(forgery: Forgery) -> None:
    row_where(forgery, several).documents.pop()


@breaks("R2", "3 documents for 2 segments")
def a_document_too_many(forgery: Forgery) -> None:
    row = rows_of(forgery)[0]
    row.documents.append(dict(row.documents[-1]))


@breaks("R3", "token 1 has id 257, the vocabulary 257")
def an_id_outside_the_vocabulary(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).ids[1] = 257


@breaks("R3", "a token after the last boundary 31 is not padding")
def padding_of_another_id(forgery: Forgery) -> None:
    row_where(forgery, padded).ids[-1] = 10


@breaks("R3", "token 31 has id 65535, the vocabulary 257")
def padding_outside_the_vocabulary(forgery: Forgery) -> None:
    row_where(forgery, padded).ids[-1] = 65535


@breaks("R4", "segment 0 covers tokens 0 to 7 of a document of 6")
def a_segment_past_its_documents_end(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).documents[0]["length"] -= 1


@breaks("R4", "segment 0 covers tokens 4294967294 to 4294967301 of a document of 7")
def a_segment_far_past_its_documents_end(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).documents[0]["offset"] = 2**32 - 2


@breaks("R4", "segment 0 has one token of a document of 7")
def a_piece_of_one_token(forgery: Forgery) -> None:
    row = row_where(forgery, whole_documents)
    row.boundaries[1] = 1


@breaks("R5", "segment 0 ends its document without the separator")
def a_document_without_its_separator(forgery: Forgery) -> None:
    row = row_where(forgery, whole_documents)
    row.ids[row.boundaries[1] - 1] = 65


@breaks("R6", "segment 0 begins its document without the BOS token")
def a_document_without_its_bos(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).ids[0] = 65


@breaks("R7", "the checksum does not match the row")
def a_row_with_another_checksum(forgery: Forgery) -> None:
    rows_of(forgery)[1].checksum = 0


@breaks("R7", "the checksum does not match the row")
def rows_with_each_others_checksum(forgery: Forgery) -> None:
    one, other = busiest(forgery).rows[:2]
    sums = [row.stored(forgery.packing).checksum for row in (one, other)]
    other.checksum, one.checksum = sums


@breaks("R8", "segment 1 is not of a later document than the one before")
def segments_in_another_order(forgery: Forgery) -> None:
    row = row_where(forgery, whole_documents)
    a, b, c = row.boundaries[:3]
    row.ids[a:c] = row.ids[b:c] + row.ids[a:b]
    row.boundaries[1] = a + c - b
    row.documents[:2] = row.documents[1::-1]


@breaks("R8", "segment 1 is not of a later document than the one before")
def two_pieces_of_one_document_in_a_row(forgery: Forgery) -> None:
    row = row_where(forgery, lambda r: whole_documents(r) and r.boundaries[1] > 3)
    first = row.documents[0]
    row.boundaries.insert(1, 2)
    row.ids[2] = row.ids[1]
    row.documents.insert(1, {**first, "offset": 1, "length": first["length"]})
    row.documents[0] = {**first, "length": first["length"] + 1}
    row.documents[1]["length"] = first["length"] + 1
    forgery.recount()


@breaks("R8", "segment 2 is not of a later document than the one before")
def segments_in_the_order_of_another_shuffle(forgery: Forgery) -> None:
    change_packing(forgery, shuffle=1)


@breaks("R9", "2 segments, max_documents is 1")
def more_segments_than_a_row_may_have(forgery: Forgery) -> None:
    change_packing(forgery, max_documents=1)


@breaks("R10", "token 0, the first of segment 0, is marked as trained", masked=True)
def a_segment_that_begins_trained(forgery: Forgery) -> None:
    rows_of(forgery)[1].mask[0] = True


@breaks("R10", "token 7, the first of segment 1, is marked as trained", masked=True)
def a_later_segment_that_begins_trained(forgery: Forgery) -> None:
    row = row_where(forgery, several)
    row.mask[row.boundaries[1]] = True


@breaks("R10", "padding is marked as trained", masked=True)
def padding_that_is_trained(forgery: Forgery) -> None:
    row_where(forgery, padded).mask[-1] = True


@breaks("R7", "the checksum does not match the row", masked=True)
def a_mask_of_another_checksum(forgery: Forgery) -> None:
    row = row_where(forgery, several)
    row.checksum = row.stored(forgery.packing).checksum
    row.mask[1] = not row.mask[1]


# ---- S ---------------------------------------------------------------------------


@breaks("S1", "the columns are not those of a shard")
def a_nullable_column(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.schema = shard.schema.set(3, shard.schema.field(3).with_nullable(True))


@breaks("S1", "the columns are not those of a shard")
def a_column_of_another_type(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.schema = shard.schema.set(1, pa.field("cu_seqlens", pa.list_(
        pa.field("item", pa.int64(), nullable=False)), nullable=False))


@breaks("S1", "the columns are not those of a shard")
def a_column_of_another_name(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.schema = shard.schema.set(3, pa.field("hash", pa.uint64(), nullable=False))


@breaks("S1", "record batch 0 has 2 rows, batch_rows is 65536")
def batches_of_another_size(forgery: Forgery) -> None:
    forgery.batch_rows = 2


@breaks("S1", "record batch 0 has")
def a_last_batch_that_is_larger(forgery: Forgery) -> None:
    change_packing(forgery, batch_rows=2)
    forgery.batch_rows = 1000


@breaks("S1", "the columns are not those of a shard")
def metadata_of_longer_rows(forgery: Forgery) -> None:
    forgery.shards[0].metadata["packing"] = {**forgery.packing, "seq_len": 33}


@breaks("S1", "metadata: format '3.0' is not one that this version reads (1.x and 2.x)")
def another_major_version(forgery: Forgery) -> None:
    forgery.shards[0].metadata["format"] = "3.0"


@breaks("S1", "metadata: format '2.0' contradicts 'loss_mask', which is not true")
def the_version_of_masks_without_masks(forgery: Forgery) -> None:
    forgery.shards[0].metadata["format"] = "2.0"


@breaks("S1", "metadata: format '1.2' contradicts 'loss_mask', which is true", masked=True)
def masks_in_a_version_that_has_none(forgery: Forgery) -> None:
    forgery.shards[0].metadata["format"] = "1.2"


@breaks("S1", "the columns are not those of a shard", masked=True)
def a_shard_without_its_masks(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.schema = shard.schema.remove(shard.schema.get_field_index("loss_mask"))
    for row in shard.rows:
        row.mask, row.checksum = None, row.stored(forgery.packing).checksum


@breaks("S1", "it differs from the manifest: unit.slice: 1 here, 0 there")
def metadata_of_another_unit(forgery: Forgery) -> None:
    shard = forgery.shards[1]
    shard.metadata["unit"] = {**shard.unit, "slice": shard.unit["slice"] + 1}


@breaks("S1", "it differs from the manifest: packing.separator: 11 here, 10 there")
def metadata_of_another_packing(forgery: Forgery) -> None:
    forgery.shards[0].metadata["packing"] = {**forgery.packing, "separator": 11}


@breaks("S1", "it differs from the manifest: figures.invalid_utf8_documents: 1 here, 0 there")
def metadata_with_other_figures(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.metadata["figures"] = {**shard.figures, "invalid_utf8_documents": 1}


@breaks("S1", "it differs from the manifest: records:")
def metadata_of_other_records(forgery: Forgery) -> None:
    forgery.shards[0].metadata["records"] = "0" * 32


@breaks("S1", "it differs from the manifest: positions:")
def metadata_of_records_elsewhere(forgery: Forgery) -> None:
    forgery.shards[0].metadata["positions"] = "0" * 32


@breaks("S1", "it differs from the manifest: unit.last: false here, true there")
def metadata_that_ends_an_input_elsewhere(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    shard.metadata["unit"] = {**shard.unit, "last": not shard.unit["last"]}


@breaks("S1", "record batch 0 is not compressed, codec is zstd")
def buffers_of_another_codec(forgery: Forgery) -> None:
    change_packing(forgery, codec="zstd")
    forgery.codec = "none"


@breaks("S2", "a document lies outside the shard's unit")
def an_input_of_another_unit(forgery: Forgery) -> None:
    shard = forgery.shards[0]
    key = shard.rows[-1].documents[-1]
    for row in shard.rows:
        for document in row.documents:
            if (document["input"], document["position"]) == (key["input"], key["position"]):
                document["input"] = len(forgery.inputs) - 1


@breaks("S2", "a document lies outside the shard's unit")
def an_input_that_is_not_there(forgery: Forgery) -> None:
    shard = forgery.shards[-1]
    rows_of_last = [row for row in shard.rows if whole_documents(row)]
    rows_of_last[-1].documents[-1]["input"] = 2**32 - 1


@breaks("S2", "a document lies outside the shard's unit")
def a_position_past_the_inputs_end(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).documents[-1]["position"] = 2**63


@breaks("S3", "a piece does not begin where the one before it ends")
def a_document_without_its_beginning(forgery: Forgery) -> None:
    for shard in forgery.shards:
        for row in shard.rows:
            first = row.documents[0]
            if len(row.documents) == 1 and first["offset"] == 0 and first["length"] > 100:
                shard.rows.remove(row)
                forgery.recount()
                balance(shard.figures)
                return
    raise LookupError("no document in pieces")


@breaks("S3", "a piece does not begin where the one before it ends")
def a_document_without_its_middle(forgery: Forgery) -> None:
    shard, row = continued(forgery)
    shard.rows.remove(row)
    forgery.recount()
    balance(shard.figures)


@breaks("S3", "a piece does not repeat the last token of the one before it")
def a_repeated_token_that_is_another(forgery: Forgery) -> None:
    _, row = continued(forgery)
    row.ids[0] = 65 if row.ids[0] != 65 else 66
    forgery.recount()


@breaks("S3", "a document's last piece is missing")
def a_document_that_ends_early(forgery: Forgery) -> None:
    row_where(forgery, whole_documents).documents[0]["length"] += 1
    forgery.recount()
    for shard in forgery.shards:
        balance(shard.figures)


@breaks("S3", "pieces disagree on their document's length")
def pieces_that_disagree_on_the_length(forgery: Forgery) -> None:
    shard, row = continued(forgery)
    row.documents[0]["length"] += 1
    forgery.recount()
    balance(shard.figures)


@breaks("S4", "its earliest document is not after the row before's")
def rows_in_another_order(forgery: Forgery) -> None:
    rows = busiest(forgery).rows
    rows[0], rows[-1] = rows[-1], rows[0]


@breaks("S5", "the rows differ from the metadata: document_length_histogram[9]:")
def a_longer_histogram(forgery: Forgery) -> None:
    busiest(forgery).figures["document_length_histogram"].append(1)


@breaks("S4", "its earliest document is not after the row before's")
def rows_in_the_order_of_another_shuffle(forgery: Forgery) -> None:
    change_packing(forgery, shuffle=1)


@breaks("S5", "the rows differ from the metadata: bos: 29 here, 30 there")
def documents_held_out_of_no_training_set(forgery: Forgery) -> None:
    figures = busiest(forgery).figures
    figures["held_out_documents"] += 1
    figures["held_out"] += 2
    figures["separators"] += 1
    figures["bos"] += 1


@breaks("S5", "the rows differ from the metadata: bos: 29 here, 30 there")
def documents_too_short_for_no_minimum(forgery: Forgery) -> None:
    figures = busiest(forgery).figures
    figures["too_short_documents"] += 1
    figures["too_short"] += 2
    figures["separators"] += 1
    figures["bos"] += 1


@breaks("S5", "the rows differ from the metadata: masked:", masked=True)
def a_token_that_is_trained_and_not_counted(forgery: Forgery) -> None:
    row = row_where(forgery, lambda row: len(row.documents) == 1)
    row.mask[1] = not row.mask[1]


@breaks("S5", "it has 31 rows, its metadata says 30")
def a_row_that_is_not_counted(forgery: Forgery) -> None:
    shard = busiest(forgery)
    row = next(row for row in reversed(shard.rows) if whole_documents(row))
    shard.rows.append(copy.deepcopy(row))
    for document in shard.rows[-1].documents:
        document["position"] += 1
    shard.rows.sort(key=lambda r: tuple(r.documents[0].values())[:2])


@breaks("S2", "a document lies outside the shard's unit", unit_size=600)
def a_position_before_the_units_begin(forgery: Forgery) -> None:
    next(row.documents[0] for shard in forgery.shards if shard.unit["slice"] > 0
         for row in shard.rows if row.documents[0]["offset"] == 0)["position"] = 0


@breaks("S3", "a document is there twice")
def a_document_that_is_there_twice(forgery: Forgery) -> None:
    """Returns neighbours in the order of the input, the first of which does not begin its row."""
    rows = [row for row in busiest(forgery).rows if whole_documents(row)]
    places = sorted((d["input"], d["position"], r, k)
                    for r, row in enumerate(rows) for k, d in enumerate(row.documents))
    _, _, r, k, position = next((*one, other[1]) for one, other in zip(places, places[1:])
                                if one[0] == other[0] and one[2] != other[2] and one[3] > 0)
    rows[r].documents[k]["position"] = position


@breaks("S5", "the rows differ from the metadata: text: 925 here, 926 there", min_tokens=10)
def long_documents_that_are_too_short(forgery: Forgery) -> None:
    figures = forgery.shards[0].figures
    figures["too_short_documents"] += 1
    figures["too_short"] += 50
    figures["separators"] += 1
    figures["text"] += 49


@breaks("S7", "a document has fewer than min_tokens")
def documents_of_fewer_tokens_than_the_minimum(forgery: Forgery) -> None:
    change_packing(forgery, min_tokens=1000)


# ---- D ---------------------------------------------------------------------------


@breaks("D2", "shard 1 is not the plan's unit 00004-00000.arrow")
def a_unit_without_its_shard(forgery: Forgery) -> None:
    del forgery.shards[1]


@breaks("D2", "shard 3 is not the plan's unit 00008-00000.arrow")
def an_input_that_does_not_end(forgery: Forgery) -> None:
    forgery.shards[-1].unit["last"] = False


@breaks("D2", "shard 3 is not the plan's unit 00008-00000.arrow")
def fewer_units_than_a_limit_needs(forgery: Forgery) -> None:
    forgery.plan["reading"]["limit"] = 10**6
    del forgery.shards[-1]


@breaks("D2", "80 documents, the limit is 1")
def more_documents_than_the_limit(forgery: Forgery) -> None:
    forgery.plan["reading"]["limit"] = 1


@breaks("D2", "shard 3 is not the plan's unit 00004-00000.arrow", unit_size=600)
def an_input_that_ends_early(forgery: Forgery) -> None:
    next(shard.unit for shard in forgery.shards if not shard.unit["last"])["last"] = True


@breaks("D2", "shard 10 is not the plan's unit", unit_size=600, compressed=True)
def a_series_that_does_not_end(forgery: Forgery) -> None:
    forgery.shards[-1].unit["last"] = False


@breaks("D2", "shard 4 is not the plan's unit", unit_size=600, compressed=True)
def a_series_that_ends_early(forgery: Forgery) -> None:
    next(shard.unit for shard in forgery.shards if not shard.unit["last"])["last"] = True


@breaks("D2", "the manifest has 1 shards more than the plan has units")
def a_shard_that_is_no_unit(forgery: Forgery) -> None:
    last = forgery.shards[-1]
    unit = {**last.unit, "slice": last.unit["slice"] + 1}
    forgery.shards.append(dataclasses.replace(last, unit=unit))


@breaks("D2", "shard 4 is not the plan's unit 00004-00001.arrow", unit_size=600)
def inputs_cut_elsewhere(forgery: Forgery) -> None:
    for item in [*forgery.inputs, *forgery.plan["inputs"]]:
        if "stride" in item:
            item["stride"] = 100


@breaks("D2", "shard 0 is not the plan's unit 00000-00000.arrow")
def an_input_larger_than_can_be_counted(forgery: Forgery) -> None:
    for items in (forgery.inputs, forgery.plan["inputs"]):
        item = next(item for item in items if "stride" in item)
        item["bytes"] = item["weight"] = item["extent"] = 2**63 - 1
        item["stride"] = 2**62


@breaks("D3", "the sources are not the sums over their shards: [0")
def a_source_with_the_figures_of_another(forgery: Forgery) -> None:
    figures = sum_figures([shard.figures for shard in forgery.shards[1:]])
    forgery.sources = [{"name": "default", "inputs": len(forgery.inputs), "figures": figures}]


@breaks("D3", "the sources are not the sums over their shards: [0 'default'].name:")
def a_source_that_no_input_has(forgery: Forgery) -> None:
    figures = sum_figures([shard.figures for shard in forgery.shards])
    forgery.sources = [{"name": "web", "inputs": len(forgery.inputs), "figures": figures}]


@breaks("D3", "the totals are not the sums over the shards: separator_collisions: 75")
def a_total_that_is_not_the_sum(forgery: Forgery) -> None:
    forgery.totals["separator_collisions"] = 10**6


@breaks("D3", "the totals are not the sums over the shards: longest_segment: 32 here, 31 there")
def a_longest_segment_that_is_not_the_longest(forgery: Forgery) -> None:
    forgery.totals["longest_segment"] = OPTIONS.seq_len - 1


# ---- The tests -------------------------------------------------------------------


def named_rules(output: str) -> set[str]:
    return set(re.findall(r"\b[RSD][1-9][0-9]?(?=:)", output))


class Rules(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.good: dict[str, Path] = {}
        self.n_forged = 0

    def dataset(
        self, compressed: bool = False, masked: bool = False, **settings: object
    ) -> Path:
        """A good dataset, packed once for each of the settings."""
        name = f"good {compressed} {masked} {settings}"
        if name not in self.good:
            options = dataclasses.replace(OPTIONS, **settings)
            rng = random.Random(SEED)
            corpus = make_corpus(rng, OPTIONS, 80)
            inputs = with_compression(rng, corpus.inputs) if compressed else corpus.inputs
            if masked:
                form = MASKED_FORMATS["arrow of tokens with masks, append"]
                inputs = form.write(rng, corpus.texts)
            files = write_inputs(self.folder / f"corpus {compressed} {masked}", inputs)
            self.good[name] = self.pack(self.folder / name, files, *option_arguments(options))
        return self.good[name]

    def forge(self, change: Change, **settings: object) -> Path:
        forgery = Forgery.load(self.dataset(**settings))
        change(forgery)
        self.n_forged += 1
        dataset = self.folder / f"forged-{self.n_forged}"
        forgery.write(dataset)
        return dataset

    def assert_found(self, rule: str, dataset: Path, said: str = "") -> None:
        """The oracle finds the broken rule, and `verify` reports no other rule."""
        oracle = {violation.rule for violation in check_dataset(dataset)}
        self.assertIn(rule, oracle)
        result = bindery("verify", "--threads", 1, dataset)
        self.assertIn(result.status, (1, 2), result)
        named = named_rules(result.output)
        self.assertTrue(named, result)
        self.assertLessEqual(named, oracle, result)
        self.assertIn(f"{rule}: {said}" if said else "", result.output)
        self.assertEqual(bindery("verify", "--threads", 8, dataset).stdout, result.stdout)

    def test_a_forgery_without_a_change_is_a_good_dataset(self) -> None:
        for settings in [{}, *(settings for *_, settings in CHANGES if settings)]:
            dataset = self.forge(Forgery.recount, **settings)
            self.assertEqual(check_dataset(dataset), [])
            self.succeeds("verify", dataset)
            self.succeeds("inspect", "--scan", dataset)

    def test_every_rule_is_found_broken(self) -> None:
        for rule, said, change, settings in CHANGES:
            with self.subTest(rule, how=change.__name__.replace("_", " ")):
                self.assert_found(rule, self.forge(change, **settings), said)

    def test_every_figure_is_counted(self) -> None:
        """Changes one figure of one shard by one, in the shard and in the manifest, and another
        figure if there is one that keeps the ledger balanced: only the rows contradict it. Figures
        that rows do not show are only bounded: one such document is possible."""
        for name in FIGURE_KEYS:
            if name in {*ONLY_BOUNDED, *NOT_ALWAYS_COUNTED}:
                continue

            def change(forgery: Forgery, name: str = name) -> None:
                figures = busiest(forgery).figures
                if name.endswith("_histogram"):
                    used = next(i for i, n in enumerate(figures[name]) if n > 0)
                    figures[name][used] -= 1
                    figures[name][used - 1] += 1
                else:
                    figures[name] += 1
                    for other, added in BALANCE.get(name, {}).items():
                        figures[other] += added

            with self.subTest(figure=name):
                first = min([name, *BALANCE.get(name, {})], key=[*FIGURE_KEYS].index)
                said = f"the rows differ from the metadata: {first}" if name != "rows" else ""
                self.assert_found("S5", self.forge(change), said)

    def test_every_figure_of_masks_is_counted(self) -> None:
        """Documents that were left out are in no row: `verify --against` counts them."""
        for name, other in [("masked", "targets"), ("targets", "masked")]:

            def change(forgery: Forgery) -> None:
                figures = busiest(forgery).figures
                figures[name] += 1
                figures[other] -= 1

            with self.subTest(figure=name):
                self.assert_found("S5", self.forge(change, masked=True),
                                  "the rows differ from the metadata: masked:")

    def test_a_ledger_that_does_not_add_up_is_found(self) -> None:
        """Figures that agree with each other but violate the ledger."""
        for name, masked in [("text", False), ("masked", True), ("untrained", True)]:

            def change(forgery: Forgery) -> None:
                busiest(forgery).figures[name] += 1

            with self.subTest(name):
                self.assert_found("S6", self.forge(change, masked=masked))

    def test_a_document_truncated_elsewhere_is_found(self) -> None:
        """`--long truncate` keeps exactly a row of tokens of a document."""

        def change(forgery: Forgery) -> None:
            shard, row = next(
                (shard, row)
                for shard in forgery.shards
                for row in shard.rows
                if row.documents[0]["length"] > OPTIONS.seq_len
            )
            row.boundaries[-1] -= 1
            row.ids[-1] = OPTIONS.padding
            shard.recount(forgery.packing)

        self.assert_found("S3", self.forge(change, long="truncate"))

    def test_a_structure_is_judged_without_its_rows(self) -> None:
        self.succeeds("verify", "--structure", self.forge(an_id_outside_the_vocabulary))

    def test_files_that_are_missing_changed_or_too_many_are_found(self) -> None:
        def add(name: str) -> Callable[[Path], object]:
            return lambda dataset: (dataset / name).write_bytes(b"")

        shard, unnamed = "00000-00000.arrow", "D2: the manifest does not name it"
        strays = ["00000-00009.arrow", "stray.arrow", "0-0.arrow", f" {shard}",
                  f"{9**20}-00000.arrow"]
        for name, change, said in [
            (shard, lambda dataset: (dataset / shard).unlink(), "D1: it is missing"),
            (shard, lambda dataset: (dataset / shard).write_bytes(
                (dataset / shard).read_bytes() + b"x"), ""),
            ("tokenizer.json", add("tokenizer.json"), "D1: the file's checksum does not match"),
            ("manifest.json", add("manifest.json"), ""),
            *((stray, add(stray), unnamed) for stray in strays),
        ]:
            with self.subTest(name, said=said):
                dataset = self.forge(Forgery.recount)
                change(dataset)
                for how in [["--structure"], ["--threads", 1], ["--threads", 8]]:
                    result = bindery("verify", *how, dataset)
                    self.assertEqual(result.status, 1, result)
                    self.assertIn(f"{name}': {said}", result.output)
                    self.assertIn("damaged: 1 problem\n", result.output)
        (dataset / shard).unlink()  # the extra file makes their number right
        self.assertIn("damaged: 2 problems", bindery("verify", dataset).output)

    def test_a_wrong_file_checksum_is_found(self) -> None:
        manifest = json.loads((self.dataset() / "manifest.json").read_bytes())
        del manifest["checksum"]
        for key, wrong in [("bytes", 1), ("checksum", "0" * 32)]:
            with self.subTest(key):
                forged = copy.deepcopy(manifest)
                forged["shards"][0][key] = wrong
                dataset = self.folder / key
                shutil.copytree(self.dataset(), dataset)
                seal(dataset / "manifest.json", forged)
                self.assert_found("D1", dataset)

    def test_a_tokenizer_of_another_meaning_is_found(self) -> None:
        """D4, which the oracle leaves to `verify`: the ids of two bytes are exchanged."""

        def change(forgery: Forgery) -> None:
            tokenizer = json.loads(forgery.tokenizer)
            vocabulary = tokenizer["model"]["vocab"]
            vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
            forgery.tokenizer = json.dumps(tokenizer).encode()

        result = bindery("verify", self.forge(change))
        self.assertEqual((result.status, named_rules(result.output)), (1, {"D4"}), result)

    def test_a_wrong_checksum_of_the_manifest_is_found(self) -> None:
        dataset = self.forge(lambda forgery: None)
        path = dataset / "manifest.json"
        text = path.read_text()
        digest = json.loads(text)["checksum"]
        path.write_text(text.replace(digest, "0" * 32))
        self.assert_found("D1", dataset)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
