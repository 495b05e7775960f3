"""Tables of random types: either every row equals that of pyarrow, or the table is refused with
the column's name. Nothing crashes, whichever types are nested, in Parquet, Arrow files and
Arrow streams. The same for rows that are read as JSON.

`python table_types_test.py TABLE_PROBE`. With BINDERY_TEST_LONG=1 there are 5,000 tables of each
kind.
"""

import os
import random
import re
import subprocess
import tempfile
import traceback
import unittest
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import xxhash

import program

SEED = 20240627
N_TABLES = program.amount(brief=150, usual=600, long=5000)
MOST_DEPTH = 4

INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(),
            pa.uint64()]
TEXTS = [pa.string(), pa.large_string()]
# Neither text nor integers.
OTHERS = [pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16),
          pa.bool_(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.time64("ns"),
          pa.duration("s"), pa.decimal128(9, 2), pa.null()]
# Types that Arrow writes but cannot read: the probe reports it with the file's name.
UNREADABLE = re.compile("^refused .*: not (an Arrow (file|stream)|a schema that Arrow knows): .*"
                        "Invalid storage type")
FIELD_NAMES = ["a", "b", "text", "x.y"]


class Unregistered(pa.ExtensionType):
    """An extension type that Arrow knows only by its name in the file."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"anything"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> "Unregistered":
        return cls(storage)


# ---- Types ----------------------------------------------------------------------------------


def random_extension(rng: random.Random, depth: int) -> pa.DataType:
    kind = rng.randrange(6)
    if kind == 0:
        return pa.json_(rng.choice([*TEXTS, pa.string_view()]))
    if kind == 1:
        return pa.opaque(random_type(rng, depth + 1), "A" * rng.randrange(100), "vendor")
    if kind == 2:
        return pa.uuid()
    if kind == 3:
        return pa.bool8()
    if kind == 4:
        return pa.fixed_shape_tensor(rng.choice(INTEGERS), [rng.randint(1, 3)])
    return Unregistered(random_type(rng, depth + 1))


def random_nested(rng: random.Random, depth: int) -> pa.DataType:
    kind = rng.randrange(9)
    if kind == 7:
        values = rng.choice([*TEXTS, *TEXTS, pa.int32(), pa.binary(), pa.json_()])
        return pa.dictionary(rng.choice([pa.int8(), pa.int16(), pa.int32()]), values)
    inner = random_type(rng, depth + 1)
    if kind < 5:
        return [pa.list_, pa.large_list, lambda t: pa.list_(t, rng.randint(1, 3)), pa.list_view,
                pa.large_list_view][kind](inner)
    if kind == 5:
        names = rng.sample(FIELD_NAMES, rng.randint(1, 3))
        return pa.struct([(name, random_type(rng, depth + 1)) for name in names])
    if kind == 6:
        return pa.map_(pa.string(), inner)
    return pa.run_end_encoded(pa.int32(), rng.choice([*TEXTS, *INTEGERS]))


def random_type(rng: random.Random, depth: int = 0) -> pa.DataType:
    kind = rng.random()
    if depth < MOST_DEPTH and kind < 0.15:
        return random_extension(rng, depth)
    if depth < MOST_DEPTH and kind < 0.6:
        return random_nested(rng, depth)
    return rng.choice([*TEXTS, *TEXTS, *TEXTS, *INTEGERS, *OTHERS])


# ---- Values ---------------------------------------------------------------------------------


def random_leaf(rng: random.Random, kind: pa.DataType) -> object:
    if rng.random() < 0.1:
        return None
    if pa.types.is_integer(kind):
        # Seldom negative, because negative ids are refused.
        low = -2 if pa.types.is_signed_integer(kind) and rng.random() < 0.02 else 0
        return rng.randint(low, 100)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return rng.choice(["", "a", "Straße 語 🧵", "x" * 50, "zwei\nZeilen"])
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return b"\xff" * rng.randrange(20)
    if pa.types.is_boolean(kind):
        return True
    return None if pa.types.is_null(kind) else Decimal(1) if pa.types.is_decimal(kind) else 1


def random_offsets(rng: random.Random, n: int) -> list[int]:
    offsets = [0]
    for _ in range(n):
        offsets.append(offsets[-1] + rng.choice([0, 1, 2, 5]))
    return offsets


def random_array(rng: random.Random, kind: pa.DataType, n: int) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, random_array(rng, kind.storage_type, n))
    if pa.types.is_struct(kind):
        fields = [random_array(rng, kind.field(i).type, n) for i in range(kind.num_fields)]
        mask = pa.array([rng.random() < 0.1 for _ in range(n)], pa.bool_())
        return pa.StructArray.from_arrays(
            fields, fields=[kind.field(i) for i in range(kind.num_fields)], mask=mask)
    if pa.types.is_dictionary(kind):
        values = random_array(rng, kind.value_type, 5)
        indices = [None if rng.random() < 0.1 else rng.randrange(5) for _ in range(n)]
        return pa.DictionaryArray.from_arrays(pa.array(indices, kind.index_type), values)
    if pa.types.is_run_end_encoded(kind):
        ends = pa.array(range(1, n + 1), kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, random_array(rng, kind.value_type, n))
    if pa.types.is_fixed_size_list(kind):
        values = random_array(rng, kind.value_type, n * kind.list_size)
        valid = pa.py_buffer(b"\xff" * (n // 8 + 1))
        return pa.Array.from_buffers(kind, n, [valid], null_count=0, children=[values])
    if not pa.types.is_nested(kind):
        return pa.array([random_leaf(rng, kind) for _ in range(n)], kind)
    offsets = random_offsets(rng, n)
    if pa.types.is_map(kind):
        keys = pa.array([f"k{i}" for i in range(offsets[-1])], pa.string())
        items = random_array(rng, kind.item_type, offsets[-1])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind)
    values = random_array(rng, kind.value_type, offsets[-1])
    if kind.id in (pa.list_view(pa.int8()).id, pa.large_list_view(pa.int8()).id):
        wide = kind.id == pa.large_list_view(pa.int8()).id
        width = pa.int64() if wide else pa.int32()
        made = pa.LargeListViewArray if wide else pa.ListViewArray
        sizes = [end - begin for begin, end in zip(offsets, offsets[1:])]
        return made.from_arrays(pa.array(offsets[:-1], width), pa.array(sizes, width), values)
    wide = pa.types.is_large_list(kind)
    made = pa.LargeListArray if wide else pa.ListArray
    nulls = [None if n > 0 and rng.random() < 0.1 else offset for offset in offsets[:-1]]
    return made.from_arrays(
        pa.array([*nulls, offsets[-1]], pa.int64() if wide else pa.int32()), values)


# ---- What is expected -------------------------------------------------------------------------


def is_extension(field: pa.Field) -> bool:
    """pyarrow shows an unknown extension type as its storage; the name is in the metadata."""
    return (isinstance(field.type, pa.BaseExtensionType)
            or b"ARROW:extension:name" in (field.metadata or {}))


def has_extension(field: pa.Field) -> bool:
    kind = field.type
    if is_extension(field):
        return True
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return has_extension(pa.field("", kind.value_type))
    return any(has_extension(kind.field(i)) for i in range(kind.num_fields))


def has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(
        has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_readable(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    is_list = (pa.types.is_list(kind) or pa.types.is_large_list(kind)
               or pa.types.is_fixed_size_list(kind))
    return is_text(kind) or (is_list and pa.types.is_integer(kind.value_type))


def json_kinds(kind: pa.DataType) -> bool:
    """Whether rows of that type can be read as JSON."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return json_kinds(kind.value_type)
    if types.is_struct(kind):
        return all(json_kinds(kind.field(i).type) for i in range(kind.num_fields))
    return is_text(kind) or kind in INTEGERS or kind in READ_AS_NULL or kind in (
        pa.bool_(), pa.float32(), pa.float64())


READ_AS_NULL = [pa.binary(), pa.large_binary(), pa.binary(16), pa.date32(), pa.timestamp("us"),
                pa.time64("ns"), pa.duration("s"), pa.decimal128(9, 2), pa.null()]


def json_of(kind: pa.DataType, value: object) -> str:
    if value is None or kind in READ_AS_NULL:
        return "null"
    if pa.types.is_dictionary(kind) or is_text(kind):
        return '"' + re.sub(r'["\\\x00-\x1f]', lambda c: f"\\u{ord(c[0]):04x}", value) + '"'
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        members = [f'"{field.name}":{json_of(field.type, value[field.name])}' for field in fields]
        return "{" + ",".join(members) + "}"
    if pa.types.is_nested(kind):
        return "[" + ",".join(json_of(kind.value_type, item) for item in value) + "]"
    return {True: "true", False: "false"}[value] if kind == pa.bool_() else f"{value:g}"


@dataclass(frozen=True)
class Case:
    """A table as it was written, and the column to be read: names of fields."""

    kind: str
    path: Path
    table: pa.Table
    names: tuple[str, ...]

    def expected(self, as_json: bool = False) -> str:
        """Returns a pattern of the probe's answer."""
        name = ".".join(self.names)
        field = self.table.schema.field(self.names[0])
        for inner in self.names[1:]:
            if is_extension(field):
                break
            field = field.type.field(inner)
        kind = field.type
        if has_extension(field):
            return f"refused .*column '{name}' is of the extension type '"
        if as_json and not json_kinds(kind):
            return f"refused .*column '{name}' is of a type that cannot be read: "
        if not as_json and not is_readable(kind):
            return f"refused .*column '{name}' is neither text nor a list of integers: "
        if self.kind == "stream" and any(has_dictionary(f.type) for f in self.table.schema):
            return "refused .*an Arrow stream with a dictionary-encoded column"
        values = self.table[self.names[0]].combine_chunks()
        for inner in self.names[1:]:
            values = pc.struct_field(values, [values.type.get_field_index(inner)])
        return self.json_rows(kind, values) if as_json else self.expected_rows(kind, values)

    def json_rows(self, kind: pa.DataType, values: pa.Array) -> str:
        hasher = xxhash.xxh3_64()
        for row in values.to_pylist():
            data = json_of(kind, row).encode()
            hasher.update(data)
            hasher.update(len(data).to_bytes(8, "little"))
        return f"rows 0 {len(values)} {hasher.intdigest()}"

    def expected_rows(self, kind: pa.DataType, values: pa.Array) -> str:
        hasher, id_bytes = xxhash.xxh3_64(), 0
        if pa.types.is_nested(kind):
            id_bytes = kind.value_type.bit_width // 8
        for row in values.to_pylist():
            data = b""
            if isinstance(row, str):
                data = row.encode()
            elif row is not None:
                # The message names the first value of the row that cannot be an id.
                if any(item is None for item in row):
                    return "refused .*row [0-9]+ has a (null among its ids|negative id)"
                if any(item < 0 for item in row):
                    return "refused .*row [0-9]+ has a (negative id|null among its ids)"
                data = b"".join(item.to_bytes(id_bytes, "little") for item in row)
            hasher.update(data)
            length = -1 if row is None else len(data)
            hasher.update(length.to_bytes(8, "little", signed=True))
        return f"rows {id_bytes} {len(values)} {hasher.intdigest()}"


def random_names(rng: random.Random, top: str, kind: pa.DataType) -> tuple[str, ...]:
    """Chooses the column itself, or a field of its structs."""
    names = [top]
    while pa.types.is_struct(kind) and rng.random() < 0.8:
        field = kind.field(rng.randrange(kind.num_fields))
        names.append(field.name)
        kind = field.type
    return tuple(names)


class TableTypes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="bindery-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, rng: random.Random, kind: str, table: pa.Table, path: Path) -> pa.Table:
        """Returns the table in the file: Parquet has fewer types than Arrow."""
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=rng.choice([3, 1000]),
                           store_schema=rng.random() < 0.8,
                           compression=rng.choice(["none", "snappy", "zstd"]))
            # A column of Parquet's JSON type is text, unless the stored schema says otherwise.
            return pq.ParquetFile(path, arrow_extensions_enabled=False).read()
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        settings = pa.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]))
        with new(path, table.schema, options=settings) as writer:
            writer.write_table(table, max_chunksize=rng.choice([3, 1000]))
        return table

    def make_cases(self, number: int) -> list[Case]:
        rng = random.Random(f"{SEED} {number}")
        kinds = [random_type(rng) for _ in range(rng.randint(1, 3))]
        n_rows = rng.randint(0, 10)
        columns = [random_array(rng, kind, n_rows) for kind in kinds]
        tops = [f"c{i}" for i in range(len(kinds))]
        table = pa.Table.from_arrays(columns, tops)
        table.validate(full=True)
        cases = []
        for kind in ("parquet", "file", "stream"):
            path = self.folder / f"{number}.{kind}"
            try:
                written = self.write(rng, kind, table, path)
            except (pa.ArrowException, OSError):  # the format does not have this type
                continue
            names = random_names(rng, tops[0], written.schema.field(0).type)
            cases.append(Case(kind, path, written, names))
        return cases

    def write_cases(self, first: int) -> None:
        """Writes the questions to the probe and its expected answers for tables from `first` on.
        Runs in another process, because some types crash pyarrow when they are written."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for number in range(first, N_TABLES):
                    (self.folder / f"{number}.begun").touch()
                    lines = [
                        f"{case.kind}{'-json' * as_json}\t{'.'.join(case.names)}\t{case.path}\t"
                        f"{case.expected(as_json)}\n"
                        for case in self.make_cases(number) for as_json in (False, True)]
                    (self.folder / f"{number}.cases").write_text("".join(lines))
                status = 0
            except Exception:  # an error of the test itself
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        self.assertNotEqual(os.waitstatus_to_exitcode(status), 1)

    def test_every_type_is_read_exactly_or_refused_by_name(self) -> None:
        counts = {"rows": 0, "extension": 0, "refused": 0}
        while (n_begun := len(list(self.folder.glob("*.begun")))) < N_TABLES:
            self.write_cases(n_begun)
        paths = sorted(self.folder.glob("*.cases"))
        self.assertGreater(len(paths), N_TABLES * 9 // 10)
        lines = [line for path in paths for line in path.read_text().splitlines()]
        asked = "".join(line.rpartition("\t")[0] + "\n" for line in lines)
        run = subprocess.run([program.program()], input=asked, text=True, stdout=subprocess.PIPE,
                             check=True)
        for line, answer in zip(lines, run.stdout.splitlines(), strict=True):
            expected = line.rpartition("\t")[2]
            if not UNREADABLE.search(answer):
                self.assertRegex(answer, f"^{expected}", line)
            counts["extension" if "extension" in expected else expected.split()[0]] += 1
        print(f"{counts} of {N_TABLES} tables in three formats")
        self.assertGreater(min(counts.values()), N_TABLES // 10)


if __name__ == "__main__":
    print(f"seed {SEED}")
    program.main()
