import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters_store.errors import BadName
from adapters_store.names import POSITIONS, ServingName, parse_name, qualified_name, serving_name

HEX64 = st.text("0123456789abcdef", min_size=64, max_size=64)
HEX32 = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(HEX64, st.sampled_from(POSITIONS), st.none() | HEX32)
def test_a_name_parses_back_to_what_made_it(digest, position, tenant):
    name = serving_name(digest, position)
    text = name if tenant is None else qualified_name(tenant, name)
    assert parse_name(text) == ServingName(tenant, digest, position)
    assert str(parse_name(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ap-" + "0" * 63,
        "ap-" + "0" * 65,
        "ap-" + "A" * 64,
        "ax-" + "0" * 64,
        "ap-" + "0" * 64 + "\n",
        "../ap-" + "0" * 64,
        "0" * 31 + "/ap-" + "0" * 64,
        "0" * 32 + "/../ap-" + "0" * 64,
        "smollm2-135m-instruct",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(BadName):
        parse_name(text)
