"""What the program writes, checked against the schemas of the project."""

import functools
import json

import jsonschema
from program import ROOT
from referencing import Registry
from referencing.jsonschema import DRAFT202012


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Of schemas/NAME-vN.schema.json, which must be a good schema itself. Others may be referred
    to by the names of their files."""
    schemas = {
        path.name: json.loads(path.read_text()) for path in (ROOT / "schemas").glob("*.schema.json")
    }
    [schema] = [of for file, of in schemas.items() if file.rsplit("-v", 1)[0] == name]
    jsonschema.Draft202012Validator.check_schema(schema)
    resources = [(file, DRAFT202012.create_resource(other)) for file, other in schemas.items()]
    return jsonschema.Draft202012Validator(schema, registry=Registry().with_resources(resources))


def validate(document: object, name: str) -> None:
    """Raises if the document is not as the schema NAME says."""
    validator(name).validate(document)
