import json
import os

import pytest

from adapters_store.base import base_digest
from adapters_store.errors import AdapterMissing


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8, "transformers_version": "1"}))
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    return tmp_path


def change(path, data):
    path.write_bytes(data)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def test_everything_that_changes_an_answer_changes_the_digest(model):
    seen = {base_digest(model)}
    change(model / "model.safetensors", b"Weights")
    seen.add(base_digest(model))
    change(model / "tokenizer.json", b"{ }")
    seen.add(base_digest(model))
    change(model / "chat_template.jinja", b"{{ messages[0] }}")
    seen.add(base_digest(model))
    change(model / "config.json", b'{"hidden_size": 9}')
    seen.add(base_digest(model))
    assert len(seen) == 5


def test_notes_on_how_the_files_came_to_be_do_not(model):
    before = base_digest(model)
    change(model / "config.json", json.dumps({"hidden_size": 8, "transformers_version": "2"}).encode())
    (model / "README.md").write_text("hello")
    assert base_digest(model) == before


def test_a_template_inside_the_tokenizer_config_is_the_same_template(model):
    before = base_digest(model)
    (model / "chat_template.jinja").unlink()
    assert base_digest(model) != before
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert base_digest(model) == before


def test_a_folder_without_a_model_is_named_as_such(tmp_path):
    with pytest.raises(AdapterMissing, match="safetensors"):
        base_digest(tmp_path)
