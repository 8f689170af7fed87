"""Entering base models in the catalogue: what is checked, and what is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from safetensors.numpy import save_file

from adapters_store.architectures import PROVEN
from tests.webapp.hub_double import COMMIT, hub_double
from webapp.adapters import model_folder, sources
from webapp.adapters.base_models import base_model_add
from webapp.adapters.hub import hub_download
from webapp.adapters.models import BaseModel
from webapp.config.faults import BadRequest, Unavailable
from webapp.jobs.models import Job

pytestmark = pytest.mark.django_db
CARD = "---\nlicense: apache-2.0\nlanguage:\n- en\n- de\n---\n# A model\n"


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "models"
    place.mkdir()
    changed = sources.settings().model_copy(update={"models_dir": place})
    monkeypatch.setattr(sources, "settings", lambda: changed)
    return place


def folder(models: Path, name: str = "tiny-chat", *, card: str | None = CARD, **config: Any) -> Path:
    made = models / name
    made.mkdir()
    facts = {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 2048,
        "num_hidden_layers": 4,
    } | config
    (made / "config.json").write_text(json.dumps(facts))
    (made / "tokenizer.json").write_text("{}")
    (made / "chat_template.jinja").write_text("{{ messages }}")
    save_file({"w": np.zeros((4, 8), np.float32)}, made / "model.safetensors")
    if card is not None:
        (made / "README.md").write_text(card)
    return made


def test_a_local_folder(models: Path) -> None:
    base, new = base_model_add(source=str(folder(models)))
    assert new
    assert (base.name, base.license, base.languages, base.context_length) == (
        "tiny-chat",
        "apache-2.0",
        ["en", "de"],
        2048,
    )
    assert base.is_default, "the first is the default"
    again, new = base_model_add(source=str(models / "tiny-chat"))
    assert (again.id, new) == (base.id, False)


@pytest.mark.parametrize("architecture", sorted(PROVEN))
def test_every_proven_architecture_is_taken(models: Path, architecture: str) -> None:
    made = folder(models, architectures=[architecture])
    found = model_folder.model_folder_read(made)
    assert (found.architecture, found.layers) == (architecture, 4)


def test_a_folder_elsewhere_is_linked(models: Path, tmp_path: Path) -> None:
    made = folder(tmp_path, "elsewhere")
    base_model_add(source=str(made))
    assert (models / "elsewhere").resolve() == made


def test_the_default_moves(models: Path) -> None:
    base_model_add(source=str(folder(models, "one")))
    base_model_add(source=str(folder(models, "two")), make_default=True)
    assert BaseModel.objects.get(is_default=True).name == "two"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "unsupported_architecture"),
        ({"architectures": None}, "unsupported_architecture"),
        ({"max_position_embeddings": None}, "bad_model_folder"),
        ({"num_hidden_layers": None}, "bad_model_folder"),
        ({"card": None}, "licence_unknown"),
        ({"card": "---\nlicense: other\n---\n"}, "licence_unknown"),
        ({"card": "---\nlicense: cc-by-nc-4.0\n---\n"}, "licence_non_commercial"),
        ({"card": "---\n: [\n---\n"}, "licence_unknown"),
    ],
)
def test_refused(models: Path, change: dict[str, Any], code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        base_model_add(source=str(folder(models, **change)))
    assert refused.value.code == code
    assert not BaseModel.objects.exists()


def test_a_model_without_chat_template(models: Path) -> None:
    made = folder(models)
    (made / "chat_template.jinja").unlink()
    with pytest.raises(BadRequest, match="instruct variant"):
        base_model_add(source=str(made))


def test_memory(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "_machine_bytes", lambda: 10**6)
    made = folder(models)
    with pytest.raises(BadRequest, match="--elsewhere"):
        base_model_add(source=str(made))
    assert base_model_add(source=str(made), elsewhere=True)


def test_a_licence_said_by_hand(models: Path) -> None:
    base, _ = base_model_add(source=str(folder(models, card=None)), licence="MIT")
    assert base.license == "mit"


@pytest.mark.parametrize("card", [None, CARD, "---\nlicense: cc-by-nc-4.0\n---\n"])
def test_what_was_said_once_holds_for_this_very_model(models: Path, card: str | None) -> None:
    made = folder(models, card=card)
    base_model_add(source=str(made), licence="acme-terms", label="Ours")
    base, new = base_model_add(source=str(made), make_default=True)  # as every start of the stack does
    assert not new
    assert (base.license, base.label, base.attribution) == ("acme-terms", "Ours", "tiny-chat, acme-terms.")
    base, _ = base_model_add(source=str(made), licence="mit", label="")
    assert (base.license, base.label) == ("mit", "")


def test_a_licence_is_not_kept_for_other_weights(models: Path) -> None:
    made = folder(models, card=None)
    base_model_add(source=str(made), licence="mit")
    save_file({"w": np.ones((4, 8), np.float32)}, made / "model.safetensors")
    with pytest.raises(BadRequest, match=r'ARGS="--license apache-2\.0"') as refused:
        base_model_add(source=str(made))
    assert refused.value.code == "licence_unknown"


@pytest.mark.parametrize(
    ("licence", "prefix", "words"),
    [
        ("llama3.2", "Llama", "Built with Llama"),
        ("llama3", "Llama-3", "Built with Llama"),
        ("gemma", "", "Gemma Terms"),
    ],
)
def test_what_licences_ask_for(models: Path, licence: str, prefix: str, words: str) -> None:
    base, _ = base_model_add(source=str(folder(models, card=f"---\nlicense: {licence}\n---\n")))
    assert base.name_prefix == prefix
    assert words in base.attribution


def test_other_weights_under_a_name_that_has_adapters(models: Path) -> None:
    from tests.webapp.company import company_create, jsonl, talks
    from webapp.datasets.files import file_create
    from webapp.jobs.create import job_create

    base, _ = base_model_add(source=str(folder(models)))
    tenant = company_create("A").tenant
    file = file_create(tenant=tenant, filename="a", stream=jsonl(talks()))
    job_create(tenant=tenant, base=base, training_file=file)
    save_file({"w": np.ones((4, 8), np.float32)}, models / "tiny-chat" / "model.safetensors")
    with pytest.raises(BadRequest) as refused:
        base_model_add(source=str(models / "tiny-chat"))
    assert refused.value.code == "base_model_changed"
    Job.objects.all().delete()
    assert base_model_add(source=str(models / "tiny-chat"))[0].digest != base.digest


def test_the_command(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("base_model_add", str(folder(models)))
    assert json.loads(capsys.readouterr().out)["name"] == "tiny-chat"
    with pytest.raises(CommandError, match="neither a folder nor a hub id"):
        call_command("base_model_add", "what is this")


def test_the_hub_away(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CommandError, match="HF_HUB_OFFLINE"):
        call_command("base_model_add", "HuggingFaceTB/SmolLM2-360M-Instruct")


def test_the_hub_out_of_reach(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens: refused
    with pytest.raises(CommandError, match="give its folder"):
        call_command("base_model_add", "HuggingFaceTB/SmolLM2-360M-Instruct")
    with pytest.raises(Unavailable) as away:
        hub_download("acme/tiny", commit="main", folder=tmp_path / "tiny", files=["*.json"])
    assert away.value.code == "hub_unavailable"
    assert not BaseModel.objects.exists()


def test_a_gated_model(models: Path) -> None:
    with hub_double("acme/Tiny-Chat", files={"config.json": b"{}"}, gated=True) as hub:
        with pytest.raises(
            BadRequest, match=r"Accept its licence at https://huggingface\.co/acme/Tiny-Chat"
        ) as gated:
            base_model_add(source="acme/Tiny-Chat")
        assert gated.value.code == "model_gated"
        assert hub.fetched == {"config.json"}
    assert not BaseModel.objects.exists()


def test_a_model_that_is_too_large_is_not_downloaded(models: Path, tmp_path: Path) -> None:
    made = folder(tmp_path, "large")
    weights = (made / "model.safetensors").read_bytes()
    files = {path.name: path.read_bytes() for path in made.iterdir() if path.name != "model.safetensors"}
    sizes = {"model-00001-of-00002.safetensors": 10**13, "model-00002-of-00002.safetensors": 10**13}
    with hub_double("acme/Tiny-Chat", files=files, sizes=sizes) as hub:
        with pytest.raises(BadRequest, match="takes at least 40003 GB of memory") as refused:
            base_model_add(source="acme/Tiny-Chat")
        assert refused.value.code == "not_enough_memory"
        assert hub.fetched == set(files)
    files["model.safetensors"] = weights
    with hub_double("acme/Tinier-Chat", files=files):
        base, new = base_model_add(source="acme/Tinier-Chat")
    assert new
    assert (base.name, base.source, base.revision) == ("tinier-chat", "acme/Tinier-Chat", COMMIT)
    assert (models / "tinier-chat" / "model.safetensors").read_bytes() == weights


def test_the_demo_model_says_what_it_is(models: Path) -> None:
    base, _ = base_model_add(source=str(folder(models, "smollm2-135m-instruct", card=None)))
    assert "Demo model" in base.label
    assert base.license == "apache-2.0"


class Hub:
    """Repositories by name, each a folder a commit; the newest is the last. `fetched`: what was downloaded."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.commits: dict[str, list[str]] = {}
        self.fetched: list[str] = []

    def push(self, repo: str, commit: str, *, weight: float = 0.0, **facts: Any) -> None:
        (self.place / repo).mkdir(parents=True, exist_ok=True)
        made = folder(self.place / repo, commit, **facts)
        save_file({"w": np.full((4, 8), weight, np.float32)}, made / "model.safetensors")
        self.commits.setdefault(repo, []).append(commit)

    def commit(self, repo: str, *, revision: str | None) -> str:
        return revision or self.commits[repo][-1]

    def download(self, repo: str, *, commit: str, folder: Path, files: list[str]) -> None:
        for pattern in files:
            for path in (self.place / repo / commit).glob(pattern):
                (folder / path.name).write_bytes(path.read_bytes())
                self.fetched.append(path.name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub(tmp_path / "hub")
    monkeypatch.setattr(sources, "hub_commit", made.commit)
    monkeypatch.setattr(sources, "hub_size", lambda repo, **_: 0)
    monkeypatch.setattr(sources, "hub_download", made.download)
    return made


def bytes_of(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


def test_from_the_hub(models: Path, hub: Hub) -> None:
    hub.push("acme/Tiny-Chat", "c1")
    base, new = base_model_add(source="acme/Tiny-Chat")
    assert new
    assert (base.name, base.source, base.revision) == ("tiny-chat", "acme/Tiny-Chat", "c1")
    assert (models / "tiny-chat" / "model.safetensors").exists()
    hub.fetched.clear()
    hub.push("acme/Tiny-Chat", "c2", weight=1.0)
    again, new = base_model_add(source="acme/Tiny-Chat", make_default=True)
    assert (again.id, again.revision, again.digest, new) == (base.id, "c1", base.digest, False)
    assert base_model_add(source=str(models / "tiny-chat"))[0].source == "acme/Tiny-Chat"
    assert hub.fetched == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"source": "acme/Tiny-Chat", "revision": "c2"}, "base_model_changed"),
        ({"source": "umbrella/Tiny-Chat"}, "base_model_exists"),
    ],
)
def test_what_is_served_is_never_written_over(
    models: Path, hub: Hub, said: dict[str, str], code: str
) -> None:
    hub.push("acme/Tiny-Chat", "c1")
    base_model_add(source="acme/Tiny-Chat", revision="c1")
    hub.push("acme/Tiny-Chat", "c2", weight=1.0)
    hub.push("umbrella/Tiny-Chat", "u1", weight=2.0)
    before = bytes_of(models / "tiny-chat")
    with pytest.raises(BadRequest) as refused:
        base_model_add(**said)
    assert refused.value.code == code
    assert bytes_of(models / "tiny-chat") == before
    assert BaseModel.objects.get().revision == "c1"


def test_a_folder_that_the_catalogue_does_not_know(models: Path, hub: Hub) -> None:
    made = folder(models)
    before = bytes_of(made)
    hub.push("acme/Tiny-Chat", "c1", weight=1.0)
    with pytest.raises(BadRequest) as refused:
        base_model_add(source="acme/Tiny-Chat")
    assert refused.value.code == "base_model_exists"
    assert bytes_of(made) == before


@pytest.mark.parametrize("facts", [{"architectures": ["MambaForCausalLM"]}, {"card": None}])
def test_no_weights_of_what_will_be_refused(models: Path, hub: Hub, facts: dict[str, Any]) -> None:
    hub.push("acme/Tiny-Chat", "c1", **facts)
    with pytest.raises(BadRequest):
        base_model_add(source="acme/Tiny-Chat")
    assert "config.json" in hub.fetched
    assert "model.safetensors" not in hub.fetched
    assert not (models / "tiny-chat").exists()


def test_a_refused_folder_is_not_linked(models: Path, tmp_path: Path) -> None:
    made = folder(tmp_path, "elsewhere", card=None)
    with pytest.raises(BadRequest):
        base_model_add(source=str(made))
    assert not (models / "elsewhere").is_symlink()


def test_weights_that_are_none(models: Path) -> None:
    made = folder(models)
    (made / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BadRequest) as refused:
        base_model_add(source=str(made))
    assert refused.value.code == "bad_model_folder"
