"""The resolver on a real folder and a real disk cache: what is served, what is refused and why, and what stays."""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters_store.base import base_digest
from adapters_store.errors import AdapterCorrupt, AdapterMissing, AdapterUnsupported, CacheFull, WrongBase
from adapters_store.manifest import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE, BaseRef, manifest_dump
from adapters_store.names import parse_name
from inference.adapter_checks import RankTooHigh
from inference.request_scope import RequestScope
from inference.resolver import AdapterResolver
from inference.settings import AdapterSettings
from tests.inference.adapters import random_adapter


def tiny_base(folder: Path, *, weights: bytes = b"weights", hidden: int = 16) -> Path:
    """A model folder with a tiny Llama's shape; its weights are never read as such."""
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").write_text("{}")
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = {"hidden_size": hidden, "intermediate_size": 24, "head_dim": 4, **heads}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny_base(tmp_path / "models" / "tiny")


@pytest.fixture
def adapters(tmp_path: Path) -> Path:
    (tmp_path / "adapters").mkdir()
    return tmp_path / "adapters"


@pytest.fixture
def resolver(tmp_path: Path, adapters: Path) -> AdapterResolver:
    settings = AdapterSettings(
        adapter_dir=adapters, adapter_cache_dir=tmp_path / "cache", adapter_cache_bytes=1_000_000
    )
    return AdapterResolver(settings, max_rank=8)


@pytest.fixture
def resolve(resolver: AdapterResolver, base: Path) -> Callable:
    """Resolves within a scope of its own, which stays open for as long as the test keeps it."""

    async def run(name: str, scope: RequestScope | None = None):
        located = await resolver.locate(name)
        if located is None:
            return None
        return await resolver.bring_to_disk(scope or RequestScope(), str(base), name, *located)

    return run


async def test_a_folder_serves_by_alias_and_by_serving_name(resolve, adapters, base, tmp_path):
    made = random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    (adapters / "maren").rename(adapters / made.name)
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)

    by_alias, by_name = await resolve("maren"), await resolve(made.name)

    assert by_alias.lora_name == by_name.lora_name == made.name
    assert by_alias.lora_int_id == by_name.lora_int_id
    assert Path(by_alias.lora_path).is_relative_to(tmp_path / "cache")
    assert (Path(by_alias.lora_path) / TENSORS_FILE).read_bytes() == (
        adapters / "maren" / TENSORS_FILE
    ).read_bytes()


async def test_ids_are_counted_and_never_shared(resolve, adapters, base):
    for seed in range(5):
        random_adapter(
            adapters / f"user{seed}", base=base, method="direft", position="prefill", seed=seed, rank=2
        )
    ids = [(await resolve(f"user{seed}")).lora_int_id for seed in (0, 1, 2, 3, 4, 0)]
    assert ids == [1, 2, 3, 4, 5, 1]


async def test_an_alias_follows_its_folder(resolve, adapters, base):
    before = random_adapter(
        adapters / "maren", base=base, method="direft", position="prefill", seed=1, rank=2
    )
    assert (await resolve("maren")).lora_name == before.name
    after = random_adapter(adapters / "maren", base=base, method="direft", position="prefill", seed=2, rank=2)
    assert (await resolve("maren")).lora_name == after.name != before.name


async def test_a_base_that_does_not_say_its_widths_has_no_adapters(resolve, adapters, base):
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    config = json.loads((base / "config.json").read_text())
    del config["intermediate_size"]
    (base / "config.json").write_text(json.dumps(config | {"n_inner": 24}))
    with pytest.raises(AdapterUnsupported, match="tiny has no intermediate_size"):
        await resolve("maren")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alora_invocation_tokens": [1]}, "aLoRA"),
        ({"use_rslora": True}, "which base's bytes"),
    ],
)
async def test_a_folder_of_pefts_own_is_refused_with_the_reason(resolve, adapters, options, why):
    (adapters / "plain").mkdir()
    (adapters / "plain" / CONFIG_FILE).write_text(json.dumps({"peft_type": "LORA", "r": 4} | options))
    with pytest.raises(AdapterUnsupported, match=f"The adapter plain is refused: .*{why}"):
        await resolve("plain")


@pytest.mark.parametrize(
    "name",
    [
        "nobody",
        "",
        ".",
        "..",
        "../secret",
        "a/b",
        "a\\b",
        ".hidden",
        "a" * 300,
        "maren\n",
        "maren/",
        "%2e%2e",
    ],
)
async def test_what_no_folder_holds_does_not_exist(resolve, adapters, base, name):
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    random_adapter(adapters / ".hidden", base=base, method="lora", position="prefill", seed=1, rank=4)
    random_adapter(adapters.parent / "secret", base=base, method="lora", position="prefill", seed=1, rank=4)
    assert await resolve(name) is None


async def test_a_link_out_of_the_folder_is_not_followed(resolve, adapters, base):
    random_adapter(adapters.parent / "outside", base=base, method="lora", position="prefill", seed=1, rank=4)
    (adapters / "linked").symlink_to(adapters.parent / "outside")
    assert await resolve("linked") is None


async def test_a_linked_file_is_refused(resolve, adapters, base):
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    os.rename(adapters / "maren" / TENSORS_FILE, adapters.parent / "elsewhere")
    (adapters / "maren" / TENSORS_FILE).symlink_to(adapters.parent / "elsewhere")
    with pytest.raises(AdapterCorrupt, match=TENSORS_FILE):
        await resolve("maren")


async def test_another_base_is_refused_naming_both(resolve, adapters, base):
    other = tiny_base(base.parent / "another-base", weights=b"other weights")
    random_adapter(adapters / "maren", base=other, method="lora", position="prefill", seed=1, rank=4)
    with pytest.raises(WrongBase) as refusal:
        await resolve("maren")
    assert "another-base" in refusal.value.message
    assert base.name in refusal.value.message


async def test_too_high_a_rank_is_refused_naming_both(resolve, adapters, base):
    random_adapter(adapters / "maren", base=base, method="direft", position="prefill", seed=1, rank=9)
    with pytest.raises(RankTooHigh, match=r"rank 9.* up to 8"):
        await resolve("maren")


@pytest.mark.parametrize("file", [TENSORS_FILE, MANIFEST_FILE])
async def test_one_flipped_byte_is_refused_naming_the_file(resolve, adapters, base, file):
    made = random_adapter(adapters / "x", base=base, method="direft", position="prefill", seed=1, rank=2)
    (adapters / "x").rename(adapters / made.name)
    path = adapters / made.name / file
    data = bytearray(path.read_bytes())
    data[data.index(b'"scale":') + 9 if file == MANIFEST_FILE else -1] ^= 1
    path.write_bytes(data)
    with pytest.raises(AdapterCorrupt, match=file):
        await resolve(made.name)


async def test_a_tensor_that_does_not_fit_the_base_never_gets_further(resolve, adapters, base):
    """The manifest claims the right base, and its digest is right, but the matrices are another model's."""
    wider = tiny_base(base.parent / "wider", hidden=20)
    made = random_adapter(adapters / "maren", base=wider, method="direft", position="prefill", seed=1, rank=2)
    claim = made.manifest.model_copy(update={"base": BaseRef(digest=base_digest(base), name=base.name)})
    (adapters / "maren" / MANIFEST_FILE).write_bytes(manifest_dump(claim))
    with pytest.raises(AdapterCorrupt, match="does not fit tiny"):
        await resolve("maren")


async def test_what_vanishes_as_its_download_ends_is_fetched_again(resolve, adapters, base, resolver):
    """The download is done, and those who waited have not been told yet, when the next request comes."""
    made = random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=0, rank=4)
    ended = asyncio.get_running_loop().create_future()
    ended.set_result(adapters)
    resolver._downloading[made.name] = ended
    found = await resolve("maren")
    assert (Path(found.lora_path) / TENSORS_FILE).exists()
    assert not resolver._downloading


async def test_a_lease_outlives_every_other_adapter(resolve, adapters, base, resolver):
    """The cache has room for three; a leased one stays, and its lease ends with its scope."""
    random_adapter(adapters / "held", base=base, method="lora", position="prefill", seed=0, rank=4)
    scope = RequestScope()
    held = await resolve("held", scope)
    cache = resolver.disk.cache
    size = cache.bytes_used
    cache._max_bytes = 3 * size
    for seed in range(1, 6):
        random_adapter(adapters / "other", base=base, method="lora", position="prefill", seed=seed, rank=4)
        other = RequestScope()
        await resolve("other", other)
        other.close()
    assert (Path(held.lora_path) / TENSORS_FILE).exists()
    assert cache.bytes_used <= 3 * size
    scope.close()
    assert not cache._leases


async def test_a_full_cache_refuses_and_recovers(resolve, adapters, base, resolver):
    random_adapter(adapters / "one", base=base, method="lora", position="prefill", seed=0, rank=4)
    random_adapter(adapters / "two", base=base, method="lora", position="prefill", seed=1, rank=4)
    scope = RequestScope()
    await resolve("one", scope)
    cache = resolver.disk.cache
    cache._max_bytes = int(1.5 * cache.bytes_used)
    with pytest.raises(CacheFull):
        await resolve("two")
    scope.close()
    assert (await resolve("two")) is not None


async def test_files_that_vanished_from_the_cache_are_fetched_again(resolve, adapters, base):
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    path = Path((await resolve("maren")).lora_path)
    shutil.rmtree(path)
    await resolve("maren")
    assert (path / TENSORS_FILE).exists()


async def test_a_cancelled_request_gives_its_lease_back(resolve, adapters, base, resolver):
    random_adapter(adapters / "maren", base=base, method="lora", position="prefill", seed=1, rank=4)
    scope = RequestScope()
    request = asyncio.ensure_future(resolve("maren", scope))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    scope.close()
    for _ in range(200):
        if not resolver.disk.cache._leases and not resolver._downloading:
            break
        await asyncio.sleep(0.01)
    assert not resolver.disk.cache._leases


async def test_a_removed_folder_is_missing(resolve, adapters, base):
    made = random_adapter(adapters / "x", base=base, method="lora", position="prefill", seed=1, rank=4)
    (adapters / "x").rename(adapters / made.name)
    (adapters / made.name / TENSORS_FILE).unlink()
    with pytest.raises(AdapterMissing, match=TENSORS_FILE):
        await resolve(made.name)
    shutil.rmtree(adapters / made.name)
    assert await resolve(made.name) is None


class SlowSource:
    """Counts downloads, and holds them until told to go on."""

    def __init__(self) -> None:
        self.go, self.fetched = threading.Event(), 0

    def fetch(self, model, name, folder, base) -> None:
        self.fetched += 1
        assert self.go.wait(10)
        (folder / MANIFEST_FILE).write_text("{}")


async def test_slow_downloads_are_shared_and_keep_nobody_else_waiting(resolver, resolve, adapters, base):
    random_adapter(adapters / "here", base=base, method="lora", position="prefill", seed=1, rank=4)
    await resolve("here")
    slow = SlowSource()
    names = [parse_name(f"ap-{index:064x}") for index in range(40)]
    waiting = [
        asyncio.ensure_future(resolver.bring_to_disk(RequestScope(), str(base), str(name), slow, name))
        for name in [*names, *[names[0]] * 40]
    ]
    await asyncio.sleep(0.1)
    await asyncio.wait_for(resolve("here"), 2)
    slow.go.set()
    requests = await asyncio.gather(*waiting)
    assert slow.fetched == len(names)
    assert len({request.lora_int_id for request in requests}) == len(names)
