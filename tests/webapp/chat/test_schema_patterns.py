"""Which patterns of a schema are refused: exactly those that xgrammar would quote on standard error."""

import json
import subprocess
import sys

import pytest

from webapp.chat.schema_patterns import check_patterns

CANARY = "zanzibar"
KEPT = [
    f"^{CANARY}$", f"^[^a]{CANARY}", f"\\^{CANARY}\\$", f"[$^]{CANARY}", f"(?P<q>a)[a-z]+{CANARY}", "^", "$", "^$",
    f"(?:a|b){CANARY}{{2,3}}", f"[\\]$]{CANARY}",
]  # fmt: skip
QUOTED = [
    f"{CANARY}(?=x)", f"(?!a){CANARY}", f"a^{CANARY}", f"{CANARY}$b", f"^a|^{CANARY}", f"a$|{CANARY}$",
    f"({CANARY}$)", f"^^{CANARY}", f"{CANARY}$$", f"(?:^{CANARY})", f"\\[^{CANARY}", f"[a]^{CANARY}",
]  # fmt: skip
PLACES = [
    lambda pattern: {"type": "string", "pattern": pattern},
    lambda pattern: {"type": "object", "patternProperties": {pattern: {"type": "integer"}}},
    lambda pattern: {"type": "object", "propertyNames": {"pattern": pattern}},
    lambda pattern: {"type": "array", "prefixItems": [{"anyOf": [{"type": "string", "pattern": pattern}]}]},
    lambda pattern: {
        "type": "object",
        "properties": {"pattern": {"$ref": "#/$defs/it"}},
        "$defs": {"it": {"type": "string", "pattern": pattern}},
    },
]


@pytest.mark.parametrize("place", PLACES)
def test_what_would_be_kept_in_part_is_refused_wherever_it_is(place):
    for pattern in KEPT:
        check_patterns(place(pattern))
    check_patterns(place(f"[^{CANARY}"))
    for pattern in QUOTED:
        with pytest.raises(ValueError, match=r"lookahead|\^ only as its first") as refused:
            check_patterns(place(pattern))
        assert CANARY not in str(refused.value)


@pytest.mark.parametrize("last", ["", "\\"])
def test_classes_without_end_are_read_once(last):
    """Each of them to the end of the pattern would take an hour."""
    check_patterns({"pattern": "[" * 300_000 + last})


@pytest.mark.slow
def test_these_are_the_ones_that_xgrammar_quotes():
    pytest.importorskip("xgrammar")
    for patterns, quoted in ((KEPT, 0), (QUOTED, len(QUOTED))):
        schemas = json.dumps([place(pattern) for place in PLACES[:1] for pattern in patterns])
        code = "import json, sys, xgrammar\nfor schema in json.load(sys.stdin):\n"
        code += "    xgrammar.Grammar.from_json_schema(json.dumps(schema))"
        done = subprocess.run(
            [sys.executable, "-c", code], input=schemas, capture_output=True, text=True, check=True
        )
        lines = sum(CANARY in line for line in done.stderr.splitlines())
        assert lines >= quoted if quoted else lines == 0
