"""Parquet and Arrow files of many shapes, and what pyarrow says is in them, for
tests/unit/packer/input/arrow_columns_test.c.

`python column_files.py FOLDER` writes the files, a list of them and one file of rows for each:

    cases         one line per file: NAME FORMAT FIELD ID_BYTES GROUPS, FORMAT being parquet,
                  file or stream and ID_BYTES 0 for text
    NAME.rows     for each row its length in bytes as a little-endian int64, -1 for a null, and
                  its bytes
    NAME.weights  of Parquet: for each row group the uncompressed bytes of the column, int64
    refused       one line per file: NAME FORMAT FIELD MESSAGE, which is how the message ends
"""

import shutil
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet as pq

TEXTS = ["first", "", None, "Straße 語 🧵", "a" * 1000, None, None, "", "\x00 inside", "last"]
IDS = [[1, 2, 3], [], None, [0], list(range(100)), None, [7] * 33, [], [127], [5, 4]]
WIDTHS = {pa.int8(): 1, pa.uint8(): 1, pa.int16(): 2, pa.uint16(): 2, pa.int32(): 4,
          pa.uint32(): 4, pa.int64(): 8, pa.uint64(): 8}


def repeated(values: list, n: int) -> list:
    return [values[i % len(values)] for i in range(n)]


def many(values: list) -> list:
    """Enough values for several pages in a row group and several validity bytes in Arrow."""
    return repeated(values, 257)


def nested(column: pa.Array) -> pa.Array:
    """Makes the column field b of a struct; every fifth struct is null and hides its fields."""
    null = pa.array([i % 5 == 4 for i in range(len(column))])
    before = pa.array([[{"x": i, "y": "s"}] for i in range(len(column))])
    return pa.StructArray.from_arrays([before, column], ["before", "b"], mask=null)


def columns() -> dict[str, tuple[str, pa.Table]]:
    """Name -> (field, table)."""
    text = pa.array(many(TEXTS))
    ids = many(IDS)
    whole = [row or [] for row in ids]
    fixed = [None if i % 7 == 3 else [i, 2, 3] for i in range(257)]
    made: dict[str, tuple[str, pa.Array]] = {
        "string": ("text", text),
        "large-string": ("text", text.cast(pa.large_string())),
        "no-nulls": ("text", text.fill_null("none")),
        "all-null": ("text", pa.array([None] * 9, pa.string())),
        "all-empty": ("text", pa.array([""] * 33)),
        "one": ("text", pa.array(["one"])),
        "no-rows": ("text", pa.array([], pa.string())),
        "other-name": ("content", text),
        "dotted-name": ("a.b", text),
        "struct": ("a.b", nested(text)),
        "struct-ids": ("a.b", nested(pa.array(ids, pa.list_(pa.int32())))),
        "struct-struct": ("o.a.b", pa.StructArray.from_arrays([nested(text)], ["a"])),
        "input-ids": ("text", pa.array(ids, pa.list_(pa.int32()))),
        "no-null-ids": ("text", pa.array(whole, pa.list_(pa.uint16()))),
        "large-list": ("tokens", pa.array(ids, pa.large_list(pa.int32()))),
        "fixed-list": ("tokens", pa.array(fixed, pa.list_(pa.int32(), 3))),
        "whole-fixed-list": ("tokens", pa.array([[i, 2] for i in range(257)],
                                                pa.list_(pa.int16(), 2))),
        "dictionary": ("text", text.dictionary_encode()),
        "dictionary-8": ("text", text.cast(pa.dictionary(pa.int8(), pa.large_string()))),
        "dictionary-null": ("text", pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 2, 1, 0], pa.int16()), pa.array(["a", None, "c"]))),
    }
    for width in WIDTHS:
        made[f"ids-{width}"] = ("ids", pa.array(ids, pa.list_(width)))
    tables = {}
    for name, (field, column) in made.items():
        top = field if name == "dotted-name" else field.split(".")[0]
        if name in ("input-ids", "no-null-ids"):
            top = "input_ids"
        n = len(column)
        tables[name] = (field, pa.table({
            "number": pa.array(range(n), pa.int64()),
            "before": pa.array([{"p": "x", "q": [i, i]} for i in range(n)],
                               pa.struct({"p": pa.string(), "q": pa.list_(pa.int32())})),
            "map": pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int32())),
            top: column,
            "after": pa.array(["never text"] * n),
        }))
    return tables


class Writer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases: list[str] = []
        self.refused: list[str] = []

    def add(self, name: str, kind: str, field: str, table: pa.Table, groups: int) -> None:
        column = values_of(table, field)
        id_bytes = 0
        if pa.types.is_nested(column.type):
            id_bytes = WIDTHS[column.type.value_type]
        with open(self.folder / f"{name}.rows", "wb") as rows:
            for row in column.to_pylist():
                data = as_bytes(row, id_bytes)
                rows.write(struct.pack("<q", -1 if data is None else len(data)))
                rows.write(data or b"")
        self.cases.append(f"{name} {kind} {field} {id_bytes} {groups}")

    def parquet(self, name: str, field: str, table: pa.Table, **options: object) -> None:
        name = f"{name}.parquet"
        pq.write_table(table, self.folder / name, **options)
        metadata = pq.ParquetFile(self.folder / name).metadata
        leaf = field if field in table.column_names or "." in field else "input_ids"
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        (index,) = (i for i, path in enumerate(paths) if path in (leaf, f"{leaf}.list.element"))
        groups = metadata.num_row_groups
        with open(self.folder / f"{name}.weights", "wb") as weights:
            for g in range(groups):
                chunk = metadata.row_group(g).column(index)
                weights.write(struct.pack("<q", chunk.total_uncompressed_size))
        self.add(name, "parquet", field, table, groups)

    def arrow(self, name: str, field: str, table: pa.Table, kind: str, compression: str | None,
              batches: list[pa.RecordBatch] | None = None) -> None:
        name = f"{name}.{kind}"
        options = pa.ipc.IpcWriteOptions(compression=compression)
        open_writer = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        batches = table.to_batches() if batches is None else batches
        with open_writer(self.folder / name, table.schema, options=options) as writer:
            for batch in batches:
                writer.write(batch)
        self.add(name, kind, field, table, len(batches))

    def refuse(self, name: str, kind: str, field: str, message: str) -> None:
        self.refused.append(f"{name} {kind} {field} {message}")


def values_of(table: pa.Table, field: str) -> pa.ChunkedArray:
    if field in table.column_names:
        return table[field]
    if "." not in field:
        return table["input_ids"]
    top, *names = field.split(".")
    column = table[top].combine_chunks()
    for name in names:
        column = pa.compute.struct_field(column, name)  # null where the struct is
    return pa.chunked_array([column])


def as_bytes(row: str | list[int] | None, id_bytes: int) -> bytes | None:
    if row is None:
        return None
    if isinstance(row, str):
        return row.encode()
    return b"".join(i.to_bytes(id_bytes, "little") for i in row)


def write_good(writer: Writer) -> None:
    for name, (field, table) in columns().items():
        has_dictionary = name.startswith("dictionary")
        # Arrow writes no null inside a dictionary to Parquet, and cannot read the null lists of a
        # fixed size that it wrote.
        if name not in ("dictionary-null", "fixed-list"):
            writer.parquet(name, field, table)
        writer.arrow(name, field, table, "file", None)
        if not has_dictionary:
            writer.arrow(name, field, table, "stream", None)
    field, table = columns()["string"]
    for compression in ["snappy", "zstd", "gzip", "none"]:
        writer.parquet(f"text-{compression}", field, table, compression=compression)
    # Pages of a few rows, groups of one, of seven and of none; strings without a dictionary.
    for size in (1, 7, 100):
        writer.parquet(f"text-groups-{size}", field, table, row_group_size=size)
    writer.parquet("text-pages", field, table, data_page_size=64, use_dictionary=False)
    writer.parquet("text-delta", field, table, use_dictionary=False,
                   column_encoding={"text": "DELTA_BYTE_ARRAY"})
    ids_field, ids = columns()["input-ids"]
    writer.parquet("ids-groups", ids_field, ids, row_group_size=10, data_page_size=64)
    nested_field, struct_ids = columns()["struct-ids"]
    batches = table.slice(3, 200).to_batches(max_chunksize=17)
    for kind in ("file", "stream"):
        for compression in ("lz4", "zstd"):
            writer.arrow(f"text-{compression}", field, table, kind, compression)
            writer.arrow(f"ids-{compression}", ids_field, ids, kind, compression)
            writer.arrow(f"struct-{compression}", nested_field, struct_ids.slice(5, 31), kind,
                         compression)
        writer.arrow("text-sliced", field, table.slice(3, 200), kind, None, batches)
        writer.arrow("ids-sliced", ids_field, ids.slice(1, 33), kind, None)
        writer.arrow("no-batches", field, table.slice(0, 0), kind, None, [])
        empty = table.schema.empty_table().to_batches() or [
            pa.RecordBatch.from_pylist([], schema=table.schema)]
        writer.arrow("empty-batch", field, table, kind, None,
                     [*empty, *table.to_batches(max_chunksize=100), *empty])
    write_overflowing_dictionary(writer)
    write_with_views_beside(writer)


def write_overflowing_dictionary(writer: Writer) -> None:
    """A dictionary that is full before its row group ends: the later pages contain texts."""
    values = [f"text number {i % 900}" for i in range(4000)]
    table = pa.table({"text": pa.array(values).dictionary_encode()})
    writer.parquet("dictionary-overflow", "text", table, dictionary_pagesize_limit=512,
                   data_page_size=512, row_group_size=1500)


def write_with_views_beside(writer: Writer) -> None:
    """Types that Arrow GLib has no class for, in columns that are not ours."""
    views = pa.array([[1], [2, 3]], pa.list_view(pa.int32()))
    table = pa.table({"views": views, "text": ["a", "b"]})
    for kind in ("file", "stream"):
        writer.arrow("views-beside", "text", table, kind, None)


def write_bad(writer: Writer) -> None:
    neither = "is neither text nor a list of integers: "
    bad = {
        "string-view": (pa.array(["a"], pa.string_view()), "text: string_view"),
        "binary": (pa.array([b"a"]), "text: binary"),
        "number": (pa.array([1]), "text: int64"),
        "float-list": (pa.array([[1.0]]), "text: list<item: double>"),
        "text-list": (pa.array([["a"]]), "text: list<item: string>"),
        "list-view": (pa.array([[1]], pa.list_view(pa.int8())),
                      "text: list_view<item: int8>"),
        "struct-alone": (pa.array([{"b": "x"}]), "text: struct<b: string>"),
        "number-dictionary": (pa.array([1, 1]).dictionary_encode(),
                              "text: dictionary<values=int64, indices=int32, ordered=0>"),
    }
    for name, (column, kind) in bad.items():
        table = pa.table({"text": column})
        with pa.ipc.new_file(writer.folder / f"{name}.file", table.schema) as file:
            file.write(table)
        writer.refuse(f"{name}.file", "file", "text", f"column 'text' {neither}{kind}")
    table = pa.table({"one": [1], "a": pa.array([{"b": "x"}])})
    pq.write_table(table, writer.folder / "absent.parquet")
    for field in ("text", "b", "a.c", "a.b.c"):
        writer.refuse("absent.parquet", "parquet", field,
                      f"it has no column '{field}'; it has 'one', 'a'")
    for name, column, message in [
        ("null-item", pa.array([[1], [1, None]]), "record batch 0: row 1 has a null among its ids"),
        ("negative", pa.array([[1], [], [3, -1]], pa.list_(pa.int8())),
         "record batch 0: row 2 has a negative id"),
    ]:
        table = pa.table({"input_ids": column})
        with pa.ipc.new_file(writer.folder / f"{name}.file", table.schema) as file:
            file.write(table)
        writer.refuse(f"{name}.file", "file", "input_ids", message)
    table = pa.table({"text": ["a"], "d": pa.array(["a"]).dictionary_encode()})
    with pa.ipc.new_stream(writer.folder / "dictionary-beside.stream", table.schema) as stream:
        stream.write(table)
    writer.refuse("dictionary-beside.stream", "stream", "text",
                  "an Arrow stream with a dictionary-encoded column; an Arrow file or Parquet "
                  "may have one")
    (writer.folder / "empty.stream").write_bytes(b"")
    for kind in ("parquet", "file", "stream"):
        writer.refuse("empty.stream", kind, "text", "it is empty")


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = Writer(folder)
    write_good(writer)
    write_bad(writer)
    (folder / "cases").write_text("".join(f"{line}\n" for line in writer.cases))
    (folder / "refused").write_text("".join(f"{line}\n" for line in writer.refused))


if __name__ == "__main__":
    main()
