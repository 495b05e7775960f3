"""Checks a dataset against every numbered invariant of `schemas/shard-v1.md`.

    python dataset_checker.py DATASET        # a line per violation; exit 1 if there is any

`shard_checker.py` checks rows and shards; this module checks manifest, plan and units. D4 (the
meaning of a tokenizer's file) is left to the tests of the tokenizers.
"""

import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash

from shard_checker import (
    ADDED_FIGURES,
    ADDED_METADATA,
    ADDED_PACKING,
    ADDED_UNIT,
    COUNTED_IDS,
    FIGURE_KEYS,
    MASKED_FORMAT,
    Piece,
    Violation,
    check_ledger,
    check_shard,
    n_slices,
    pieces_by_document,
    read_shard,
)

ADDED_READING = {  # keys that 1.0 did not have
    "separator": "append", "special_tokens": "token", "bad_records": "error", "max_bad": 0,
    "limit": None,
}


# ---- D: rules of a dataset -------------------------------------------------------


def manifest_checksum(text: bytes) -> str:
    """XXH3-128 over every byte before the comma that precedes the last member."""
    return xxhash.xxh3_128_hexdigest(text[: text.rindex(b",")])


def check_files(dataset: Path, manifest: dict) -> Iterator[Violation]:
    """D1 for the files that the manifest names."""
    for entry in [manifest["plan"], manifest["tokenizer"], *manifest["shards"]]:
        name = entry["file"]
        if not (dataset / name).is_file():
            yield Violation("D1", name, "there is no such file")
            continue
        data = (dataset / name).read_bytes()
        if "bytes" in entry and entry["bytes"] != len(data):
            yield Violation("D1", name, f"{len(data)} bytes, not {entry['bytes']}")
        if entry["checksum"] != xxhash.xxh3_128_hexdigest(data):
            yield Violation("D1", name, "its checksum is another")


# Formats in which the begins of records are known only by reading from the beginning.
STREAMS = ("csv", "json", "tsv")


def is_one_document(item: dict, reading: dict) -> bool:
    return item["format"] == "text" and reading["delimiter"] is None


@dataclass(frozen=True)
class Part:
    """Inputs that were packed together: all of them, or those of one joined dataset."""

    inputs: range
    reading: dict


def parts_of_plan(plan: dict) -> list[Part]:
    """Returns the parts in the order of the inputs, which they cover."""
    joined = plan.get("joined", [{"inputs": len(plan["inputs"]), "reading": plan["reading"]}])
    ends = list(itertools.accumulate(entry["inputs"] for entry in joined))
    if ends[-1] != len(plan["inputs"]):
        raise ValueError(f"{ends[-1]} inputs are joined, of {len(plan['inputs'])}")
    return [
        Part(range(end - entry["inputs"], end), {**ADDED_READING, **entry["reading"]})
        for end, entry in zip(ends, joined)
    ]


def own_reading(item: dict) -> dict:
    """Returns the options that an input of a plan has instead of the common ones, and the column
    in which a table says which tokens are trained."""
    return {key: item[key] for key in ("text_field", "delimiter", "mask_column") if key in item}


def shards_of(part: Part, manifest: dict) -> list[dict]:
    return [entry for entry in manifest["shards"] if entry["unit"]["input"] in part.inputs]


def cut_inputs(inputs: list[dict], plan: dict) -> list[dict]:
    """Returns the inputs of a plan or its manifest, all with the keys that say how they are cut."""
    return [
        cut_as_first_minor(inputs[index], {**part.reading, **own_reading(plan["inputs"][index])})
        for part in parts_of_plan(plan)
        for index in part.inputs
    ]


def cut_as_first_minor(item: dict, reading: dict) -> dict:
    """Returns how 1.0 cut an input: at multiples of the unit's size, unless it is one document."""
    size = item["bytes"]
    known = {"compression": "none", "weight": size, "extent": size, **item}
    if "starts" in item or "stride" in item:
        return known
    if is_one_document(item, reading):
        return {**known, "starts": [0]}
    return {**known, "stride": reading["unit_size"]}


def check_text_cut(item: dict, reading: dict) -> Iterator[str]:
    """D2 for text and JSONL, whose positions are bytes."""
    weight, extent, unit_size = item["weight"], item["extent"], reading["unit_size"]
    is_compressed = item["compression"] != "none" or item["format"] in STREAMS
    if weight != extent:
        yield f"weight is {weight} and extent {extent}"
    if not is_compressed and weight != item["bytes"]:
        yield f"weight is {weight} and size {item['bytes']}"
    if is_compressed and weight is not None and weight > unit_size:
        yield f"{weight} decompressed bytes were counted before they were read"
    if is_one_document(item, reading):
        if n_slices(item) not in (1, None):
            yield f"one document in {n_slices(item)} slices"
    elif item.get("stride") != unit_size:
        yield f"text is not cut at multiples of {unit_size}"


def check_cut(item: dict, reading: dict) -> Iterator[str]:
    """D2: the keys that say how an input is cut."""
    extent, unit_size = item["extent"], reading["unit_size"]
    if item["format"] in ("text", "jsonl", *STREAMS):
        yield from check_text_cut(item, reading)
    elif "stride" in item:
        if item["stride"] not in [max(unit_size // width, 1) for width in (1, 2, 4, 8)]:
            yield f"slices of {item['stride']} positions in units of {unit_size} bytes"
    if "starts" in item:
        starts = item["starts"]
        if starts[:1] != [0] or any(x >= y for x, y in zip(starts, starts[1:])):
            yield f"slices begin at {starts}"
        elif extent is not None and starts[-1] >= max(extent, 1):
            yield f"a slice begins at {starts[-1]} of {extent}"


def planned_units(part: Part, inputs: list[dict], stated: list[dict]) -> list[dict]:
    """Returns the units of a part: slices of the large inputs, groups of neighbouring small ones.
    If an input's extent is unknown, its stated number of slices is used."""
    units: list[dict] = []
    unit_size = part.reading["unit_size"]
    group_weight = None  # weight of the last unit if that is a group
    for index in part.inputs:
        item = inputs[index]
        weight = item["weight"]
        if weight is None or weight > unit_size:
            group_weight = None
            n = n_slices(item) or max(sum(unit["input"] == index for unit in stated), 1)
            for k in range(n):
                units.append({"input": index, "slice": k, "inputs": 1, "last": k == n - 1})
        elif (
            group_weight is not None
            and inputs[index - 1]["source"] == item["source"]
            and group_weight + weight <= unit_size
        ):
            group_weight += weight
            units[-1]["inputs"] += 1
        else:
            group_weight = weight
            units.append({"input": index, "slice": 0, "inputs": 1, "last": True})
    return units


def check_limit(
    manifest: dict, part: Part, n_planned: int, limit: int
) -> Iterator[str]:
    """D2: the shards contain that many documents, or all that exist. No figure of a held-out
    dataset counts the documents that it does not contain."""
    counts = [entry["figures"]["separators"] for entry in shards_of(part, manifest)]
    if sum(counts) > limit:
        yield f"{sum(counts)} documents where {limit} are the limit"
    if manifest["packing"]["part"] == "held-out":
        return
    if sum(counts) < limit and len(counts) < n_planned:
        yield f"{sum(counts)} documents of {limit}, and only {len(counts)} of {n_planned} units"
    if sum(counts[:-1]) >= limit:
        yield f"a unit after the one in which the limit of {limit} is reached"


def check_part(manifest: dict, inputs: list[dict], part: Part) -> Iterator[str]:
    """D2. If a limit ends the last unit, slices that were not read may have followed."""
    limit = part.reading["limit"]
    stated = [entry["unit"] for entry in shards_of(part, manifest)]
    planned = planned_units(part, inputs, stated)
    if limit is not None:
        yield from check_limit(manifest, part, len(planned), limit)
        planned = planned[: len(stated)]
        if planned and stated:
            planned[-1]["last"] = stated[-1]["last"]
    if stated != planned:
        yield f"units {stated} where {planned} were planned"


def check_units(manifest: dict, plan: dict) -> Iterator[str]:
    """D2: the parts' units, one part after another."""
    order = [entry["unit"]["input"] for entry in manifest["shards"]]
    if order != sorted(order):
        yield f"shards of the inputs {order}"
    for part in parts_of_plan(plan):
        yield from check_part(manifest, plan["inputs"], part)


def check_names(dataset: Path, manifest: dict, plan: dict) -> Iterator[Violation]:
    """D2."""
    named = [entry["file"] for entry in manifest["shards"]]
    for path in dataset.glob("*.arrow"):
        if path.name not in named:
            yield Violation("D2", path.name, "the manifest does not name it")
    for part in parts_of_plan(plan):
        for item in [plan["inputs"][index] for index in part.inputs]:
            for found in check_cut(item, {**part.reading, **own_reading(item)}):
                yield Violation("D2", "plan.json", f"{item['name']}: {found}")
    for found in check_units(manifest, plan):
        yield Violation("D2", "manifest.json", found)
    for entry in manifest["shards"]:
        name, unit = entry["file"], entry["unit"]
        if name != f"{unit['input']:05d}-{unit['slice']:05d}.arrow":
            yield Violation("D2", name, f"is the shard of {unit}")
    if plan["packing"] != manifest["packing"]:
        yield Violation("D2", "plan.json", "it plans another packing")
    stated_inputs = [{**item, "edges": None} for item in manifest["inputs"]]
    planned_inputs = [
        {**{key: item[key] for key in item if key not in own_reading(item)}, "edges": None}
        for item in plan["inputs"]
    ]
    if stated_inputs != planned_inputs:
        yield Violation("D2", "plan.json", "it plans other inputs")


def sum_histograms(histograms: list[list[int]]) -> list[int]:
    size = max(map(len, histograms), default=0)
    return [sum(h[i] for h in histograms if i < len(h)) for i in range(size)]


def sum_added(figures: list[dict]) -> dict:
    """Counts the lowest ids one by one, all others together."""
    counts: Counter = Counter()
    for shard in figures:
        counts.update(dict(shard["added_tokens"]))
    lowest = sorted(counts)[:COUNTED_IDS]
    other = counts.total() - sum(counts[i] for i in lowest)
    return {
        "added_tokens": [[i, counts[i]] for i in lowest],
        "added_tokens_other": other + sum(shard["added_tokens_other"] for shard in figures),
    }


def sum_figures(figures: list[dict], names: Iterable[str] = FIGURE_KEYS) -> dict:
    """D3: sums; the longest segment is a maximum. Without any, those of the names are 0."""
    total: dict = {}
    for name in figures[0] if figures else names:
        values = [shard[name] for shard in figures]
        if name.startswith("added_tokens"):
            total[name] = sum_added(figures)[name]
        elif name.endswith("_histogram"):
            total[name] = sum_histograms(values)
        elif name == "longest_segment":
            total[name] = max(values, default=0)
        else:
            total[name] = sum(values)
    return total


def sum_sources(inputs: list[dict], shards: list[dict]) -> list[dict]:
    """D3: the figures of each source's shards, in the order of the sources' first inputs."""
    sources = []
    names = shards[0]["figures"] if shards else FIGURE_KEYS
    for name in dict.fromkeys(item["source"] for item in inputs):
        own = [e["figures"] for e in shards if inputs[e["unit"]["input"]]["source"] == name]
        n_inputs = sum(item["source"] == name for item in inputs)
        sources.append({"name": name, "inputs": n_inputs, "figures": sum_figures(own, names)})
    return sources


def check_totals(manifest: dict) -> Iterator[Violation]:
    expected = sum_figures([entry["figures"] for entry in manifest["shards"]])
    for name, value in expected.items():
        if manifest["totals"].get(name) != value:
            stated = manifest["totals"].get(name)
            yield Violation("D3", "manifest.json", f"total {name} is {stated}, not {value}")
    for found in check_ledger(manifest["totals"], manifest["packing"]["seq_len"]):
        yield Violation("D3", "manifest.json", found)
    sources = sum_sources(manifest["inputs"], manifest["shards"])
    stated = [
        {**source, "figures": {**ADDED_FIGURES, **source["figures"]}}
        for source in manifest.get("sources", sources)
    ]
    if stated != sources:
        yield Violation("D3", "manifest.json", f"sources are {manifest['sources']}")


def complete_manifest(manifest: dict, plan: dict) -> dict:
    """Returns a manifest of any minor version in the form of today's."""
    return {
        **manifest,
        "packing": {**ADDED_PACKING, **manifest["packing"]},
        "inputs": cut_inputs(manifest["inputs"], plan),
        "shards": [
            {
                **ADDED_METADATA,
                **entry,
                "unit": {**ADDED_UNIT, **entry["unit"]},
                "figures": {**ADDED_FIGURES, **entry["figures"]},
            }
            for entry in manifest["shards"]
        ],
        "totals": {**ADDED_FIGURES, **manifest["totals"]},
    }


def complete_plan(plan: dict) -> dict:
    """Returns a plan of any minor version in the form of today's."""
    return {
        **plan,
        "packing": {**ADDED_PACKING, **plan["packing"]},
        "reading": {**ADDED_READING, **plan["reading"]},
        "inputs": cut_inputs(plan["inputs"], plan),
    }


def check_dataset(dataset: Path) -> list[Violation]:
    """Returns every violation that can be found; an empty list for a good dataset."""
    text = (dataset / "manifest.json").read_bytes()
    plan = complete_plan(json.loads((dataset / "plan.json").read_bytes()))
    manifest = complete_manifest(json.loads(text), plan)
    violations = []
    for name, stated in [("manifest.json", manifest), ("plan.json", plan)]:
        if (stated["format"] == MASKED_FORMAT) != stated["packing"].get("loss_mask", False):
            violations.append(Violation("S1", name, f"its format is {stated['format']}"))
    if manifest["checksum"] != manifest_checksum(text):
        violations.append(Violation("D1", "manifest.json", "its own checksum is another"))
    if manifest["format"] != "1.0" and "sources" not in manifest:
        violations.append(Violation("D3", "manifest.json", "it tells no sources"))
    violations += check_files(dataset, manifest)
    violations += check_names(dataset, manifest, plan)
    violations += check_totals(manifest)
    for entry in manifest["shards"]:
        try:
            shard = read_shard(dataset / entry["file"])
        except (pa.ArrowException, OSError, ValueError) as error:
            violations.append(Violation("S1", entry["file"], str(error)))
            continue
        violations += check_shard(shard, entry, manifest["packing"], manifest["inputs"])
    return violations


# ---- The documents again ---------------------------------------------------------


def pieces_of_documents(dataset: Path) -> dict[tuple[int, int], list[Piece]]:
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    pieces = [
        piece
        for entry in manifest["shards"]
        for row in read_shard(dataset / entry["file"]).rows()
        for piece in row.pieces()
    ]
    return pieces_by_document(pieces)


def rebuild_documents(dataset: Path) -> dict[tuple[int, int], list[int]]:
    """Returns (input, position) -> the tokens of the document that are in rows, each once."""
    documents: dict[tuple[int, int], list[int]] = {}
    for key, own in pieces_of_documents(dataset).items():
        tokens: list[int] = []
        for piece in own:
            if piece.offset != max(len(tokens) - 1, 0):
                raise ValueError(f"document {key} has no token {len(tokens)}")
            tokens[piece.offset :] = piece.tokens
        documents[key] = tokens
    return documents


def rebuild_masks(dataset: Path) -> dict[tuple[int, int], list[bool]]:
    """Returns (input, position) -> which of these tokens are trained. A piece's first token says
    nothing about the last one of the piece before."""
    masks: dict[tuple[int, int], list[bool]] = {}
    for key, own in pieces_of_documents(dataset).items():
        masks[key] = [False]
        for piece in own:
            masks[key] += piece.trained[1:]
    return masks


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DATASET")
    violations = check_dataset(Path(sys.argv[1]))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
