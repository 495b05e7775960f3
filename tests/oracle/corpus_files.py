"""The same documents in every format that the program reads.

A writer takes texts and makes inputs of them, each with the files to be written and, for formats
that the reference packer does not read, the records and their positions. As tokens a text is its
bytes; 256 is the separator.

    inputs = FORMATS["parquet"].write(random.Random(1), [b"one", b"two"])
    write_inputs(folder, inputs)
"""

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from reference_packer import SEPARATOR, Cut, Input, Record

DELIMITER = b"%"

Writer = Callable[[random.Random, list[bytes]], list[Input]]


@dataclass(frozen=True)
class Format:
    """How a corpus is written. `separators_are` is the value for `--separator`, and
    `begins_with_text` says whether the first document must have text: without it, a head that was
    cut off cannot be recognised."""

    write: Writer
    is_tokens: bool = False
    is_delimited: bool = False
    separators_are: str = "append"
    begins_with_text: bool = False


# ---- Compression -----------------------------------------------------------------


def pieces_of(rng: random.Random, data: bytes) -> list[bytes]:
    """Cuts the data anywhere into one to four pieces, some of which may be empty."""
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 3)))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)])]


def gzip_file(rng: random.Random, data: bytes) -> bytes:
    """Writes one member or several."""
    pieces = pieces_of(rng, data)
    return b"".join(gzip.compress(piece, rng.randint(1, 9), mtime=0) for piece in pieces)


def zstd_frame(data: bytes, tells_size: bool) -> bytes:
    """Writes a frame that may state the size of its contents."""
    if tells_size:
        return pa.compress(data, codec="zstd", asbytes=True)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def zstd_file(rng: random.Random, data: bytes) -> bytes:
    """Writes one frame or several, with or without their sizes; perhaps one to be skipped."""
    frames = [zstd_frame(piece, rng.random() < 0.5) for piece in pieces_of(rng, data)]
    if rng.random() < 0.3:
        frames.insert(rng.randint(0, len(frames)), struct.pack("<II", 0x184D2A53, 3) + b"xyz")
    return b"".join(frames)


def bzip2_file(rng: random.Random, data: bytes) -> bytes:
    return b"".join(bz2.compress(piece, rng.randint(1, 9)) for piece in pieces_of(rng, data))


def xz_file(rng: random.Random, data: bytes) -> bytes:
    """Writes one stream or several, perhaps with padding after them."""
    streams = [lzma.compress(p, preset=rng.randint(0, 2)) for p in pieces_of(rng, data)]
    return b"".join(s + bytes(4 * rng.randint(0, 1)) for s in streams)


COMPRESSIONS = {
    "gzip": (".gz", gzip_file),
    "zstd": (".zst", zstd_file),
    "bzip2": (".bz2", bzip2_file),
    "xz": (".xz", xz_file),
}


def compressed(rng: random.Random, item: Input, compression: str) -> Input:
    """Compresses the input and adds the compression's ending to its name."""
    ending, compress = COMPRESSIONS[compression]
    name = item.name + ending
    stored = {name: compress(rng, item.data)}
    return replace(item, name=name, compression=compression, stored=stored)


def compressing(write: Writer, compression: str) -> Writer:
    def write_compressed(rng: random.Random, texts: list[bytes]) -> list[Input]:
        return [compressed(rng, item, compression) for item in write(rng, texts)]

    return write_compressed


# ---- Text ------------------------------------------------------------------------


def jsonl(rng: random.Random, texts: list[bytes]) -> list[Input]:
    lines = [
        json.dumps({"id": i, "text": text.decode()}, ensure_ascii=rng.random() < 0.5)
        for i, text in enumerate(texts)
    ]
    return [Input("corpus.jsonl", "".join(line + "\n" for line in lines).encode())]


def delimited(rng: random.Random, texts: list[bytes]) -> list[Input]:
    """Returns texts without delimiter lines."""
    return [Input("corpus.txt", b"".join(text + b"\n" + DELIMITER + b"\n" for text in texts))]


def text_files(rng: random.Random, texts: list[bytes]) -> list[Input]:
    return [Input(f"{i:05d}.txt", text) for i, text in enumerate(texts)]


def separated(name: str, dialect: str) -> Writer:
    """Writes CSV or TSV with Python's module; the text is one of several columns."""

    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        columns = ["id", "text", "a, b", "the\n\"text\""]
        rng.shuffle(columns)
        quoting = rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
        end = "\r\n" if quoting == csv.QUOTE_MINIMAL or rng.random() < 0.5 else "\n"
        data, records = io.StringIO(newline=""), []
        if rng.random() < 0.3:
            data.write("\ufeff")
        writer = csv.writer(data, dialect, quoting=quoting, lineterminator=end)
        writer.writerow(columns)
        for i, text in enumerate(texts):
            data.write(rng.choice(["", end]))  # a blank line is not a row
            position = len(data.getvalue().encode())
            values = {"id": i, "text": text.decode(), "a, b": 'a, "b"\n'}
            writer.writerow([values.get(column, "") for column in columns])
            stop = len(data.getvalue().encode()) - len(end)
            records.append(Record(position, text, text, end=stop))
        return [Input(name, data.getvalue().encode(), records=tuple(records), is_stream=True)]

    return write


def json_array(rng: random.Random, texts: list[bytes]) -> list[Input]:
    """Writes objects and strings with any white space."""
    data, records = rng.choice(["[", " \n[\n", "\ufeff["]), []
    for i, text in enumerate(texts):
        value = rng.choice([text.decode(), {"n": [i, {}], "text": text.decode()}])
        element = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
        position, raw = len(data.encode()), element.encode()
        records.append(Record(position, raw, text, end=position + len(raw)))
        data += element + rng.choice(["", " ", "\r\n"])
        data += "," + rng.choice(["", "\n", "\t\n  "]) if i + 1 < len(texts) else ""
    data += rng.choice(["]", "]\n\n"])
    return [Input("corpus.json", data.encode(), records=tuple(records), is_stream=True)]


# ---- Tables ----------------------------------------------------------------------


def ids_of(text: bytes, separators_are: str) -> list[int]:
    return [*text, SEPARATOR] if separators_are == "present" else [*text]


def table_of(rng: random.Random, name: str, column: pa.Array) -> pa.Table:
    """Puts the column among others, which are not read."""
    n = len(column)
    columns = {
        "id": pa.array(range(n), pa.int64()),
        name: column,
        "source": pa.array([f"{name} is not here"] * n),
        "score": pa.array([None if i % 3 == 0 else i / 7 for i in range(n)], pa.float64()),
    }
    names = sorted(columns, key=lambda _: rng.random())
    return pa.table({name: columns[name] for name in names})


def group_rows(rng: random.Random, n_rows: int) -> int:
    """Chooses the rows of a row group or record batch: several groups, one, or one row each."""
    return max(rng.choice([1, n_rows // 3, n_rows // 2, n_rows]), 1)


def parquet_file(rng: random.Random, table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=group_rows(rng, table.num_rows),
        compression=rng.choice(["none", "snappy", "zstd"]),
        use_dictionary=rng.random() < 0.5,
        data_page_version=rng.choice(["1.0", "2.0"]),
    )
    return sink.getvalue().to_pybytes()


def arrow_file(rng: random.Random, table: pa.Table) -> bytes:
    return ipc_file(rng, table, pa.ipc.new_file)


def arrow_stream(rng: random.Random, table: pa.Table) -> bytes:
    return ipc_file(rng, table, pa.ipc.new_stream)


def ipc_file(rng: random.Random, table: pa.Table, new_writer: Callable) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, "zstd", "lz4"]))
    with new_writer(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=group_rows(rng, table.num_rows))
    return sink.getvalue().to_pybytes()


Table = Callable[[random.Random, pa.Table], bytes]


def table_input(name: str, data: bytes, records: list[Record]) -> Input:
    """The dataset states which row groups form a slice, because the reader decides how many bytes
    they have. Until then they are one slice of unknown size."""
    cut = Cut(None, len(records), (0,))
    return Input(name, source="default", records=tuple(records), cut=cut, stored={name: data})


def text_table(ending: str, encode: Table) -> Writer:
    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        kind = rng.choice([pa.string(), pa.large_string()])
        column = pa.array([text.decode() for text in texts], kind)
        data = encode(rng, table_of(rng, "text", column))
        records = [Record(row, text, text) for row, text in enumerate(texts)]
        return [table_input(f"corpus.{ending}", data, records)]

    return write


def token_table(ending: str, encode: Table, separators_are: str) -> Writer:
    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        item, letter = rng.choice(
            [(pa.int32(), "i"), (pa.int64(), "q"), (pa.uint16(), "H"), (pa.uint32(), "I")]
        )
        lists = [ids_of(text, separators_are) for text in texts]
        kind = rng.choice([pa.list_(item), pa.large_list(item)])
        name = rng.choice(["input_ids", "tokens"])
        data = encode(rng, table_of(rng, name, pa.array(lists, kind)))
        records = [
            Record(row, struct.pack(f"<{len(ids)}{letter}", *ids), tuple(text))
            for row, (ids, text) in enumerate(zip(lists, texts))
        ]
        return [table_input(f"corpus.{ending}", data, records)]

    return write


MASK_COLUMNS = ["labels", "loss_mask", "completion_mask", "assistant_masks"]


def random_mask(rng: random.Random, n: int) -> tuple[bool, ...]:
    """Makes a mask of `n` tokens: none, all, some, or a prompt and its completion."""
    kind = rng.randrange(4)
    n_prompt = rng.randint(0, n)
    return tuple(
        (False, True, rng.random() < 0.5, i >= n_prompt)[kind] for i in range(n)
    )


def mask_items(
    rng: random.Random, column: str, ids: list[list[int]], masks: list[tuple[bool, ...]]
) -> pa.Array:
    """Writes masks as a column of that name may have them."""
    if column == "labels":
        item = rng.choice([pa.int16(), pa.int32(), pa.int64()])
        lists = [[i if bit else -100 for i, bit in zip(*pair)] for pair in zip(ids, masks)]
    else:
        item = rng.choice([pa.bool_(), pa.int8(), pa.uint8(), pa.int64()])
        lists = [[bit if item == pa.bool_() else int(bit) for bit in mask] for mask in masks]
    return pa.array(lists, rng.choice([pa.list_(item), pa.large_list(item)]))


def masked_table(ending: str, encode: Table, separators_are: str) -> Writer:
    """Writes ids and, beside them, which of them are trained."""

    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        item, letter = rng.choice([(pa.int32(), "i"), (pa.uint16(), "H")])
        lists = [ids_of(text, separators_are) for text in texts]
        masks = [random_mask(rng, len(ids)) for ids in lists]
        column = rng.choice(MASK_COLUMNS)
        table = table_of(rng, "input_ids", pa.array(lists, pa.list_(item)))
        table = table.append_column(column, mask_items(rng, column, lists, masks))
        records = [
            Record(row, struct.pack(f"<{len(ids)}{letter}", *ids), tuple(text), trained=mask)
            for row, (ids, text, mask) in enumerate(zip(lists, texts, masks))
        ]
        made = table_input(f"corpus.{ending}", encode(rng, table), records)
        return [replace(made, mask_column=column)]

    return write


# ---- Files of tokens -------------------------------------------------------------


def token_records(
    texts: list[bytes], letter: str, separators_are: str
) -> tuple[list[Record], list[list[int]]]:
    """Returns each document's record, named by its number in the index, and its ids."""
    lists = [ids_of(text, separators_are) for text in texts]
    records = [
        Record(number, struct.pack(f"<{len(ids)}{letter}", *ids), tuple(text))
        for number, (ids, text) in enumerate(zip(lists, texts))
    ]
    return records, lists


def indexed_input(name: str, files: dict[str, bytes], records: list[Record]) -> Input:
    """A file of ids with an index of documents. It is one slice until `sliced` cuts it."""
    weight = sum(len(record.raw) for record in records)
    cut = Cut(weight, len(records), (0,))
    return Input(name, records=tuple(records), cut=cut, stored=files)


def indexed_starts(item: Input, unit_size: int) -> Iterator[int]:
    """Documents join a slice while together they stay within the unit's size."""
    room = unit_size
    for record in item.records:
        size = len(record.raw)
        if record.position == 0 or size > room:
            yield record.position
            room = unit_size
        room -= size


def sliced(item: Input, unit_size: int) -> Input:
    """Cuts a file of tokens as units of that size do: with an index, between documents; otherwise
    at multiples of so many bytes of ids."""
    cut = item.cut
    if cut.weight <= unit_size:
        return item
    if cut.id_bytes is None:
        starts = tuple(indexed_starts(item, unit_size))
    else:
        starts = tuple(range(0, cut.extent, max(unit_size // cut.id_bytes, 1)))
    return replace(item, cut=replace(cut, starts=starts))


# Megatron's codes of the types that can hold an id of 256.
MEGATRON_TYPES = {"h": 3, "i": 4, "q": 5, "H": 8}


def megatron(separators_are: str) -> Writer:
    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        letter = rng.choice(list(MEGATRON_TYPES))
        width = struct.calcsize(letter)
        records, lists = token_records(texts, letter, separators_are)
        lengths = [len(ids) for ids in lists]
        pointers = [sum(lengths[:i]) * width for i in range(len(lengths))]
        n = len(lengths)
        index = b"".join([
            b"MMIDIDX\x00\x00",
            struct.pack("<QBQQ", 1, MEGATRON_TYPES[letter], n, n + 1),
            struct.pack(f"<{n}i", *lengths),
            struct.pack(f"<{n}q", *pointers),
            struct.pack(f"<{n + 1}q", *range(n + 1)),
        ])
        files = {"corpus.bin": b"".join(record.raw for record in records), "corpus.idx": index}
        return [indexed_input("corpus.bin", files, records)]

    return write


def datatrove(separators_are: str) -> Writer:
    """Writes ids and, in a file beside them, the index at which each document ends."""

    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        records, lists = token_records(texts, "H", separators_are)
        ends = itertools.accumulate(map(len, lists))
        files = {
            "corpus.ds": b"".join(record.raw for record in records),
            "corpus.ds.index": struct.pack(f"<{len(lists)}Q", *ends),
        }
        return [indexed_input("corpus.ds", files, records)]

    return write


def dolma(separators_are: str) -> Writer:
    """Writes ids without a header, whatever the name says, and a table of the documents' places."""

    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        records, lists = token_records(texts, "H", separators_are)
        table = io.StringIO(newline="")
        rows = csv.writer(table)
        begin = 0
        for i, ids in enumerate(lists):
            end = begin + len(ids)
            rows.writerow([begin, end, f'id "{i}", quoted', "corpus,1.json", i])
            begin = end
        files = {
            "corpus.npy": b"".join(record.raw for record in records),
            "corpus.csv.gz": gzip.compress(table.getvalue().encode(), mtime=0),
        }
        return [indexed_input("corpus.npy", files, records)]

    return write


def llm_c(has_head: bool) -> Writer:
    """Writes a header, then each document after an end-of-text token. The first document of a file
    that was cut out of a longer one has lost its beginning and that token."""

    def write(rng: random.Random, texts: list[bytes]) -> list[Input]:
        letter, magic, version = rng.choice([("H", 20240520, 1), ("I", 20240801, 7)])
        width = struct.calcsize(letter)
        records = []
        ids: list[int] = []
        for i, text in enumerate(texts):
            is_headless = i == 0 and not has_head
            raw = struct.pack(f"<{len(text)}{letter}", *text)
            records.append(Record(len(ids), raw, tuple(text), is_headless))
            ids += [*text] if is_headless else [SEPARATOR, *text]
        n = len(ids)
        header = struct.pack("<256i", magic, version, n, *[0] * 253)
        files = {"corpus.bin": header + struct.pack(f"<{n}{letter}", *ids)}
        cut = Cut(n * width, n, (0,), id_bytes=width)
        return [Input("corpus.bin", records=tuple(records), cut=cut, stored=files)]

    return write


# ---- All of them -----------------------------------------------------------------

TABLES: dict[str, tuple[str, Table]] = {
    "parquet": ("parquet", parquet_file),
    "arrow": ("arrow", arrow_file),
    "arrow stream": ("arrow", arrow_stream),
}

FORMATS: dict[str, Format] = {
    "jsonl": Format(jsonl),
    "jsonl, gzip": Format(compressing(jsonl, "gzip")),
    "jsonl, zstd": Format(compressing(jsonl, "zstd")),
    "jsonl, bzip2": Format(compressing(jsonl, "bzip2")),
    "jsonl, xz": Format(compressing(jsonl, "xz")),
    "csv": Format(separated("corpus.csv", "excel")),
    "tsv, gzip": Format(compressing(separated("corpus.tsv", "excel-tab"), "gzip")),
    "json": Format(json_array),
    "json, xz": Format(compressing(json_array, "xz")),
    "text": Format(delimited, is_delimited=True),
    "text, gzip": Format(compressing(delimited, "gzip"), is_delimited=True),
    "text, zstd": Format(compressing(delimited, "zstd"), is_delimited=True),
    "text files": Format(text_files),
    "text files, gzip": Format(compressing(text_files, "gzip")),
    **{name: Format(text_table(*table)) for name, table in TABLES.items()},
    **{
        f"{name} of tokens, {separators}": Format(
            token_table(*table, separators), is_tokens=True, separators_are=separators
        )
        for name, table in TABLES.items()
        for separators in ("append", "present")
    },
    **{
        f"{name}, {separators}": Format(
            write(separators), is_tokens=True, separators_are=separators
        )
        for name, write in [("megatron", megatron), ("datatrove", datatrove), ("dolma", dolma)]
        for separators in ("append", "present")
    },
    "llm.c": Format(llm_c(has_head=True), is_tokens=True),
    "llm.c without a head": Format(
        llm_c(has_head=False), is_tokens=True, begins_with_text=True
    ),
}

# The same, with masks beside the tokens.
MASKED_FORMATS: dict[str, Format] = {
    f"{name} of tokens with masks, {separators}": Format(
        masked_table(*table, separators), is_tokens=True, separators_are=separators
    )
    for name, table in TABLES.items()
    for separators in ("append", "present")
}
