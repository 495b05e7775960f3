"""A second packer, slow and simple enough to be obviously right, for expected results.

It follows `schemas/shard-v1.md` and the rules of a row, shares no line with the C program, and
answers three questions about a corpus: which documents it holds and where, which pieces of them
go into which row, and what every figure must then be.

    units = pack([Input("a.txt", b"one document")], Options(seq_len=8))
    units[0].rows[0]       # [Segment(document, offset, n_tokens), ...]
    units[0].figures       # as in the shard's metadata

Formats that are not text (tables, files of tokens) are not read here: the code that writes such a
file states which records it has put where (`corpus_files.py`).
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import xxhash

SEPARATOR = 256
VOCAB_SIZE = 257


MASK_FIGURES = ["untrained", "masked", "untrained_documents"]  # with loss masks alone
BAD_KINDS = ["missing_text", "json", "utf8", "too_large", "pattern"]


@dataclass(frozen=True)
class Options:
    """The options of `bindery pack` that decide the contents of a dataset."""

    seq_len: int = 2048
    strategy: str = "best-fit"
    long: str = "split"
    separator: int = SEPARATOR
    separators_are: str = "append"  # or "present": the tokens contain it already
    vocab_size: int | None = None  # if given, the inputs are token ids
    bos: int | None = None
    padding: int | None = None
    text_field: str = "text"
    delimiter: bytes | None = None
    invalid_utf8: str = "error"
    unit_size: int = 64 << 20
    max_documents: int | None = None
    min_tokens: int = 0
    shuffle: int | None = None
    holdout: int = 0  # in millionths
    limit: int | None = None
    codec: str = "none"

    @property
    def padding_id(self) -> int:
        return self.separator if self.padding is None else self.padding

    @property
    def parts(self) -> list[str]:
        """Returns the parts that one run writes, each a dataset."""
        return ["all"] if self.holdout == 0 else ["training", "held-out"]


@dataclass(frozen=True)
class Record:
    """One record of an input: where it begins, its bytes in the input, and its text, or its token
    ids without separator. If the input says which of its ids are trained, `trained` does so for
    the ids as stored, with a separator that is there."""

    position: int
    raw: bytes
    content: bytes | tuple[int, ...]
    is_headless: bool = False
    end: int | None = None  # in a stream, where a record's size is not that of its bytes
    trained: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Cut:
    """How an input is cut. The starts are right even if the program has to read on to find them,
    and states neither weight nor extent."""

    weight: int | None
    extent: int | None
    starts: tuple[int, ...]
    id_bytes: int | None = None  # width of ids in a file without an index, whose positions are ids


@dataclass(frozen=True)
class Input:
    """One input of the corpus. Text and JSONL are read from `data`, the decompressed bytes; the
    name's ending (without that of a compression) says which. Other formats state their `records`
    and `cut`. `stored` are the files to be written, if `data` is not the only one."""

    name: str
    data: bytes = b""
    source: str = "default"
    compression: str = "none"
    records: tuple[Record, ...] | None = None
    cut: Cut | None = None
    stored: dict[str, bytes] | None = None
    is_stream: bool = False  # text in which only reading finds the begins of records
    mask_column: str | None = None  # where a table says which ids are trained

    @property
    def is_jsonl(self) -> bool:
        return ".jsonl" in self.name


@dataclass(frozen=True, eq=False)
class Document:
    """One document: the begin of its record, that record, its text (or ids) before tokenising, all
    its tokens and, in a dataset with loss masks, which of them are trained. Two documents are never
    equal, whatever they contain."""

    input: int
    position: int
    place: tuple[int, ...]
    record: Record
    text: bytes | tuple[int, ...]
    tokens: tuple[int, ...]
    was_utf8: bool
    trained: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Segment:
    """Tokens `offset` to `offset + n_tokens` of a document, as they are in a row."""

    document: Document
    offset: int
    n_tokens: int

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.document.tokens[self.offset : self.offset + self.n_tokens]

    @property
    def trained(self) -> tuple[bool, ...] | None:
        """Its mask: its first token has nothing before it to be predicted from."""
        if self.document.trained is None:
            return None
        own = self.document.trained[self.offset : self.offset + self.n_tokens]
        return (False, *own[1:])

    @property
    def n_targets(self) -> int:
        return self.n_tokens - 1 if self.trained is None else sum(self.trained)

    @property
    def order(self) -> tuple[int, ...]:
        """Its position in input order."""
        return *self.document.place, self.offset


Row = list[Segment]
Choice = Callable[[list[tuple[int, int]]], int]  # from (room, row) of rows with enough room


@dataclass(frozen=True)
class Unit:
    """Slice `slice` of input `input`, or the group of `inputs` small ones that begins there."""

    input: int
    slice: int
    inputs: int
    last: bool = True

    @property
    def shard_name(self) -> str:
        return f"{self.input:05d}-{self.slice:05d}.arrow"


@dataclass(frozen=True)
class PackedUnit:
    unit: Unit
    rows: list[Row]
    figures: dict
    records: str
    positions: str


class TooLong(Exception):
    """`--long error` found a document longer than a row."""

    def __init__(self, document: Document):
        super().__init__(f"input {document.input}, position {document.position}")
        self.document = document


# ---- Records ---------------------------------------------------------------------


def delimited_records(data: bytes, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines between two delimiter lines are a document; the lines before the first or after the
    last are one unless there are none. The newline that ends a document's last line is not part of
    it."""
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
    """Returns the text of a JSON record. Bytes that are not UTF-8 are kept."""
    value = json.loads(line.decode("utf-8", "surrogateescape"))
    for name in text_field.split("."):
        value = value[name]
    return value.encode("utf-8", "surrogateescape")


def jsonl_records(data: bytes, text_field: str) -> Iterator[Record]:
    """Yields one document per line that is not blank, at the line's first byte."""
    position = 0
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            yield Record(position, line, json_text(line, text_field))
        position += len(line) + 1


def records_of(item: Input, options: Options) -> Iterator[Record]:
    """Yields every record of one input."""
    if item.records is not None:
        return iter(item.records)
    if item.is_jsonl:
        return jsonl_records(item.data, options.text_field)
    if options.delimiter is not None:
        found = delimited_records(item.data, options.delimiter)
        return (Record(position, text, text) for position, text in found)
    return iter([Record(0, item.data, item.data)])


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def place_of(index: int, position: int, shuffle: int | None) -> tuple[int, ...]:
    """Returns the sort key of a document in input order."""
    if shuffle is None:
        return index, position
    rank = xxhash.xxh3_64_intdigest(struct.pack("<IQ", index, position), seed=shuffle)
    return rank, index, position


def tokenised_text(raw: bytes, options: Options) -> bytes:
    """Returns the text of a record for the tokenizer. Raises ValueError if it must be refused."""
    if is_utf8(raw) or options.invalid_utf8 == "keep":
        return raw
    if options.invalid_utf8 == "replace":
        return raw.decode("utf-8", "replace").encode("utf-8")
    raise ValueError(f"not UTF-8: {raw!r}")


def has_masks(inputs: list[Input]) -> bool:
    """A dataset has loss masks if one of its inputs says which tokens are trained."""
    return any(item.mask_column is not None for item in inputs)


def trained_tokens(
    record: Record, n_text: int, has_bos: bool, options: Options
) -> tuple[bool, ...]:
    """Returns the mask of a document in a dataset with loss masks. Without a mask of its own, all
    of it is trained; an appended separator goes with the last token. A first token never is."""
    stored = record.trained
    n_before = int(has_bos)
    if stored is None:
        own = (True,) * (n_before + n_text + 1)
    elif options.separators_are == "present":
        own = stored
    else:
        own = (*(False,) * n_before, *stored, stored[-1] if stored else False)
    return (False, *own[1:])


def make_document(index: int, record: Record, options: Options, is_masked: bool) -> Document:
    """Returns an optional BOS, the text's tokens, one separator."""
    content = record.content
    is_text = isinstance(content, bytes)
    text = tokenised_text(content, options) if is_text else content
    bos = () if options.bos is None else (options.bos,)
    return Document(
        input=index,
        position=record.position,
        place=place_of(index, record.position, options.shuffle),
        record=record,
        text=text,
        tokens=(*bos, *text, options.separator),
        was_utf8=not is_text or is_utf8(content),
        trained=trained_tokens(record, len(text), bool(bos), options) if is_masked else None,
    )


def read_documents(inputs: list[Input], options: Options) -> list[Document]:
    """Returns every document of the corpus up to the limit, in the order of the inputs."""
    documents = [
        make_document(index, record, options, has_masks(inputs))
        for index, item in enumerate(inputs)
        for record in records_of(item, options)
    ]
    return documents[: options.limit]


def positions_digest(unit: Unit, documents: list[Document]) -> str:
    """Returns XXH3-128 over the records' positions, with a mark where the next input begins."""
    state = xxhash.xxh3_128()
    index = unit.input
    for document in documents:
        state.update(b"\xff" * 8 * (document.input - index))
        index = document.input
        is_headless = document.record.is_headless
        state.update(struct.pack("<Q", 2**64 - 2 if is_headless else document.position))
    return state.hexdigest()


def records_digest(documents: list[Document]) -> str:
    """Returns XXH3-128 over each record's bytes and their number, and its mask likewise."""
    state = xxhash.xxh3_128()
    for document in documents:
        state.update(document.record.raw)
        state.update(struct.pack("<Q", len(document.record.raw)))
        if document.record.trained is not None:
            state.update(bytes(document.record.trained))
            state.update(struct.pack("<Q", len(document.record.trained)))
    return state.hexdigest()


# ---- Selection -------------------------------------------------------------------


def is_held_out(document: Document, options: Options) -> bool:
    text = document.text
    data = text if isinstance(text, bytes) else struct.pack(f"<{len(text)}I", *text)
    return xxhash.xxh3_64_intdigest(data) * 10**6 >> 64 < options.holdout


def documents_of_part(documents: list[Document], options: Options, part: str) -> list[Document]:
    """Returns the documents in a part's figures: a training part counts the held-out ones, too."""
    if part != "held-out":
        return documents
    return [d for d in documents if is_held_out(d, options)]


def left_out_as(document: Document, options: Options, part: str) -> str | None:
    """Returns the figure that counts a document that is in no row, or None."""
    if part == "training" and is_held_out(document, options):
        return "held_out"
    if len(document.text) < options.min_tokens:
        return "too_short"
    if document.trained is not None and not any(document.trained):
        return "untrained"
    return None


# ---- Units -----------------------------------------------------------------------


def text_cut(item: Input, options: Options) -> Cut:
    """Cuts text at multiples of the unit's size, unless a file is one document."""
    size = len(item.data)
    is_lines = item.is_jsonl or item.is_stream
    is_one_document = not is_lines and options.delimiter is None
    starts = (0,) if is_one_document else tuple(range(0, max(size, 1), options.unit_size))
    is_whole = item.compression == "none" and not item.is_stream
    is_known = is_whole or size <= options.unit_size
    return Cut(size, size, starts) if is_known else Cut(None, None, starts)


def cut_of(item: Input, options: Options) -> Cut:
    return text_cut(item, options) if item.cut is None else item.cut


def make_units(inputs: list[Input], options: Options) -> list[Unit]:
    """Slices large inputs; neighbouring small inputs of a source share a unit."""
    units: list[Unit] = []
    group_weight = None  # weight of the last unit if that is a group
    for index, item in enumerate(inputs):
        cut = cut_of(item, options)
        if cut.weight is None or cut.weight > options.unit_size:
            group_weight = None
            n = len(cut.starts)
            units.extend(Unit(index, k, 1, last=k == n - 1) for k in range(n))
            continue
        is_joining = group_weight is not None and inputs[index - 1].source == item.source
        if is_joining and group_weight + cut.weight <= options.unit_size:
            group_weight += cut.weight
            units[-1] = replace(units[-1], inputs=units[-1].inputs + 1)
        else:
            group_weight = cut.weight
            units.append(Unit(index, 0, 1))
    return units


def unit_holds(unit: Unit, document: Document, inputs: list[Input], options: Options) -> bool:
    """A record belongs to the unit in which it begins."""
    if not unit.input <= document.input < unit.input + unit.inputs:
        return False
    starts = cut_of(inputs[document.input], options).starts
    return sum(start <= document.position for start in starts) - 1 == unit.slice


# ---- Rows ------------------------------------------------------------------------


def kept_tokens(document: Document, options: Options) -> int:
    """Returns how many tokens of a document the `--long` policy allows in rows."""
    n = len(document.tokens)
    if n <= options.seq_len or options.long == "split":
        return n
    if options.long == "truncate":
        return options.seq_len
    if options.long == "drop":
        return 0
    raise TooLong(document)


def greedy_pieces(document: Document, n_kept: int, seq_len: int) -> Iterator[Segment]:
    """The first piece fills a row; each later one repeats a token and adds up to seq_len - 1."""
    offset = 0
    while True:
        n = min(seq_len, n_kept - offset)
        yield Segment(document, offset, n)
        if offset + n == n_kept:
            return
        offset += n - 1


def fitted_rows(documents: list[Document], options: Options, choose: Choice) -> list[Row]:
    """Textbook fitting, longest segment first; rows are ordered by their earliest segment, segments
    by input order."""
    segments: list[Segment] = []
    for document in documents:
        n_kept = kept_tokens(document, options)
        if n_kept > 0:
            segments.extend(greedy_pieces(document, n_kept, options.seq_len))

    rows: list[Row] = []
    rooms: list[int] = []  # 0 in a row that may take no more segments
    for segment in sorted(segments, key=lambda s: -s.n_tokens):
        fitting = [(room, r) for r, room in enumerate(rooms) if room >= segment.n_tokens]
        if fitting:
            chosen = choose(fitting)
        else:
            chosen = len(rows)
            rows.append([])
            rooms.append(options.seq_len)
        rows[chosen].append(segment)
        rooms[chosen] -= segment.n_tokens
        if len(rows[chosen]) == options.max_documents:
            rooms[chosen] = 0
    for row in rows:
        row.sort(key=lambda s: s.order)
    return sorted(rows, key=lambda row: row[0].order)


def best_fit_rows(documents: list[Document], options: Options) -> list[Row]:
    """Chooses the row with the least sufficient room; of equal rows the one opened first."""
    return fitted_rows(documents, options, lambda fitting: min(fitting)[1])


def first_fit_rows(documents: list[Document], options: Options) -> list[Row]:
    """Chooses the row that was opened first."""
    return fitted_rows(documents, options, lambda fitting: fitting[0][1])


def concat_rows(documents: list[Document], options: Options) -> list[Row]:
    """Lays documents end to end and cuts them where a row ends. The piece after a cut repeats a
    token. A segment never begins in the last free token of a row unless it is the whole
    document."""
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
            free = 0 if len(rows[-1]) == options.max_documents else free - n
            n_done = offset + n
    return rows


STRATEGIES = {"best-fit": best_fit_rows, "first-fit": first_fit_rows, "concat": concat_rows}


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
    """Counts text tokens of a segment with the separator's id, without a repeated token."""
    document = segment.document
    first_text = 0 if options.bos is None else 1
    first_new = segment.offset + (1 if segment.offset > 0 else 0)
    end = min(segment.offset + segment.n_tokens, len(document.tokens) - 1)
    return document.tokens[max(first_new, first_text) : end].count(options.separator)


def make_figures(
    documents: list[Document], rows: list[Row], options: Options, part: str, is_masked: bool
) -> dict:
    """Returns every figure of the metadata, in its order. `documents` are those of the part."""
    segments = [segment for row in rows for segment in row]
    pieces: dict[Document, int] = {}
    for segment in segments:
        pieces[segment.document] = pieces.get(segment.document, 0) + 1
    fate = {d: left_out_as(d, options, part) for d in documents}
    too_short = [d for d in documents if fate[d] == "too_short"]
    held_out = [d for d in documents if fate[d] == "held_out"]
    untrained = [d for d in documents if fate[d] == "untrained"]
    own = [d for d in documents if fate[d] != "held_out"]
    kept = {d: kept_tokens(d, options) for d in documents if fate[d] is None}
    truncated = [d for d in kept if 0 < kept[d] < len(d.tokens)]
    dropped = [d for d in kept if kept[d] == 0]
    packed = sum(s.n_tokens for s in segments)
    targets = sum(s.n_targets for s in segments)
    figures = {
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
        "too_short": sum(len(d.tokens) for d in too_short),
        "held_out": sum(len(d.tokens) for d in held_out),
        "untrained": sum(len(d.tokens) for d in untrained),
        "masked": packed - len(segments) - targets,
        "targets": targets,
        "empty_documents": sum(1 for d in pieces if not d.text),
        "split_documents": sum(1 for n in pieces.values() if n > 1),
        "truncated_documents": len(truncated),
        "dropped_documents": len(dropped),
        "too_short_documents": len(too_short),
        "held_out_documents": len(held_out),
        "untrained_documents": len(untrained),
        "headless_documents": sum(1 for d in own if d.record.is_headless),
        "separator_collisions": sum(collisions(s, options) for s in segments),
        "invalid_utf8_documents": sum(1 for d in own if not d.was_utf8),
        **{f"bad_{kind}": 0 for kind in BAD_KINDS},  # no record that this packer reads is bad
        "longest_segment": max((s.n_tokens for s in segments), default=0),
        "attention_pairs": sum(s.n_tokens * (s.n_tokens + 1) // 2 for s in segments),
        "added_tokens": [],  # the tokenizers of bytes and of ids have none
        "added_tokens_other": 0,
        "document_length_histogram": histogram(len(d.tokens) for d in pieces),
        "segments_per_row_histogram": histogram(len(row) for row in rows),
    }
    return figures if is_masked else {k: v for k, v in figures.items() if k not in MASK_FIGURES}


# ---- Everything together ---------------------------------------------------------


def pack_unit(
    unit: Unit, documents: list[Document], options: Options, part: str, is_masked: bool
) -> PackedUnit:
    """Packs one shard from the unit's documents in the order of the inputs."""
    given = documents_of_part(documents, options, part)
    selected = [d for d in given if left_out_as(d, options, part) is None]
    selected.sort(key=lambda d: d.place)
    rows = STRATEGIES[options.strategy](selected, options)
    figures = make_figures(given, rows, options, part, is_masked)
    digests = records_digest(documents), positions_digest(unit, documents)
    return PackedUnit(unit, rows, figures, *digests)


def pack(inputs: list[Input], options: Options, part: str = "all") -> list[PackedUnit]:
    """Returns the expected output of `bindery pack`, unit by unit. With a holdout, `part` chooses
    one of the two datasets. Raises TooLong under `--long error`."""
    documents = read_documents(inputs, options)
    packed = []
    n_read = 0
    for unit in make_units(inputs, options):
        own = [d for d in documents if unit_holds(unit, d, inputs, options)]
        packed.append(pack_unit(unit, own, options, part, has_masks(inputs)))
        n_read += len(own)
        if n_read == options.limit:
            break
    return packed


def has_documents(inputs: list[Input], options: Options) -> bool:
    """Tells whether there is a document to train on; otherwise `bindery pack` refuses the
    corpus."""
    units = pack(inputs, options, options.parts[0])
    return any(unit.figures["documents"] > 0 for unit in units)
