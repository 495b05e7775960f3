"""A test that compares datasets with the reference packer's results for the same corpus."""

import itertools
import json
from pathlib import Path

from dataset_checker import check_dataset, rebuild_documents, rebuild_masks
from program import ProgramTest, bindery, option_arguments
from reference_packer import (
    Input,
    Options,
    PackedUnit,
    cut_of,
    documents_of_part,
    has_documents,
    has_masks,
    kept_tokens,
    left_out_as,
    pack,
    read_documents,
)
from schemas import validate
from shard_checker import read_shard

StoredRow = tuple[list[int], list[int], list[tuple[int, ...]], list[bool] | None]


def stored_rows(shard: Path) -> list[StoredRow]:
    """Returns (ids, boundaries, documents, mask or None) of every row of a shard."""
    return [
        (
            row.ids.tolist(),
            row.boundaries,
            [tuple(d.values()) for d in row.documents],
            None if row.mask is None else row.mask.tolist(),
        )
        for row in read_shard(shard).rows()
    ]


def dataset_rows(dataset: Path) -> dict[str, list[StoredRow]]:
    """Returns the rows of every shard, by its name."""
    return {path.name: stored_rows(path) for path in sorted(dataset.glob("*.arrow"))}


def expected_rows(unit: PackedUnit, options: Options) -> list[StoredRow]:
    """Returns the reference packer's rows in the same form."""
    rows = []
    for row in unit.rows:
        ids = [token for segment in row for token in segment.tokens]
        ends = itertools.accumulate(segment.n_tokens for segment in row)
        documents = [
            (s.document.input, s.document.position, s.offset, len(s.document.tokens))
            for s in row
        ]
        padding = [options.padding_id] * (options.seq_len - len(ids))
        mask = None
        if row[0].document.trained is not None:
            mask = [bit for s in row for bit in s.trained] + [False] * len(padding)
        rows.append((ids + padding, [0, *ends], documents, mask))
    return rows


def part_of(dataset: Path, part: str) -> Path:
    """Returns the folder of a part's own dataset."""
    return dataset / "holdout" if part == "held-out" else dataset


class ReferenceTestCase(ProgramTest):
    def check_packed(
        self, dataset: Path, inputs: list[Input], texts: list[bytes], options: Options
    ) -> None:
        """Checks everything about a dataset: rules, rows, figures, and the documents themselves,
        which are compared with the texts that were written into the corpus."""
        self.assertEqual((dataset / "holdout").exists(), options.holdout > 0)
        for part in options.parts:
            folder = part_of(dataset, part)
            self.assertEqual(check_dataset(folder), [], part)
            for name in ("manifest", "plan"):
                validate(json.loads((folder / f"{name}.json").read_bytes()), name)
            self.check_rows(folder, inputs, options, part)
            self.check_documents(folder, inputs, texts, options, part)
            self.succeeds("verify", folder)
            self.succeeds("inspect", "--scan", folder)

    def packs(self, dataset: Path, given: list, inputs: list[Input], options: Options) -> bool:
        """Packs the inputs, or checks that the program refuses them because no document is left.
        Returns whether it packed them."""
        arguments = ["-q", "-o", dataset, *option_arguments(options), *given]
        if has_documents(inputs, options):
            self.succeeds("pack", *arguments)
            return True
        result = bindery("pack", *arguments)
        self.assertEqual(result.status, 2, result)
        self.assertIn("nothing to pack", result.stderr)
        self.assertEqual(list(dataset.rglob("manifest.json")), [])
        return False

    def check_rows(
        self, dataset: Path, inputs: list[Input], options: Options, part: str
    ) -> None:
        """Compares shards, rows, figures and digests with the reference packer's."""
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        self.assertEqual(manifest["packing"]["part"], part)
        self.check_inputs(manifest["inputs"], inputs, options)
        units = pack(inputs, options, part)
        shards = sorted(path.name for path in dataset.glob("*.arrow"))
        self.assertEqual(shards, [unit.unit.shard_name for unit in units])
        for unit in units:
            path = dataset / unit.unit.shard_name
            self.assertEqual(stored_rows(path), expected_rows(unit, options), path.name)
            metadata = read_shard(path).metadata
            self.assertEqual(metadata["figures"], unit.figures, path.name)
            self.assertEqual(metadata["unit"]["inputs"], unit.unit.inputs, path.name)
            self.assertEqual(metadata["records"], unit.records, path.name)

    def check_inputs(
        self, stated: list[dict], inputs: list[Input], options: Options
    ) -> None:
        """Checks the manifest's entries of the inputs."""
        for entry, item in zip(stated, inputs, strict=True):
            cut = cut_of(item, options)
            told = [Path(entry["name"]).name]
            told += [entry[key] for key in ("source", "compression", "weight", "extent")]
            known = [item.name, item.source, item.compression, cut.weight, cut.extent]
            self.assertEqual(told, known)

    def check_documents(
        self,
        dataset: Path,
        inputs: list[Input],
        texts: list[bytes],
        options: Options,
        part: str,
    ) -> None:
        """Rebuilds every document of the part from the rows, and its mask if it has one."""
        rebuilt = rebuild_documents(dataset)
        masks = rebuild_masks(dataset) if has_masks(inputs) else {}
        bos = [] if options.bos is None else [options.bos]
        documents = read_documents(inputs, options)
        own = set(documents_of_part(documents, options, part))
        for document, text in zip(documents, texts[: options.limit], strict=True):
            if document not in own or left_out_as(document, options, part):
                continue
            if options.invalid_utf8 == "replace":
                text = text.decode("utf-8", "replace").encode()
            n_kept = kept_tokens(document, options)
            found = rebuilt.pop((document.input, document.position), [])
            self.assertEqual(found, [*bos, *text, options.separator][:n_kept])
            if masks and n_kept > 0:
                mask = masks.pop((document.input, document.position))
                self.assertEqual(tuple(mask), document.trained[:n_kept])
        self.assertEqual((rebuilt, masks), ({}, {}))
