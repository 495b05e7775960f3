"""`bindery locate` tells where the corpus has a token, and finds every text.

The expected answers are computed from the corpus and from the rows as pyarrow reads them.
"""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import tempfile
import unicodedata
from pathlib import Path

import program
import pyarrow as pa
import pyarrow.parquet as pq
from corpus import text_of_size, text_sizes, without_delimiter_lines
from corpus_files import DELIMITER, FORMATS, MASKED_FORMATS, Format
from corruption_test import NO_PART_OF_IT, damage_anywhere
from forged_dataset import Forgery
from program import bindery, option_arguments, write_inputs
from reference_packer import (
    VOCAB_SIZE,
    Document,
    Input,
    Options,
    has_documents,
    kept_tokens,
    read_documents,
)
from reference_test_case import StoredRow, dataset_rows
from refusals import Refusals
from schemas import validate
from tokenizer_shapes import added, alphabet

SEED = 20240712
ROUNDS = 20 if program.LONG else 1
FIND_ROUNDS = 60 if program.LONG else 1
CORRUPTIONS = program.amount(brief=10, usual=20, long=300)
UNITS = {"parquet": "row", "arrow": "row", "megatron": "document", "tokens": "document",
         "llm.c": "token", "arrow-stream": "row", "text": "byte", "jsonl": "byte", "csv": "byte", "tsv": "byte",
         "json": "byte"}


def as_json_text(data: bytes) -> str:
    """Returns arbitrary bytes as JSON shows them."""
    return data.replace(b"\0", b"\xff").decode("utf-8", "replace")


def make_case(rng: random.Random, form: Format) -> tuple[Options, list[Input]]:
    """A corpus that still has documents after selection."""
    options = Options(
        seq_len=rng.choice([2, 31, 33, 64]),
        strategy=rng.choice(["best-fit", "first-fit", "concat"]),
        long=rng.choice(["split", "split", "truncate", "drop"]),
        bos=rng.choice([None, 7]) if form.separators_are == "append" else None,
        unit_size=rng.choice([150, 1000, 64 << 20]),
        shuffle=rng.choice([None, 3]),
        codec=rng.choice(["none", "zstd"]),
        delimiter=DELIMITER if form.is_delimited else None,
        vocab_size=VOCAB_SIZE if form.is_tokens else None,
        separators_are=form.separators_are,
    )
    sizes = [0, 1, 30, 31, 32, 33, *text_sizes(rng, options, 12)]
    texts = [text_of_size(rng, min(size, 300), broken=False) for size in sizes]
    if form.is_delimited:
        texts = [without_delimiter_lines(text) for text in texts]
    if form.begins_with_text:
        texts[0] = texts[0] or b"x"
    inputs = form.write(rng, texts)
    return (options, inputs) if has_documents(inputs, options) else make_case(rng, form)


@dataclasses.dataclass
class Packed:
    """A dataset and its corpus."""

    dataset: Path
    files: list[Path]
    inputs: list[Input]
    options: Options

    def documents(self) -> dict[tuple[int, int], Document]:
        found = read_documents(self.inputs, self.options)
        return {(document.input, document.position): document for document in found}

    def rows(self) -> list[tuple[int, str, int, StoredRow]]:
        """Yields every row with its shard's number and name, and its number in the shard."""
        return [
            (shard, name, number, row)
            for shard, (name, rows) in enumerate(dataset_rows(self.dataset).items())
            for number, row in enumerate(rows)
        ]


def shown(packed: Packed, document: Document, begin: int, end: int) -> bytes:
    """Returns the document's tokens as text. Ids of an unknown vocabulary are their own text; BOS
    and separator are shown as <ID>."""
    options = packed.options
    parts = []
    for i in range(begin, end):
        token = document.tokens[i]
        is_bos = i == 0 and options.bos is not None
        is_text = not is_bos and i < len(document.tokens) - 1
        if not is_text:
            parts.append(b"<%d>" % token)
        else:
            parts.append(bytes([token]) if options.vocab_size is None else b"%d " % token)
    return b"".join(parts)


def expected_record(packed: Packed, document: Document, token: int) -> dict:
    """Returns where the record lies in its file, and the token's place if the file is text."""
    item = packed.inputs[document.input]
    raw = document.record.raw
    place = dict.fromkeys(["begin", "end", "line", "token_byte", "token_line"])
    place["path"] = str(packed.files[document.input])
    place["size_bytes"] = len(raw)
    place["content"] = as_json_text(raw) if packed.options.vocab_size is None else ""
    if item.records is not None and not item.is_stream:
        return place
    begin = document.position
    place["begin"], place["end"] = begin, document.record.end or begin + len(raw)
    place["line"] = item.data[:begin].count(b"\n") + 1
    at = token - (packed.options.bos is not None)
    if not (item.is_jsonl or item.is_stream) and 0 <= at < len(document.text):
        place["token_byte"] = begin + at
        place["token_line"] = item.data[: begin + at].count(b"\n") + 1
    return place


def expected_location(
    packed: Packed, documents: dict, where: tuple[int, str, int, StoredRow], row: int, t: int
) -> dict:
    shard, name, shard_row, (ids, bounds, segments, mask) = where
    expected = {"shard": shard, "shard_name": name, "shard_row": shard_row, "row": row,
                "token": t, "id": ids[t], "record": None}
    if mask is not None:
        expected["trained"] = mask[t]
    if t >= bounds[-1]:
        return {**expected, "kind": "padding", "target": None, "segment": None,
                "document": None, "text": None}
    k = max(k for k, bound in enumerate(bounds[:-1]) if bound <= t)
    begin, end = bounds[k], bounds[k + 1]
    index, position, offset, length = segments[k]
    document = documents[index, position]
    token = offset + t - begin
    n_kept = kept_tokens(document, packed.options)
    is_bos = token == 0 and packed.options.bos is not None
    assert document.tokens[token] == ids[t] and len(document.tokens) == length
    return {
        **expected,
        "kind": "separator" if token == length - 1 else "bos" if is_bos else "text",
        "target": ids[t + 1] if t + 1 < end and (mask is None or mask[t + 1]) else None,
        "segment": {"index": k, "begin": begin, "end": end, "offset": offset,
                    "position": t - begin, "repeated": offset > 0 and t == begin},
        "document": {"input": index, "position": position, "length": length, "token": token},
        "text": {
            "before": as_json_text(shown(packed, document, 0, token)),
            "marked": as_json_text(shown(packed, document, token, token + 1)),
            "after": as_json_text(shown(packed, document, token + 1, n_kept)),
        },
        "record": expected_record(packed, document, token),
    }


class Locate(Refusals):
    def packed(self, inputs: list[Input], options: Options) -> Packed:
        place = Path(tempfile.mkdtemp(dir=self.folder))
        files = write_inputs(place / "corpus", inputs)
        dataset = self.pack(place / "dataset", files, *option_arguments(options))
        return Packed(dataset, files, inputs, options)

    def located(self, *arguments: object, status: int = 0) -> dict:
        result = bindery("locate", "--json", *arguments)
        self.assertEqual(result.status, status, result)
        found = json.loads(result.stdout)
        # Only some of thousands of similar entries, because the validator is slow.
        validate({**found, "locations": found["locations"][:50]}, "location")
        return found

    # ---- Tokens ----

    def check_every_token(self, packed: Packed) -> None:
        seq_len = packed.options.seq_len
        rows = packed.rows()
        documents = packed.documents()
        addresses = [f"{row}:{t}" for row in range(len(rows)) for t in range(seq_len)]
        entries = json.loads((packed.dataset / "manifest.json").read_bytes())["inputs"]
        found = self.located(packed.dataset, *addresses, "--context", "1M",
                             *[f"--corpus={path}" for path in packed.files])
        self.assertEqual((found["find"], found["limited"]), (None, False))
        is_masked = any(row[3] is not None for *_, row in rows)
        self.assertEqual(found["format"], "1.1" if is_masked else "1.0")
        locations = iter(found["locations"])
        for row, where in enumerate(rows):
            for t in range(seq_len):
                location = next(locations)
                expected = expected_location(packed, documents, where, row, t)
                if location["document"]:
                    told = location["document"]
                    entry = entries[told["input"]]
                    for key in ("name", "source", "format"):
                        self.assertEqual(told.pop(key), entry[key])
                    self.assertEqual(told.pop("position_unit"), UNITS[entry["format"]])
                self.assertEqual(location, expected)
        self.assertIsNone(next(locations, None))

    def test_every_token_is_where_the_corpus_has_it(self) -> None:
        for name, form in {**FORMATS, **MASKED_FORMATS}.items():
            for n in range(ROUNDS):
                seed = f"{SEED}-{name}-{n}"
                with self.subTest(seed=seed):
                    options, inputs = make_case(random.Random(seed), form)
                    self.check_every_token(self.packed(inputs, options))

    def test_a_byte_order_mark_is_no_part_of_the_first_line(self) -> None:
        data = b"\xef\xbb\xbf" + b'{"text": "one"}\n\n{"text": "two"}\n'
        inputs = [Input("a.jsonl", data)]
        packed = self.packed(inputs, Options(seq_len=8))
        found = self.located(packed.dataset, "0:0", "0:4", "--corpus", packed.files[0])
        records = [location["record"] for location in found["locations"]]
        self.assertEqual([(r["begin"], r["end"], r["line"]) for r in records],
                         [(3, 18, 1), (20, 35, 3)])
        self.assertEqual([data[r["begin"] : r["end"]].decode() for r in records],
                         [r["content"] for r in records])

    def test_replaced_bytes_have_no_place_in_the_file(self) -> None:
        packed = self.packed([Input("a.txt", b"ab\xffcd")],
                             Options(seq_len=16, invalid_utf8="replace"))
        kept = self.packed([Input("a.txt", b"ab\xffcd")],
                           Options(seq_len=16, invalid_utf8="keep"))
        for case, token, byte in [(packed, 6, None), (kept, 4, 4)]:
            found = self.located(case.dataset, f"0:{token}", "--corpus", case.files[0])
            self.assertEqual(found["locations"][0]["text"]["marked"], "d")
            self.assertEqual(found["locations"][0]["record"]["token_byte"], byte)

    def test_a_token_has_several_names(self) -> None:
        texts = [f"{i:03d}" * 9 for i in range(7)]
        inputs = [Input(f"{i}.txt", text.encode()) for i, text in enumerate(texts)]
        packed = self.packed(inputs, Options(seq_len=8, unit_size=60))
        rows = packed.rows()
        self.assertGreater(rows[-1][0], 1)
        for row, (shard, name, number, _) in enumerate(rows):
            stem = name.removesuffix(".arrow")
            names = [f"{row}:3", f"{shard}:{number}:3", f"{name}:{number}:3",
                     f"{stem}:{number}:3"]
            first, *others = self.located(packed.dataset, *names)["locations"]
            self.assertEqual([first] * 3, others)

    def test_text_is_cut_between_characters(self) -> None:
        packed = self.packed([Input("a.txt", ("äöü" * 30 + "x" + "äöü" * 30).encode())],
                             Options(seq_len=33))
        for context in range(12):
            found = self.located(packed.dataset, "--find", "x", "--context", context)
            text = found["locations"][0]["text"]
            n = context // 2
            self.assertEqual(text["marked"], "x")
            self.assertEqual(text["before"], ("äöü" * 30)[-n:] if n else "")
            self.assertEqual(text["after"], ("äöü" * 30)[:n])

    def test_people_see_it_in_80_columns_and_nothing_speaks_to_their_terminal(self) -> None:
        packed = self.packed([Input("a.txt", b"one\x1b[31mtwo\xc2\x9b three"), ],
                             Options(seq_len=33))
        result = self.succeeds("locate", packed.dataset, "0:0", "0:3", "0:32",
                               "--corpus", packed.files[0].parent)
        self.assertIn("\n[o]ne\\x1b[31mtwo\\xc2\\x9b three<256>\n", result.stdout)
        self.assertIn("\none[\\x1b][31mtwo", result.stdout)
        self.assertIn("padding, which belongs to no document", result.stdout)
        self.assertNotIn("\x1b", result.stdout)
        labelled = [line for line in result.stdout.split("\n") if "/" not in line]
        self.assertLessEqual(max(map(len, labelled)), 80)
        coloured = self.succeeds("locate", "--color=always", packed.dataset, "0:0")
        self.assertIn("\n\x1b[7mo\x1b[0mne", coloured.stdout)

    def masked(self, seq_len: int, *parts: tuple[str, bool]) -> Path:
        """Packs one document of parts that are trained or not."""
        record = {"segments": [{"text": text, "train": train} for text, train in parts]}
        path = self.folder / "masked.jsonl"
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")
        return self.pack(Path(tempfile.mkdtemp(dir=self.folder)) / "dataset", [path], "--long",
                         "split", "--seq-len", seq_len, "--segments-field", "segments")

    def test_people_see_what_is_trained(self) -> None:
        dataset = self.masked(33, ("Why? ", False), ("Sé!", True), (" Oh.", False))
        last = "  target    none: it is the last of its segment\n"
        masked = "  target    none: the token after it is masked\n"
        no, yes = "  trained   no: it is masked\n", "  trained   yes, it is a target\n"
        for token, lines, text in (
            (0, masked + "  trained   no: it is the first of its segment\n",
             "[W]hy? {+Sé!+} Oh.<256>"),
            (1, masked + no, "W[h]y? {+Sé!+} Oh.<256>"),
            (4, "  target    id 83\n" + no, "Why?[ ]{+Sé!+} Oh.<256>"),
            (5, "  target    id 195\n" + yes, "Why? {+[S]é!+} Oh.<256>"),
            (8, masked + yes, "Why? {+Sé[!]+} Oh.<256>"),
            (12, masked + no, "Why? {+Sé!+} Oh[.]<256>"),
            (13, last + no, "Why? {+Sé!+} Oh.[<256>]"),
        ):
            result = self.succeeds("locate", "--color=never", dataset, f"0:{token}")
            self.assertIn(lines, result.stdout)
            self.assertIn("  text      {+in such marks+} is trained, the rest is masked\n",
                          result.stdout)
            self.assertEqual(result.stdout.split("\n\n")[1], f"{text}\n")
        padding = self.succeeds("locate", dataset, "0:32").stdout
        self.assertNotIn("trained", padding)
        found = self.succeeds("locate", dataset, "--find", "? Sé").stdout
        self.assertIn("\nWhy[? {+Sé]!+} Oh.<256>\n", found)
        coloured = self.succeeds("locate", "--color=always", dataset, "0:5").stdout
        self.assertIn("  text      dimmed where it is masked: not trained\n", coloured)
        self.assertIn("\n\x1b[2mWhy? \x1b[22m\x1b[7mS\x1b[27mé!\x1b[2m Oh.<256>\x1b[22m\n",
                      coloured)

    def test_what_is_trained_is_seen_across_the_pieces_of_a_document(self) -> None:
        """The token that is repeated as context is trained in the piece before."""
        dataset = self.masked(4, ("abc", False), ("defgh", True), ("ij", False))
        rows = [row for rows in dataset_rows(dataset).values() for row in rows]
        self.assertTrue(any(segments[0][2] > 0 for _, _, segments, _ in rows))
        for number, (ids, bounds, _, _) in enumerate(rows):
            for t in range(bounds[-1]):
                shown = self.succeeds("locate", dataset, f"{number}:{t}").stdout
                text = shown.split("\n\n")[1].replace("[", "").replace("]", "")
                self.assertEqual(text, "abc{+defgh+}ij<256>\n", (number, t))

    def test_context_that_is_cut_keeps_what_is_trained(self) -> None:
        dataset = self.masked(256, ("ä" * 20, False), ("ö" * 20, True), ("ü" * 20, False))
        for token, expected in ((38, "ää[\\xc3]"), (44, "öö[\\xc3]")):
            shown = self.succeeds("locate", dataset, f"0:{token}", "--context", 4).stdout
            text = shown.split("\n\n")[1]
            self.assertIn(expected, text)
            self.assertEqual(text.count("{+"), 1)
            self.assertEqual(text.startswith("{+"), token == 44)

    def test_nothing_turns_text_around_or_hides_in_it(self) -> None:
        """For all characters. Python tells the properties that Unicode gives them."""
        turning = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
        marks = {0x061C, 0x200E, 0x200F}  # marks of direction
        hiding = {0x180E, 0x200B, *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC),
                  *range(0xE0000, 0xE0080)}
        codes = [*range(1, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200), 0x10FFFF]
        expected = "".join(
            "".join(f"\\x{byte:02x}" for byte in chr(code).encode())
            if (unicodedata.category(chr(code)) in ("Cc", "Zl", "Zp") and chr(code) not in "\n\t")
            or unicodedata.bidirectional(chr(code)) in turning or code in marks | hiding
            else chr(code)
            for code in codes
        )
        text = "".join(map(chr, codes)).encode()
        packed = self.packed([Input("a.txt", text)], Options(seq_len=1 << 19))
        shown = [self.succeeds("inspect", packed.dataset, "--row", 0).stdout,
                 self.succeeds("locate", packed.dataset, "0:0", "--context", "1M").stdout]
        self.assertIn(f"\n{expected}<256>\n", shown[0])
        self.assertIn(f"\n[{expected[:4]}]{expected[4:]}<256>\n", shown[1])
        for joiner in "\u200c\u200d\u00ad":  # words contain them
            self.assertIn(joiner, shown[0])

    def test_long_tokens_and_documents_take_little_memory(self) -> None:
        """Tokens of 64 KiB, so that a dataset of a few kB stands for 300 MB of text."""
        letters = ["a" * 2**i for i in range(17)]
        vocabulary = [*alphabet(), *letters[1:], "<|endoftext|>"]
        tokenizer = {
            "version": "1.0",
            "added_tokens": [added(len(vocabulary) - 1, "<|endoftext|>")],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(vocabulary[:-1])},
                      "merges": [f"{text} {text}" for text in letters[:-1]]},
        }
        (self.folder / "long.json").write_text(json.dumps(tokenizer))
        n, a, b = 5000, ord("a"), ord("b")
        ids = [len(vocabulary) - 2] * (n - 3) + [a, b, 256]
        pq.write_table(pa.table({"input_ids": [ids]}), self.folder / "ids.parquet")
        dataset = self.folder / "long"
        self.succeeds("pack", "-q", "-o", dataset, "--tokenizer", self.folder / "long.json",
                      "--seq-len", 2560, self.folder / "ids.parquet")
        for command in (["locate", dataset, "--find", "aba", "--json", "--threads", 1],
                        ["locate", dataset, "--find", "bb"],
                        ["locate", dataset, "1:2000", "--context", "1M"],
                        ["inspect", dataset, "--row", 0]):
            with open(os.devnull if "--row" in command else self.folder / "said", "wb") as said:
                process = subprocess.Popen([program.program(), *map(str, command)], stdout=said)
                _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            with self.subTest(command=command):
                self.assertEqual(process.returncode, 1 if "bb" in command else 0)
                self.assertLess(usage.ru_maxrss, 150 << 10)
            if "--json" in command:
                (place,) = json.loads((self.folder / "said").read_text())["locations"]
                self.assertEqual(place["document"]["token"], n - 3)
                self.assertEqual(place["text"]["marked"], "abaa")

    def test_a_text_is_found_wherever_a_long_document_has_it(self) -> None:
        """Around the places where the search forgets the text that it has passed."""
        rng, part = random.Random(SEED), 1 << 20
        for needle in (b"Z", b"ZYX" * 50):
            places = [0, 1, part - len(needle), part - 1, part, part + 1, 2 * part + 1 - len(needle),
                      2 * part, 2 * part + 1, rng.randrange(4 * part), 3 * part - len(needle)]
            texts = [b"".join([b"ZY" * (at // 2), b"y" * (at % 2), needle, b"z" * 9])
                     if len(needle) > 1 else b"y" * at + needle + b"z" * 9 for at in places]
            data = b"".join(json.dumps({"text": text.decode()}).encode() + b"\n" for text in texts)
            packed = self.packed([Input(f"{len(needle)}.jsonl", data)], Options(seq_len=1 << 16))
            found = self.located(packed.dataset, "--find", needle, "--limit", 100)["locations"]
            by_position = sorted(found, key=lambda place: place["document"]["position"])
            self.assertEqual([place["document"]["token"] for place in by_position],
                             [text.index(needle) for text in texts])
            for place in found:
                self.assertEqual(place["text"]["marked"], needle.decode())

    # ---- What is not a token ----

    def test_an_invalid_token_is_refused(self) -> None:
        packed = self.packed([Input("a.txt", b"abc" * 9)], Options(seq_len=8))
        n_rows = len(packed.rows())
        for address, mention in {
            "": "is not SHARD:ROW:TOKEN", "5": "is not SHARD:ROW:TOKEN",
            "0:0:0:0": "is not SHARD:ROW:TOKEN", "::": "no shard ''", ":0": "no row ''",
            "0:": "no token ''", f"{n_rows}:0": f"rows 0 to {n_rows - 1}",
            "0:8": "tokens 0 to 7", f"0:{n_rows}:0": "00000-00000.arrow has rows",
            "1:0:0": "no shard '1'", "00001-00000.arrow:0:0": "no shard",
            "0:0:8": "tokens 0 to 7", "x:0": "no row 'x'", "0:x": "no token 'x'",
            "0:0x": "no token '0x'", "0: 1": "no token ' 1'", "0:+1": r"no token '\+1'",
            "9223372036854775807:0": "no row", "9223372036854775808:0": "no row",
            "0:18446744073709551616": "no token", "99999999999999999999:0:0": "no shard",
            "99999999999999999999x:0": "no row", "0" * 40000 + ":0": "is not SHARD",
            "x" * 300 + ":0": "no row",
        }.items():
            with self.subTest(address=address[:40]):
                self.assert_refusal(bindery("locate", packed.dataset, address), mention)
        for address in ("-1:0", "0:-1", "0:0:-1", "-0:0"):
            result = bindery("locate", packed.dataset, "--", address)
            self.assert_refusal(result, "no (row|token) '-")
        self.located(packed.dataset, "00000:007")  # another spelling of the same numbers

    def test_a_shard_without_rows_has_no_tokens(self) -> None:
        data = b'{"text": "one"}\n' + b"\n" * 200 + b'{"text": "two"}\n'
        packed = self.packed([Input("a.jsonl", data)], Options(seq_len=8, unit_size=100))
        self.assert_refusal(bindery("locate", packed.dataset, "1:0:0"), "has no rows")
        self.assertEqual(self.located(packed.dataset, "1:0")["locations"][0]["shard"], 2)

    def test_either_tokens_or_a_text(self) -> None:
        packed = self.packed([Input("a.txt", b"abc")], Options(seq_len=8))
        for arguments in ([], ["0:0", "--find", "x"], ["--find", ""], ["--find=x", "--limit=0"],
                          ["0:0", "--context", "2M"]):
            with self.subTest(arguments):
                self.assert_refusal(bindery("locate", packed.dataset, *arguments))
        self.assert_refusal(bindery("locate", self.folder, "0:0"), "manifest.json")

    # ---- Texts ----

    def check_find(self, packed: Packed, needle: bytes, limit: int, threads: int) -> None:
        places = {}  # (input, position, token) -> (row of the dataset, token of the row)
        for row, (_, _, _, (_, bounds, segments, _)) in enumerate(packed.rows()):
            for begin, end, (index, position, offset, _) in zip(bounds, bounds[1:], segments):
                for t in range(begin + (offset > 0), end):
                    places[index, position, offset + t - begin] = row, t
        expected = []
        for key, document in packed.documents().items():
            has_bos = packed.options.bos is not None
            n_text = kept_tokens(document, packed.options) - has_bos
            at = document.text[: max(n_text, 0)].find(needle)
            if at >= 0 and (*key, 0) in places:
                expected.append(places[*key, at + has_bos])
        expected = sorted(expected)[:limit]
        found = self.located("--find", needle, packed.dataset, "--limit", limit,
                             "--threads", threads, status=0 if expected else 1)
        self.assertEqual([(place["row"], place["token"]) for place in found["locations"]],
                         expected)
        self.assertEqual(found["limited"], len(expected) == limit)
        for place in found["locations"]:
            self.assertEqual(place["text"]["marked"], as_json_text(needle))

    def test_text_is_found_in_every_document_that_contains_it(self) -> None:
        forms = [name for name, form in FORMATS.items() if not form.is_tokens]
        for n in range(FIND_ROUNDS):
            for name in forms:
                seed = f"{SEED}-find-{name}-{n}"
                rng = random.Random(seed)
                options, inputs = make_case(rng, FORMATS[name])
                packed = self.packed(inputs, options)
                texts = [d.text for d in packed.documents().values() if len(d.text) > 1]
                with self.subTest(seed=seed):
                    for size in (1, 2, 5, 40, 100):
                        text = rng.choice(texts)
                        begin = rng.randrange(max(1, len(text) - size))
                        needle = text[begin : begin + size]
                        if b"\0" in needle or needle.startswith(b"--"):
                            continue
                        self.check_find(packed, needle, rng.choice([1, 3, 10000]),
                                        rng.choice([1, 4]))
                    self.check_find(packed, b"not there", 10, 2)

    def test_people_are_told_that_there_is_more_or_nothing(self) -> None:
        inputs = [Input(f"{i}.txt", b"needle") for i in range(3)]
        packed = self.packed(inputs, Options(seq_len=8))
        two = self.succeeds("locate", packed.dataset, "--find=needle", "--limit=2").stdout
        self.assertIn("The first 2 documents", two)
        every = self.succeeds("locate", packed.dataset, "--find=needle").stdout
        self.assertEqual(every.count("[needle]"), 3)
        self.assertNotIn("--limit", every)
        nothing = bindery("locate", packed.dataset, "--find=Needle")
        self.assertEqual((nothing.status, nothing.stdout), (1, "No document contains it\n"))

    def test_separators_and_bos_are_no_text(self) -> None:
        inputs = [Input("a.txt", b"abc"), Input("b.txt", b"")]
        packed = self.packed(inputs, Options(seq_len=8, bos=ord("A"), separator=ord("\n")))
        for needle in ("A", "\n", "Aabc", "c\n"):
            self.located(packed.dataset, "--find", needle, status=1)
        found = self.located(packed.dataset, "--find", "abc")
        self.assertEqual(found["locations"][0]["text"],
                         {"before": "<65>", "marked": "abc", "after": "<10>"})

    def test_text_cannot_be_found_among_unknown_ids(self) -> None:
        options, inputs = make_case(random.Random(SEED), FORMATS["megatron, append"])
        packed = self.packed(inputs, options)
        self.assert_refusal(bindery("locate", packed.dataset, "--find", "<65>"), "--find")

    # ---- The corpus ----

    def test_a_file_that_is_not_the_one_is_refused(self) -> None:
        inputs = [Input(f"{i}.txt", b"text %d" % i) for i in range(3)]
        packed = self.packed(inputs, Options(seq_len=33))
        where = ["locate", packed.dataset, "0:0", "--corpus"]
        self.succeeds(*where, packed.files[0].parent / "*.txt")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        moved = shutil.copy(packed.files[0], elsewhere / "0.txt")
        self.succeeds(*where, elsewhere)
        self.assert_refusal(bindery(*where, packed.files[1]), "packed from '0.txt'")
        self.assert_refusal(bindery(*where, self.folder / "absent"), "absent")
        for content in (b"text 9", b"text 0\n", b""):
            Path(moved).write_bytes(content)
            self.assert_refusal(bindery(*where, moved), "is not what was packed")
        for content in (b"text 0\n", b""):  # among files of one name, the size decides
            Path(moved).write_bytes(content)
            self.succeeds(*where, moved, "--corpus", packed.files[0])

    def test_the_folder_of_the_corpus_may_have_moved(self) -> None:
        inputs = [Input("a.txt", b"text 0"), Input("b.txt", b"text 1")]
        files = write_inputs(self.folder / "old" / "corpus", inputs)
        dataset = self.pack(self.folder / "dataset", [files[0].parent], "--seq-len", "8")
        new = self.folder / "new name"
        shutil.copytree(files[0].parent, new)
        for given in (files[0].parent, files[0].parent.parent, new, new / "a.txt"):
            [place] = self.located(dataset, "0:0", "--corpus", given)["locations"]
            self.assertEqual(place["record"]["content"], "text 0")
            self.assertEqual(Path(place["record"]["path"]).name, "a.txt")

    def test_files_of_the_same_name_are_told_apart_by_their_order(self) -> None:
        files = []
        for i in range(3):
            (self.folder / str(i)).mkdir()
            files.append(self.folder / str(i) / "same.txt")
            files[-1].write_bytes(b"text %d" % i)
        dataset = self.pack(self.folder / "dataset", files, "--seq-len", "8")
        for i in range(3):
            [place] = self.located(dataset, f"{i}:5",
                                   *[f"--corpus={path}" for path in files])["locations"]
            self.assertEqual(place["record"]["path"], str(files[i]))
            self.assertEqual(place["record"]["content"], f"text {i}")

    def test_standard_input_is_gone(self) -> None:
        dataset = self.folder / "dataset"
        self.succeeds("pack", "-q", "-o", dataset, "-", input=b'{"text": "abc"}\n')
        self.located(dataset, "0:0")
        beside = self.write("a.jsonl", b'{"text": "abc"}\n')
        self.assert_refusal(bindery("locate", dataset, "0:0", "--corpus", beside),
                            "standard input")

    # ---- Damage ----

    def test_a_damaged_dataset_is_an_error_and_no_crash(self) -> None:
        options = Options(seq_len=33, unit_size=400)
        lines = [json.dumps({"text": "word " * (i % 30)}) + "\n" for i in range(60)]
        packed = self.packed([Input("a.jsonl", "".join(lines).encode())], options)
        names = sorted({path.name for path in packed.dataset.glob("*.*[nw]")} - {*NO_PART_OF_IT})
        for n in range(CORRUPTIONS):
            rng = random.Random(f"{SEED}-damage-{n}")
            name = rng.choice(names)
            path = packed.dataset / name
            whole = path.read_bytes()
            data = bytearray(whole)
            damage_anywhere(rng, data)
            path.write_bytes(data)
            with self.subTest(n=n, name=name):
                for arguments in (["0:0:0", "1:2:20"], ["--find", "word word"],
                                  ["0:5", "--corpus", packed.files[0]]):
                    result = bindery("locate", packed.dataset, *arguments, timeout=20)
                    self.assertIn(result.status, (0, 2), result)
            path.write_bytes(whole)

    def test_rows_that_lie_with_right_checksums_are_refused(self) -> None:
        packed = self.packed([Input("a.jsonl", b'{"text": "abc"}\n')], Options(seq_len=8))
        for n, (key, value, mention) in enumerate([
            ("input", 1, "S2"), ("input", 2**32 - 1, "S2"), ("position", 2**64 - 1, "S2"),
            ("position", 2**63 - 1, "S2"), ("position", 2**62, "no record begins at byte"),
            ("position", 5, "no record begins at byte 5"),
            ("position", 16, "no record begins at byte 16"),
        ]):
            forgery = Forgery.load(packed.dataset)
            forgery.shards[0].rows[0].documents[0][key] = value
            forgery.write(self.folder / str(n))
            result = bindery("locate", self.folder / str(n), "0:1", "--corpus", packed.files[0])
            self.assert_refusal(result, mention)
        forgery = Forgery.load(packed.dataset)
        forgery.shards[0].rows[0].documents[0]["length"] = 2**32 - 1
        forgery.write(self.folder / "length")
        [place] = self.located(self.folder / "length", "0:1", "--context=1M")["locations"]
        self.assertEqual(place["text"]["before"], "a")

    def test_which_shards_are_damaged_decides_not_which_are_read_first(self) -> None:
        inputs = [Input(f"{i}.txt", b"needle" * 9) for i in range(6)]
        packed = self.packed(inputs, Options(seq_len=8, unit_size=60))
        shard = packed.dataset / "00003-00000.arrow"
        shard.write_bytes(shard.read_bytes()[:1000])
        for threads in (1, 4):
            for limit, status in [(1, 0), (3, 0), (4, 2), (10, 2)]:
                result = bindery("locate", packed.dataset, "--find", "needleneedle", "--limit",
                                 limit, "--threads", threads)
                self.assertEqual(result.status, status, result)
                self.assertEqual(status == 2, "00003-00000.arrow" in result.stderr)


if __name__ == "__main__":
    program.main()
