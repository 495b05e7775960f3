"""Tables of a few kilobytes that expand to gigabytes, for tests/cli/pack_memory_test.py.

`python hostile_tables.py FOLDER` writes them, and a file `tables`: for each of them a line with its
name and the options that `pack` needs.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

LONG_TEXT = "a" * 70_000_000
N_EMPTY = 20_000_000
ID_OPTIONS = "--vocab-size 10 --separator-id 0"


class Tables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def add(self, name: str, columns: dict) -> Path:
        self.lines.append(f"{name} {ID_OPTIONS if 'input_ids' in columns else ''}")
        return self.folder / name

    def parquet(self, name: str, columns: dict, **options: object) -> None:
        path = self.add(f"{name}.parquet", columns)
        pq.write_table(pa.table(columns), path, compression="zstd", **options)

    def arrow(self, name: str, columns: dict, ending: str, batches: int = 1) -> None:
        path = self.add(f"{name}.{ending}", columns)
        table = pa.table(columns)
        new = pa.ipc.new_file if ending == "arrow" else pa.ipc.new_stream
        settings = pa.ipc.IpcWriteOptions(compression="zstd")
        with new(path, table.schema, options=settings) as writer:
            for _ in range(batches):
                writer.write(table)


def zeros(n: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(0, kind), n)


def same(text: str, n: int) -> pa.DictionaryArray:
    """One text, n times."""
    return pa.DictionaryArray.from_arrays(zeros(n, pa.int32()), [text])


def write_texts(tables: Tables) -> None:
    # Without the Arrow schema a column is read as texts, with it as the original dictionary.
    tables.parquet("dictionary", {"text": same(LONG_TEXT, 20)}, store_schema=False)
    tables.parquet("dictionary-kept", {"text": same(LONG_TEXT, 300)})
    tables.parquet("dictionary-short", {"text": same(LONG_TEXT[:10_000], 100_000)})
    tables.arrow("dictionary", {"text": same(LONG_TEXT, 300)}, "arrow")
    tables.parquet("groups", {"text": same(LONG_TEXT, 20)}, store_schema=False, row_group_size=1)
    two = {"text": [LONG_TEXT] * 2}
    tables.parquet("plain", two, use_dictionary=False)
    tables.parquet("delta", two, use_dictionary=False,
                   column_encoding={"text": "DELTA_BYTE_ARRAY"})
    # Only one text is long, and all rows use it.
    values = pa.array([LONG_TEXT[:1_000_000], *[""] * 1_000_000])
    uneven = pa.DictionaryArray.from_arrays(zeros(100_000, pa.int32()), values)
    tables.arrow("uneven", {"text": uneven}, "arrow")
    for ending in ("arrow", "arrows"):
        tables.arrow("batches", {"text": [LONG_TEXT]}, ending, batches=5)
        tables.arrow("beside", {"other": two["text"], "text": ["a", "b"]}, ending)


def write_rows_of_nothing(tables: Tables) -> None:
    empty = pa.repeat("", N_EMPTY)
    no_ids = pa.ListArray.from_arrays(zeros(N_EMPTY + 1, pa.int32()), pa.array([], pa.int32()))
    nothing = pa.Array.from_buffers(pa.list_(pa.int32(), 0), 1 << 30, [None],
                                    children=[pa.array([], pa.int32())])
    tables.parquet("empty", {"text": empty})
    tables.parquet("no-ids", {"input_ids": no_ids})
    tables.parquet("nulls", {"text": pa.nulls(N_EMPTY, pa.string())})
    for ending in ("arrow", "arrows"):
        tables.arrow("empty", {"text": empty}, ending)
        tables.arrow("empty-batches", {"text": empty[:1_000_000]}, ending, batches=20)
        tables.arrow("nothing", {"input_ids": nothing}, ending)


def write_ids(tables: Tables) -> None:
    ids = zeros(10_000_000, pa.int64())
    run = pa.ListArray.from_arrays(pa.array([0, len(ids)], pa.int32()), ids)
    tables.parquet("run", {"input_ids": run})
    tables.parquet("fixed", {"input_ids": pa.FixedSizeListArray.from_arrays(ids, len(ids))})
    for ending in ("arrow", "arrows"):
        tables.arrow("run", {"input_ids": run}, ending)


def write_nested(tables: Tables) -> None:
    """Text inside 60 structs, as deep as Arrow accepts, and inside 60 lists."""
    kind, value = pa.string(), LONG_TEXT
    for _ in range(60):
        kind, value = pa.struct({"a": kind}), {"a": value}
    tables.parquet("deep", {"other": pa.array([value], kind), "text": ["a"]})
    kind, value = pa.string(), LONG_TEXT
    for _ in range(60):
        kind, value = pa.list_(kind), [value]
    tables.parquet("lists", {"text": pa.array([value], kind)})


def main() -> None:
    tables = Tables(Path(sys.argv[1]))
    write_texts(tables)
    write_rows_of_nothing(tables)
    write_ids(tables)
    write_nested(tables)
    (tables.folder / "tables").write_text("".join(f"{line}\n" for line in tables.lines))


if __name__ == "__main__":
    main()
