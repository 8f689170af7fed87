"""An adapter's folder is read back exactly, or refused with the reason; nothing hostile gets further."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from adapters_store.errors import AdapterCorrupt, AdapterMissing
from adapters_store.manifest import MANIFEST_FILE, TENSORS_FILE, manifest_dump, manifest_load
from adapters_store.names import METHODS
from adapters_store.weights import adapter_read, adapter_unpack
from tests.adapters_store.adapters import tensors_of, write_adapter


def from_bytes(folder):
    return adapter_unpack((folder / MANIFEST_FILE).read_bytes(), (folder / TENSORS_FILE).read_bytes())


#: What is refused in a folder is refused in bytes that never were in one.
both_ways = pytest.mark.parametrize("read", [adapter_read, from_bytes])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("position", ["prefill", "all"])
def test_what_is_written_is_read(tmp_path, method, position):
    manifest = write_adapter(tmp_path, method, position)
    read, tensors = adapter_read(tmp_path, expected_digest=manifest.digest)
    assert read == manifest
    expected = tensors_of(method)
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)


def test_the_digest_is_what_it_computes_not_how_it_came_to_be(tmp_path):
    manifest = write_adapter(tmp_path)
    assert manifest.model_copy(update={"training": {"steps": 9}}).digest == manifest.digest
    for change in (
        {"position": "all"},
        {"scale": 1.0},
        {"rank": 3},
        {"method": "loreft"},
        {"convention": "x"},
    ):
        assert manifest.model_copy(update=change).digest != manifest.digest
    assert write_adapter(tmp_path / "other", base="c" * 64).digest != manifest.digest


def test_every_flipped_byte_of_the_tensors_is_noticed(tmp_path):
    write_adapter(tmp_path)
    path = tmp_path / TENSORS_FILE
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(AdapterCorrupt):
            adapter_read(tmp_path)


def test_bytes_are_read_as_files_are(tmp_path):
    manifest = write_adapter(tmp_path)
    data, tensors = (tmp_path / MANIFEST_FILE).read_bytes(), (tmp_path / TENSORS_FILE).read_bytes()
    read, arrays = adapter_unpack(data, tensors, expected_digest=manifest.digest)
    assert read == manifest
    expected = tensors_of("direft")
    assert arrays.keys() == expected.keys()
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    for other in (tensors[:-1], bytes([tensors[0] ^ 1]) + tensors[1:], tensors + b"0"):
        with pytest.raises(AdapterCorrupt, match="sha256"):
            adapter_unpack(data, other)
    with pytest.raises(AdapterCorrupt, match="digest"):
        adapter_unpack(data, tensors, expected_digest="0" * 64)


def test_a_truncated_or_missing_file_is_named(tmp_path):
    write_adapter(tmp_path)
    path = tmp_path / TENSORS_FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AdapterCorrupt, match=TENSORS_FILE):
        adapter_read(tmp_path)
    path.unlink()
    with pytest.raises(AdapterMissing, match=TENSORS_FILE):
        adapter_read(tmp_path)


def test_a_manifest_of_another_adapter_does_not_pass_for_this_one(tmp_path):
    write_adapter(tmp_path)
    with pytest.raises(AdapterCorrupt, match="digest"):
        adapter_read(tmp_path, expected_digest="0" * 64)


def _rewrite(folder, tensors, raw=None):
    """Replace the tensors and make the manifest's file entry agree, as an attacker would."""
    path = folder / TENSORS_FILE
    if raw is None:
        save_file(tensors, path)
    else:
        path.write_bytes(raw)
    from adapters_store.weights import _file_ref

    manifest = manifest_load((folder / MANIFEST_FILE).read_bytes())
    files = {**manifest.files, TENSORS_FILE: _file_ref(path.read_bytes())}
    (folder / MANIFEST_FILE).write_bytes(manifest_dump(manifest.model_copy(update={"files": files})))


@both_ways
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path, read, poison):
    write_adapter(tmp_path)
    tensors = tensors_of("direft")
    next(iter(tensors.values())).flat[3] = poison
    _rewrite(tmp_path, tensors)
    with pytest.raises(AdapterCorrupt, match="finite"):
        read(tmp_path)


@both_ways
def test_another_dtype_than_promised_is_refused(tmp_path, read):
    write_adapter(tmp_path)
    _rewrite(tmp_path, {name: array.astype(np.float16) for name, array in tensors_of("direft").items()})
    with pytest.raises(AdapterCorrupt, match="dtype"):
        read(tmp_path)


@both_ways
def test_a_hostile_header_is_refused(tmp_path, read):
    for raw in (b"", b"\xff" * 8, struct.pack("<Q", 1 << 62) + b"{}", struct.pack("<Q", 2) + b"{]"):
        write_adapter(tmp_path)
        _rewrite(tmp_path, None, raw=raw)
        with pytest.raises(AdapterCorrupt):
            read(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("base_model.model.model.layers.0.direft_A.bias"), "lacks"),
        (
            lambda t: t.update({"base_model.model.lm_head.weight": np.zeros((2, 2), np.float32)}),
            "cannot hold",
        ),
        (
            lambda t: t.update({"base_model.model.model.layers.0.direft_A.bias": np.zeros(3, np.float32)}),
            "ranks",
        ),
        (
            lambda t: t.update(
                {"base_model.model.model.layers.0.direft_A.bias": np.zeros((1, 2), np.float32)}
            ),
            "dim",
        ),
    ],
)
def test_sites_are_whole_and_of_their_method(tmp_path, change, reason):
    tensors = tensors_of("direft")
    change(tensors)
    with pytest.raises(AdapterCorrupt, match=reason):
        write_adapter(tmp_path, tensors=tensors)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"method": "dora"},
        {"position": "decode"},
        {"scale": 0},
        {"rank": 100_000},
        {"surprise": 1},
        {"tensors": {}},
        {"files": {}},
        {"files": {"../../etc/passwd": {"sha256": "0" * 64, "size": 1}}},
    ],
)
def test_a_manifest_that_could_be_read_two_ways_is_refused(tmp_path, change):
    write_adapter(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST_FILE).read_bytes()) | change
    with pytest.raises(AdapterCorrupt):
        manifest_load(json.dumps(manifest).encode())


def test_bytes_that_are_no_manifest_are_refused():
    for data in (b"", b"null", b"[]", b"\xff", b"{" * 100_000, b" " * 3_000_000):
        with pytest.raises(AdapterCorrupt):
            manifest_load(data)
