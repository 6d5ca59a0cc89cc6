# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas such as clients send: flat and nested objects, unions, recursion, bounds, patterns, formats."""


def _object(properties, required=None, **more):
    required = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False, **more}


_S, _I, _N, _B, _NULL = ({"type": kind} for kind in ("string", "integer", "number", "boolean", "null"))
_SHORT = {"type": "string", "maxLength": 20}
_NAME = {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"}


def _list(items, **more):
    return {"type": "array", "items": items, **more}


SCHEMAS = {
    "person": _object({"name": _SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 130}}),
    "calendar event": _object({"name": _SHORT, "date": {"type": "string", "format": "date"}, "participants": _list(_SHORT, maxItems=4)}),
    "math steps": _object({"steps": _list(_object({"explanation": _SHORT, "output": _SHORT}), minItems=1, maxItems=3), "final_answer": _SHORT}),
    "classification": _object({"label": {"enum": ["positive", "negative", "neutral"]}, "score": {"type": "number", "minimum": 0, "maximum": 1}}),
    "enum alone": {"type": "string", "enum": ["red", "green", "blue"]},
    "enum of prefixes": {"enum": ["a", "ab", "abc", "abcd", ""]},
    "enum of everything": {"enum": [1, "1", None, True, [1, 2], {"a": {"b": []}}, 1.5, "ü\n\"", -3]},
    "const": _object({"version": {"const": 2}, "kind": {"const": "a \"b\"\\c"}}),
    "boolean": _B,
    "null": _NULL,
    "integer": {"type": "integer", "minimum": -50, "maximum": 50},
    "large integer": {"type": "integer", "minimum": 1000000, "exclusiveMaximum": 1000100},
    "negative": {"type": "integer", "exclusiveMaximum": 0, "minimum": -1000},
    "percentage": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100},
    "temperature": {"type": "number", "minimum": -273.15, "maximum": 1e3},
    "fraction": {"type": "number", "minimum": 0.001, "maximum": 0.002},
    "even": _list({"type": "integer", "multipleOf": 2, "minimum": 0, "maximum": 40}, minItems=2, maxItems=4),
    "steps of 25": {"type": "integer", "multipleOf": 25, "minimum": 100, "maximum": 1000},
    "string lengths": _object({"a": {"type": "string", "minLength": 3, "maxLength": 3}, "b": {"type": "string", "minLength": 10, "maxLength": 30}, "c": {"type": "string", "maxLength": 0}}),
    "phone": {"type": "string", "pattern": "^\\+[1-9][0-9]{6,14}$"},
    "plate": {"type": "string", "pattern": "^[A-Z]{1,3}-[A-Z]{1,2} [1-9][0-9]{0,3}$"},
    "version": {"type": "string", "pattern": "^(0|[1-9]\\d*)\\.(0|[1-9]\\d*)\\.(0|[1-9]\\d*)$", "maxLength": 20},
    "colour": {"type": "string", "pattern": "^#(?:[0-9a-fA-F]{3}){1,2}$"},
    "somewhere a digit": {"type": "string", "pattern": "[0-9]", "maxLength": 30},
    "slug": {"type": "string", "pattern": "^[a-z0-9]+(?:-[a-z0-9]+)*$", "maxLength": 24},
    "time stamps": _object({"at": {"type": "string", "format": "date-time"}, "time": {"type": "string", "format": "time"}}),
    "ids": _object({"id": {"type": "string", "format": "uuid"}, "mail": {"type": "string", "format": "email"}}),
    "network": _object({"v4": {"type": "string", "format": "ipv4"}, "v6": {"type": "string", "format": "ipv6"}, "host": {"type": "string", "format": "hostname"}}),
    "durations": _list({"type": "string", "format": "duration"}, minItems=1, maxItems=2),
    "optional": _object({"id": _I, "nickname": _SHORT, "active": _B, "score": {"type": ["number", "null"]}}, required=["id"]),
    "all optional": _object({"a": _B, "b": _B, "c": _B, "d": _B}, required=[]),
    "at least one": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 9, "minimum": 0}, "minProperties": 1},
    "map": {"type": "object", "additionalProperties": _B},
    "map by pattern": {"type": "object", "patternProperties": {"^[a-z]{1,5}$": _B}, "additionalProperties": False},
    "map and names": {"type": "object", "properties": {"total": _I}, "required": ["total"], "additionalProperties": {"type": "string", "maxLength": 5}},
    "names that need care": _object({"a\"b": _B, "c\\d": _B, "é €": _B, "\n": _B, "": _B}),
    "empty object": _object({}),
    "empty array": _list(_S, maxItems=0),
    "matrix": _list(_list({"type": "integer", "minimum": 0, "maximum": 9}, minItems=3, maxItems=3), minItems=3, maxItems=3),
    "tuple": {"type": "array", "prefixItems": [_NAME, {"type": "integer", "minimum": 0, "maximum": 99}, _B], "items": False, "minItems": 3},
    "tuple and more": {"type": "array", "prefixItems": [_B], "items": {"type": "integer", "minimum": 1, "maximum": 3}, "minItems": 2, "maxItems": 4},
    "nullable": _object({"middle_name": {"anyOf": [_NAME, _NULL]}, "first_name": _NAME}),
    "union": _list({"anyOf": [_object({"type": {"const": "circle"}, "radius": {"type": "number", "minimum": 0, "maximum": 10}}),
                              _object({"type": {"const": "square"}, "side": {"type": "integer", "minimum": 1, "maximum": 5}}),
                              _NULL]}, minItems=1, maxItems=3),
    "one of": {"oneOf": [_object({"error": _SHORT}), _object({"result": {"type": "integer", "minimum": 0, "maximum": 5}})]},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
                         {"properties": {"a": {"maximum": 3}, "b": _B}, "required": ["b"]}]},
    "either is required": _object({"a": _B, "b": _B}, required=[], anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "types without a word": {"properties": {"x": {"minimum": 3, "maximum": 5}, "y": {"items": _B, "maxItems": 2}}, "required": ["x", "y"]},
    "linked list": {"$defs": {"node": _object({"value": {"type": "integer", "minimum": 0, "maximum": 9}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, _NULL]}})}, "$ref": "#/$defs/node"},
    "tree": {"type": "object", "properties": {"name": _NAME, "children": _list({"$ref": "#"}, maxItems=2)}, "required": ["name", "children"], "additionalProperties": False},
    "expression": {"$defs": {"e": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, _object({"op": {"enum": ["+", "-"]}, "left": {"$ref": "#/$defs/e"}, "right": {"$ref": "#/$defs/e"}})]}}, "$ref": "#/$defs/e"},
    "shared": {"$defs": {"point": _object({"x": {"type": "integer", "minimum": 0, "maximum": 9}, "y": {"type": "integer", "minimum": 0, "maximum": 9}})},
               **_object({"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point", "description": "the end"}})},
    "user interface": {"$defs": {"ui": _object({"type": {"type": "string", "enum": ["div", "button", "field"]}, "label": {"type": "string", "maxLength": 8},
                                                "children": _list({"$ref": "#/$defs/ui"}, maxItems=2)})}, "$ref": "#/$defs/ui"},
    "deep": _object({"a": _object({"b": _object({"c": _object({"d": _object({"e": _object({"f": _list(_B, minItems=1, maxItems=2)})})})})})}),
    "invoice": _object({"number": {"type": "string", "pattern": "^INV-\\d{4}$"}, "currency": {"enum": ["EUR", "USD", "CHF"]},
                        "lines": _list(_object({"item": _NAME, "count": {"type": "integer", "minimum": 1, "maximum": 12}, "price": {"type": "number", "minimum": 0, "maximum": 1000}}), minItems=1, maxItems=2),
                        "paid": _B, "due": {"type": "string", "format": "date"}}),
    "recipe": _object({"title": _SHORT, "servings": {"type": "integer", "minimum": 1, "maximum": 8}, "ingredients": _list(_object({"name": _NAME, "unit": {"enum": ["g", "ml", None]}, "amount": {"type": "number", "minimum": 0, "maximum": 500}}), minItems=1, maxItems=3), "vegan": _B}),
    "annotated": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "description": "d", "type": "object", "examples": [{}],
                  "properties": {"a": {"type": "integer", "title": "A", "default": 3, "minimum": 1, "maximum": 5, "x-unit": "m"}}, "required": ["a"], "additionalProperties": False},
    "unicode": _object({"größe": {"enum": ["klein", "groß", "日本語", "😀"]}, "κλειδί": {"type": "string", "maxLength": 6}}),
    "any object": {"type": "object"},
    "any": {},
    "long text": {"type": "string", "minLength": 200, "maxLength": 260},
}
