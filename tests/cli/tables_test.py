"""Misleading tables are refused, and the message names the problem: extension types, two columns of
one name, streams that end too early or too late, encrypted columns, Bindery's own rows, and masks
beside ids that cannot be what they seem."""

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

import program
from program import bindery
from refusals import Refusals

IDS = ("--vocab-size", "100", "--separator-id", "0")
TEXTS = [f"document {i}" for i in range(20)]


def extension_types() -> dict[str, tuple[str, pa.Array]]:
    """Name of the type -> the column's name, and values whose storage type would be accepted. The
    name of the opaque type is one that Arrow GLib used as an address."""
    opaque = pa.opaque(pa.string(), "A" * 64, "B" * 64)
    tensor = pa.fixed_shape_tensor(pa.int32(), [3])
    storage = pa.array([[1, 2, 3]] * 20, pa.list_(pa.int32(), 3))
    bools = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1] * 20, pa.int8()))
    return {
        "arrow.json": ("text", pa.array(TEXTS, pa.json_())),
        "arrow.opaque": ("text", pa.ExtensionArray.from_storage(opaque, pa.array(TEXTS))),
        "arrow.fixed_shape_tensor": (
            "input_ids", pa.ExtensionArray.from_storage(tensor, storage)),
        "arrow.bool8": ("input_ids", pa.ListArray.from_arrays(range(21), bools)),
    }


def write_table(path: Path, table: pa.Table, kind: str) -> Path:
    path = path.with_suffix("." + kind)
    if kind == "parquet":
        pq.write_table(table, path)
        return path
    new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
    with new(path, table.schema) as writer:
        writer.write(table)
    return path


KINDS = ("parquet", "arrow", "arrows")


class Tables(Refusals):
    def pack(self, path: Path, *options: str) -> Path:
        dataset = self.folder / "dataset"
        result = bindery("pack", "-q", "--overwrite", "-o", dataset, *options, path)
        self.assertEqual(result.status, 0, result)
        return dataset

    def documents(self, dataset: Path) -> int:
        return json.loads((dataset / "manifest.json").read_text())["totals"]["documents"]

    # ---- Types ---------------------------------------------------------------------------

    def test_extension_types_are_refused_by_name(self) -> None:
        for name, (column, values) in extension_types().items():
            nested = pa.StructArray.from_arrays([values], ["b"])
            for kind in KINDS:
                with self.subTest(name, kind=kind):
                    table = pa.table({column: values, "other": values})
                    path = write_table(self.folder / "plain", table, kind)
                    said = (f"'{column}' is of the extension type '{name}'", "storage type")
                    self.assert_pack_refused([path], *said)
                    self.assert_refusal(bindery("plan", path), *said)
                    path = write_table(self.folder / "nested", pa.table({"a": nested}), kind)
                    self.assert_pack_refused(
                        [path], f"'a.b' is of the extension type '{name}'",
                        options=("--text-field", "a.b"))

    def test_extension_types_in_other_columns_do_no_harm(self) -> None:
        others = {name: values for name, (_, values) in extension_types().items()}
        for kind in KINDS:
            with self.subTest(kind):
                table = pa.table({**others, "text": TEXTS})
                dataset = self.pack(write_table(self.folder / "beside", table, kind))
                self.assertEqual(self.documents(dataset), len(TEXTS))

    def test_every_command_that_reads_the_corpus_refuses(self) -> None:
        """The table was good when it was packed."""
        name, (column, values) = next(iter(extension_types().items()))
        path = write_table(self.folder / "corpus", pa.table({"text": TEXTS}), "parquet")
        dataset = self.pack(path)
        write_table(path, pa.table({column: values}), "parquet")
        said = (f"'{column}' is of the extension type '{name}'",)
        verified = bindery("verify", dataset, "--against", path)
        self.assertEqual(verified.status, 1, verified)  # the corpus has changed since
        self.assertRegex(verified.output, *said)
        self.assert_refusal(bindery("locate", dataset, "0:0", "--corpus", path), *said)

    def test_a_message_names_the_column_that_was_chosen(self) -> None:
        path = write_table(self.folder / "f", pa.table({"input_ids": [[1.5]]}), "parquet")
        self.assert_pack_refused([path], "column 'input_ids' is neither text nor")

    def test_ids_are_shown_as_they_are(self) -> None:
        largest = (1 << 64) - 1
        ids = pa.array([[1, largest]], pa.list_(pa.uint64()))
        path = write_table(self.folder / "f", pa.table({"input_ids": ids}), "parquet")
        self.assert_pack_refused([path], f"token 1 has id {largest},", options=IDS)

    def test_columns_that_are_nested_too_deep_are_refused(self) -> None:
        """Arrow builds a schema by recursion: as many levels as fit into the stack, and no more."""
        for depth in (201, 100_000):
            path = self.write("deep.parquet", nested_parquet(depth))
            self.assert_pack_refused([path], "nested deeper than 200 levels")
        path = self.write("deep.parquet", nested_parquet(190))
        self.assert_pack_refused([path], "column 'text' is neither text nor")

    # ---- Names ---------------------------------------------------------------------------

    def test_two_columns_of_one_name_are_refused(self) -> None:
        text = pa.array(["a", "b"])
        fields = pa.StructArray.from_arrays([text, text], ["b", "b"])
        structs = [pa.StructArray.from_arrays([text], [name]) for name in "bc"]
        ids = pa.array([[1]] * 2)
        for columns, names, field in [
            ([text, text], ["text", "text"], "text"),
            ([ids, ids], ["input_ids", "input_ids"], "input_ids"),
            ([fields], ["a"], "a.b"),
            (structs, ["a", "a"], "a.b"),
        ]:
            table = pa.Table.from_arrays(columns, names)
            for kind in KINDS:
                with self.subTest(field, kind=kind):
                    path = write_table(self.folder / "twice", table, kind)
                    options = () if field == "input_ids" else ("--text-field", field)
                    self.assert_pack_refused(
                        [path], rf"it has several columns '{field}'", options=options)

    # ---- Streams -------------------------------------------------------------------------

    def test_a_stream_must_end_where_its_file_does(self) -> None:
        table = pa.table({"text": TEXTS})
        whole = write_table(self.folder / "whole", table, "arrows").read_bytes()
        twice = self.write("twice.arrows", whole + whole)
        self.assert_pack_refused([twice], rf"another follows at byte {len(whole)}\b", "20 rows")
        for rest in (b"\0" * 8, b"garbage", b"\xff"):
            path = self.write("more.arrows", whole + rest)
            self.assert_pack_refused([path], f"{len(rest)} bytes follow the end of the stream, "
                                             rf"at byte {len(whole)}\b")

    def test_a_stream_without_the_mark_of_its_end_is_refused(self) -> None:
        """A stream whose writer was killed between two batches."""
        sink = pa.BufferOutputStream()
        writer = pa.ipc.new_stream(sink, pa.schema({"text": pa.string()}))
        for _ in range(3):
            writer.write(pa.table({"text": TEXTS}))
        path = self.write("killed.arrows", sink.getvalue().to_pybytes())
        self.assert_pack_refused([path], "without the mark of its end, after 60 rows")

    def test_files_of_common_writers_are_accepted(self) -> None:
        datasets.disable_progress_bars()
        datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(self.folder / "saved")
        (path,) = (self.folder / "saved").glob("*.arrow")
        self.assertEqual(self.documents(self.pack(path)), len(TEXTS))

    # ---- Encryption ----------------------------------------------------------------------

    def test_encrypted_parquet_is_named(self) -> None:
        for plaintext_footer in (False, True):
            with self.subTest(plaintext_footer=plaintext_footer):
                path = self.folder / "secret.parquet"
                write_encrypted(path, pa.table({"text": TEXTS, "open": TEXTS}),
                                plaintext_footer)
                self.assert_pack_refused([path], "encrypted: decrypt it first")

    # ---- Rows that are not documents -------------------------------------------------------

    def test_rows_of_bindery_are_refused_with_the_command_that_takes_them(self) -> None:
        dataset = self.pack(self.write("a.txt", b"some text"))
        (shard,) = dataset.glob("*.arrow")
        for command in (("pack", "-q", "-o", self.folder / "again"), ("plan",)):
            self.assert_refusal(bindery(*command, *IDS, shard), f"'{shard}'", "bindery repack")
        for to in ("parquet", "stream"):
            exported = self.folder / to
            result = bindery("export", "-q", "--format", to, dataset, "-o", exported)
            self.assertEqual(result.status, 0, result)
            tables = [path for path in exported.iterdir() if path.suffix != ".json"]
            self.assert_pack_refused(tables, "packed sequences, not documents", "repack",
                                     options=IDS)

    # ---- Masks ---------------------------------------------------------------------------

    def test_two_masks_beside_ids_are_refused_by_their_names(self) -> None:
        ids = pa.array([[1, 2], [3]])
        for kind in KINDS:
            with self.subTest(kind):
                table = pa.table({"completion_mask": ids, "input_ids": ids, "labels": ids})
                path = write_table(self.folder / "masked", table, kind)
                self.assert_pack_refused(
                    [path], "columns 'labels' and 'completion_mask' beside 'input_ids'",
                    "drop one of them", options=IDS)
        inside = pa.StructArray.from_arrays([ids] * 3, ["tokens", "loss_mask", "labels"])
        path = write_table(self.folder / "inside", pa.table({"a": inside}), "parquet")
        self.assert_pack_refused([path], "columns 'labels' and 'loss_mask' beside 'a.tokens'",
                                 options=(*IDS, "--text-field", "a.tokens"))

    def test_a_mask_that_does_not_fit_its_ids_names_the_row(self) -> None:
        ids = [[1, 2], [3], [4, 5]]
        for name, mask, said in [
            ("labels", [[1, 2], [-100], [4, 6]],
             "row 2: token 1 has 6 in column 'labels', which is neither -100 nor its id 5"),
            ("labels", [[1, 2], [-101], [4, 5]], "row 1: token 0 has -101 in column 'labels'"),
            ("labels", [[1, 2], [3, 3], [4, 5]], "row 1: 2 items in column 'labels' for 1 tokens"),
            ("labels", [[1, 2], [3], None], "row 2: column 'labels' has no value"),
            ("labels", [[1, None], [3], [4, 5]], "row 0 has a null among its items"),
            ("loss_mask", [[0, 1], [1], [2, 1]],
             "row 2: token 0 has 2 in column 'loss_mask', which is neither 0 nor 1"),
            ("loss_mask", [[0, 1], [-1], [1, 1]], "row 1: token 0 has -1 in column 'loss_mask'"),
            ("loss_mask", [[0], [1], [0, 1]], "row 0: 1 items in column 'loss_mask' for 2 tokens"),
            ("completion_mask", [[True, False], [True], [True]], "row 2: 1 items in column"),
            ("assistant_masks", [[True, False], None, [True, True]],
             "row 1: column 'assistant_masks' has no value"),
            ("assistant_masks", [[True, None], [True], [True, True]],
             "row 0 has a null among its items"),
        ]:
            for kind in KINDS:
                with self.subTest(name, kind=kind, said=said):
                    table = pa.table({"input_ids": ids, name: mask})
                    path = write_table(self.folder / "masked", table, kind)
                    self.assert_pack_refused([path], said, options=IDS)

    def test_a_mask_of_another_type_is_refused_before_anything_is_packed(self) -> None:
        for mask in ([0, 1], ["a", "b"], [[0.5], [1.0]], [["a"], ["b"]], [[[0]], [[1]]]):
            for kind in KINDS:
                with self.subTest(mask=mask, kind=kind):
                    table = pa.table({"input_ids": [[1], [2]], "labels": mask})
                    path = write_table(self.folder / "masked", table, kind)
                    self.assert_pack_refused(
                        [path], "column 'labels' does not say which tokens are trained",
                        "no list of integers or booleans", "rename or drop it", options=IDS)

    def test_columns_that_only_look_like_masks_are_accepted(self) -> None:
        for columns, options in [
            ({"text": ["a", "b"], "labels": [0, 1]}, ()),
            ({"input_ids": [[1], [2]], "attention_mask": [[1], [1]]}, IDS),
        ]:
            path = write_table(self.folder / "fine", pa.table(columns), "parquet")
            self.assertEqual(self.documents(self.pack(path, *options)), 2)


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def nested_parquet(depth: int) -> bytes:
    """Makes a table without rows and with a column 'text' of nested structs: a footer in Thrift's
    compact protocol, which stores small integers doubled. SchemaElement has its repetition, name
    and number of children in the fields 3, 4 and 5; a leaf has its type in field 1."""
    name = b"\x18\x04text"
    struct_ = b"\x35\x00" + name + b"\x15\x02\x00"
    leaf = b"\x15\x0c\x25\x00" + name + b"\x00"
    elements = struct_ * (depth + 1) + leaf  # the first is the root
    footer = (b"\x15\x02\x19\xfc" + varint(depth + 2) + elements  # version, schema
              + b"\x16\x00\x19\x0c\x00")  # no rows, no row groups
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


class Kms(pe.KmsClient):
    """Gives keys that are not secret."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return key.hex().encode()

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return bytes.fromhex(key.decode())


def write_encrypted(path: Path, table: pa.Table, plaintext_footer: bool) -> None:
    settings = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"key": ["text"]}, plaintext_footer=plaintext_footer)
    factory = pe.CryptoFactory(Kms)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    program.main()
