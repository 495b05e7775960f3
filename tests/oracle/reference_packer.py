"""The packer again, written to be obviously right and slow, for expectations.

It follows `schemas/shard-v1.md` and the rules of a row, shares no line with the C program, and
answers three questions about a corpus: which documents it holds and where, which pieces of them
go into which row, and what every figure must then be.

    units = pack([Input("a.txt", b"one document")], Options(seq_len=8))
    units[0].rows[0]       # [Segment(document, offset, n_tokens), ...]
    units[0].figures       # as in the shard's metadata
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SEPARATOR = 256
VOCAB_SIZE = 257


@dataclass(frozen=True)
class Options:
    """The options of `bindery pack` that decide what is in a dataset."""

    seq_len: int = 2048
    strategy: str = "best-fit"
    long: str = "split"
    separator: int = SEPARATOR
    bos: int | None = None
    padding: int | None = None
    text_field: str = "text"
    delimiter: bytes | None = None
    invalid_utf8: str = "error"
    unit_size: int = 64 << 20

    @property
    def padding_id(self) -> int:
        return self.separator if self.padding is None else self.padding


@dataclass(frozen=True)
class Input:
    """One file of the corpus. Its name's extension says how it is read."""

    name: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Document:
    """One record: where it begins, its text's bytes as they are tokenised, all its tokens.
    Two documents are never equal, whatever they hold."""

    input: int
    position: int
    text: bytes
    tokens: tuple[int, ...]
    was_utf8: bool


@dataclass(frozen=True)
class Segment:
    """Tokens `offset` to `offset + n_tokens` of a document, as they lie in a row."""

    document: Document
    offset: int
    n_tokens: int

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.document.tokens[self.offset : self.offset + self.n_tokens]

    @property
    def order(self) -> tuple[int, int, int]:
        """Its place in the input."""
        return self.document.input, self.document.position, self.offset


Row = list[Segment]


@dataclass(frozen=True)
class Unit:
    """Slice `slice` of input `input`, or the group of `inputs` small ones that begins there."""

    input: int
    slice: int
    inputs: int

    @property
    def shard_name(self) -> str:
        return f"{self.input:05d}-{self.slice:05d}.arrow"


@dataclass(frozen=True)
class PackedUnit:
    unit: Unit
    rows: list[Row]
    figures: dict


class TooLong(Exception):
    """`--long error` met a document longer than a row."""

    def __init__(self, document: Document):
        super().__init__(f"input {document.input}, position {document.position}")
        self.document = document


# ---- Records ---------------------------------------------------------------------


def delimited_records(data: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    """What lies between two delimiter lines is a document; what lies before the first or after
    the last is one if it is anything at all. The newline that ends a document's last line is
    not part of it."""
    begin = 0
    line_begin = 0
    while line_begin < len(data):
        newline = data.find(b"\n", line_begin)
        line_end = len(data) if newline < 0 else newline
        next_line = len(data) if newline < 0 else newline + 1
        if data[line_begin:line_end] == delimiter:
            if line_begin > 0:
                yield begin, data[begin:line_begin].removesuffix(b"\n")
            begin = next_line
        line_begin = next_line
    if begin < len(data):
        yield begin, data[begin:].removesuffix(b"\n")


def json_text(line: bytes, text_field: str) -> bytes:
    """The text of a JSON record. Bytes that are not UTF-8 come through as they are."""
    value = json.loads(line.decode("utf-8", "surrogateescape"))
    for name in text_field.split("."):
        value = value[name]
    return value.encode("utf-8", "surrogateescape")


def jsonl_records(data: bytes, text_field: str) -> Iterator[tuple[int, bytes]]:
    """One document per line that is not blank, at the line's first byte."""
    position = 0
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            yield position, json_text(line, text_field)
        position += len(line) + 1


def records(item: Input, options: Options) -> Iterator[tuple[int, bytes]]:
    """(position, raw text) of every record of one input."""
    if item.name.endswith(".jsonl"):
        return jsonl_records(item.data, options.text_field)
    if options.delimiter is not None:
        return delimited_records(item.data, options.delimiter)
    return iter([(0, item.data)])


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def make_document(index: int, position: int, raw: bytes, options: Options) -> Document:
    """Optional BOS, the text's tokens, one separator."""
    valid = is_utf8(raw)
    if not valid and options.invalid_utf8 == "error":
        raise ValueError(f"input {index}, position {position}: not UTF-8")
    text = raw
    if not valid and options.invalid_utf8 == "replace":
        text = raw.decode("utf-8", "replace").encode("utf-8")
    bos = () if options.bos is None else (options.bos,)
    return Document(index, position, text, (*bos, *text, options.separator), valid)


def read_documents(inputs: list[Input], options: Options) -> list[Document]:
    """Every document of the corpus, in input order."""
    return [
        make_document(index, position, raw, options)
        for index, item in enumerate(inputs)
        for position, raw in records(item, options)
    ]


# ---- Units -----------------------------------------------------------------------


def can_be_cut(item: Input, options: Options) -> bool:
    """Larger than a unit, and more than one record."""
    is_one_document = not item.name.endswith(".jsonl") and options.delimiter is None
    return len(item.data) > options.unit_size and not is_one_document


def make_units(inputs: list[Input], options: Options) -> list[Unit]:
    """Large inputs are sliced; neighbouring small ones share a unit while they fit it."""
    units: list[Unit] = []
    group: list[int] = []

    def end_group() -> None:
        if group:
            units.append(Unit(group[0], 0, len(group)))
            group.clear()

    for index, item in enumerate(inputs):
        size = len(item.data)
        if can_be_cut(item, options):
            end_group()
            n_slices = -(-size // options.unit_size)
            units.extend(Unit(index, k, 1) for k in range(n_slices))
            continue
        if sum(len(inputs[i].data) for i in group) + size > options.unit_size:
            end_group()
        group.append(index)
    end_group()
    return units


def unit_holds(unit: Unit, document: Document, inputs: list[Input], options: Options) -> bool:
    """A record belongs to the unit in which its first byte lies."""
    if not unit.input <= document.input < unit.input + unit.inputs:
        return False
    if not can_be_cut(inputs[unit.input], options):
        return True
    return document.position // options.unit_size == unit.slice


# ---- Rows ------------------------------------------------------------------------


def kept_tokens(document: Document, options: Options) -> int:
    """How many tokens of a document the `--long` policy lets into rows."""
    n = len(document.tokens)
    if n <= options.seq_len or options.long == "split":
        return n
    if options.long == "truncate":
        return options.seq_len
    if options.long == "drop":
        return 0
    raise TooLong(document)


def greedy_pieces(document: Document, n_kept: int, seq_len: int) -> Iterator[Segment]:
    """The first piece fills a row; each next one repeats a token and adds up to seq_len - 1."""
    offset = 0
    while True:
        n = min(seq_len, n_kept - offset)
        yield Segment(document, offset, n)
        if offset + n == n_kept:
            return
        offset += n - 1


def best_fit_rows(documents: list[Document], options: Options) -> list[Row]:
    """Textbook best-fit decreasing; rows by their earliest segment, segments in input order."""
    segments: list[Segment] = []
    for document in documents:
        n_kept = kept_tokens(document, options)
        if n_kept > 0:
            segments.extend(greedy_pieces(document, n_kept, options.seq_len))

    rows: list[Row] = []
    rooms: list[int] = []
    for segment in sorted(segments, key=lambda s: -s.n_tokens):
        fitting = [(room, r) for r, room in enumerate(rooms) if room >= segment.n_tokens]
        if fitting:
            _, best = min(fitting)
        else:
            best = len(rows)
            rows.append([])
            rooms.append(options.seq_len)
        rows[best].append(segment)
        rooms[best] -= segment.n_tokens
    for row in rows:
        row.sort(key=lambda s: s.order)
    return sorted(rows, key=lambda row: row[0].order)


def concat_rows(documents: list[Document], options: Options) -> list[Row]:
    """Documents end to end, cut where a row ends. The piece after a cut repeats a token. A
    segment never begins in the last free token of a row unless that is all of its document."""
    rows: list[Row] = []
    free = 0
    for document in documents:
        n_kept = kept_tokens(document, options)
        n_done = 0
        while n_done < n_kept:
            if free == 0 or (free == 1 and len(document.tokens) > 1):
                rows.append([])
                free = options.seq_len
            offset = max(n_done - 1, 0)
            n = min(free, n_kept - offset)
            rows[-1].append(Segment(document, offset, n))
            free -= n
            n_done = offset + n
    return rows


STRATEGIES = {"best-fit": best_fit_rows, "concat": concat_rows}


# ---- Figures ---------------------------------------------------------------------


def histogram(values: Iterable[int]) -> list[int]:
    """Entry i counts the values from 2^i to 2^(i+1) - 1."""
    counts: list[int] = []
    for value in values:
        i = value.bit_length() - 1
        counts.extend([0] * (i + 1 - len(counts)))
        counts[i] += 1
    return counts


def collisions(segment: Segment, options: Options) -> int:
    """Text tokens of a segment that have the separator's id, a repeated token left out."""
    document = segment.document
    first_text = 0 if options.bos is None else 1
    first_new = segment.offset + (1 if segment.offset > 0 else 0)
    end = min(segment.offset + segment.n_tokens, len(document.tokens) - 1)
    return document.tokens[max(first_new, first_text) : end].count(options.separator)


def make_figures(documents: list[Document], rows: list[Row], options: Options) -> dict:
    """Every figure of the metadata, in its order."""
    segments = [segment for row in rows for segment in row]
    pieces: dict[Document, int] = {}
    for segment in segments:
        pieces[segment.document] = pieces.get(segment.document, 0) + 1
    kept = {d: kept_tokens(d, options) for d in documents}
    truncated = [d for d in documents if 0 < kept[d] < len(d.tokens)]
    dropped = [d for d in documents if kept[d] == 0]
    packed = sum(s.n_tokens for s in segments)
    return {
        "rows": len(rows),
        "segments": len(segments),
        "documents": len(pieces),
        "text": sum(len(d.text) for d in documents),
        "bos": 0 if options.bos is None else len(documents),
        "separators": len(documents),
        "repeated": sum(1 for s in segments if s.offset > 0),
        "packed": packed,
        "padding": len(rows) * options.seq_len - packed,
        "truncated": sum(len(d.tokens) - kept[d] for d in truncated),
        "dropped": sum(len(d.tokens) for d in dropped),
        "targets": sum(s.n_tokens - 1 for s in segments),
        "empty_documents": sum(1 for d in pieces if not d.text),
        "split_documents": sum(1 for n in pieces.values() if n > 1),
        "truncated_documents": len(truncated),
        "dropped_documents": len(dropped),
        "separator_collisions": sum(collisions(s, options) for s in segments),
        "invalid_utf8_documents": sum(1 for d in documents if not d.was_utf8),
        "longest_segment": max((s.n_tokens for s in segments), default=0),
        "attention_pairs": sum(s.n_tokens * (s.n_tokens + 1) // 2 for s in segments),
        "document_length_histogram": histogram(len(d.tokens) for d in pieces),
        "segments_per_row_histogram": histogram(len(row) for row in rows),
    }


# ---- The whole -------------------------------------------------------------------


def pack(inputs: list[Input], options: Options) -> list[PackedUnit]:
    """What `bindery pack` must write, unit by unit. Raises TooLong under `--long error`."""
    documents = read_documents(inputs, options)
    packed = []
    for unit in make_units(inputs, options):
        own = [d for d in documents if unit_holds(unit, d, inputs, options)]
        rows = STRATEGIES[options.strategy](own, options)
        packed.append(PackedUnit(unit, rows, make_figures(own, rows, options)))
    return packed
