"""Adapters in real S3: what is broken, missing or gone fails its own request, says why, and harms nobody else."""

import asyncio
import shutil
import threading
import time
import uuid

import pytest

from adapters_store.manifest import TENSORS_FILE
from adapters_store.s3 import manifest_key, object_key
from tests.inference.adapters import random_adapter
from tests.inference.served import MEMORY, Served, answer, question

pytestmark = pytest.mark.engine


@pytest.fixture
def tenant() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def make(tmp_path, base):
    def run(seed: int, method="direft", position="prefill"):
        return random_adapter(
            tmp_path / str(seed), base=base, method=method, position=position, seed=seed, rank=4
        )

    return run


def refusal(response) -> dict:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_published_adapter_is_served(served: Served, reference, make, tenant):
    adapter = make(1)
    response = served.ask(served.publish(adapter, tenant), count=20)
    said = answer(response)
    assert reference.two_phase([100, 200, 300], said, adapter).agrees(said)
    assert said != answer(served.ask(served.base, count=20))
    assert response.json()["model"] == f"{tenant}/{adapter.name}"


def test_one_flipped_byte_is_refused_and_others_go_on(served: Served, make, tenant):
    good, bad = make(2), make(3)
    good_name, bad_name = served.publish(good, tenant), served.publish(bad, tenant)
    data = bytearray((bad.folder / TENSORS_FILE).read_bytes())
    data[len(data) // 2] ^= 1
    served.store.put(object_key(tenant, bad.manifest.files[TENSORS_FILE].sha256), bytes(data))

    before = answer(served.ask(good_name))
    response = served.ask(bad_name)
    assert response.status_code == 422
    error = refusal(response)
    assert error["code"] == "adapter_corrupt"
    assert TENSORS_FILE in error["message"]
    assert bad.name in error["message"]
    assert "refused" in error["message"]
    assert answer(served.ask(good_name)) == before
    assert served.alive()

    # Mended in storage, it is served: nothing of the refusal was remembered.
    served.publish(bad, tenant)
    answer(served.ask(bad_name))


def test_a_manifest_under_another_name_is_refused(served: Served, make, tenant):
    """Whoever can write to the bucket still cannot put another adapter behind a digest."""
    wanted, planted = make(4), make(5)
    served.publish(planted, tenant)
    from adapters_store.manifest import manifest_dump

    served.store.put(manifest_key(tenant, wanted.name), manifest_dump(planted.manifest))
    response = served.ask(f"{tenant}/{wanted.name}")
    assert response.status_code == 422
    assert "manifest.json" in refusal(response)["message"]


def test_a_missing_object_is_refused_naming_the_file(served: Served, make, tenant):
    adapter = make(6)
    name = served.publish_manifest(adapter.manifest, tenant)
    response = served.ask(name)
    assert response.status_code == 422
    assert "not in storage" in refusal(response)["message"]


def test_another_tenants_adapter_does_not_exist(served: Served, make, tenant):
    name = served.publish(make(7), tenant)
    answer(served.ask(name))
    stranger = f"{uuid.uuid4().hex}/{name.partition('/')[2]}"
    response = served.ask(stranger)
    assert response.status_code == 404
    assert refusal(response)["code"] == "adapter_not_found"


def test_a_deleted_adapter_is_gone_from_every_tier(served: Served, make, tenant):
    adapter = make(8)
    name = served.publish(adapter, tenant)
    answer(served.ask(name))
    served.store.delete(manifest_key(tenant, adapter.name))
    with served.client() as client:
        removed = client.delete(f"/v1/adapters/{name}").json()
    assert removed["deleted"]
    assert removed["disk"]
    assert removed["memory"]
    assert removed["slots"]
    assert not removed["in_use"]
    assert not (served.cache / "adapters" / name).exists()
    assert served.ask(name).status_code == 404
    assert served.alive()


def test_an_adapter_that_was_only_read_ahead_goes_too(served: Served, make, tenant):
    name = served.publish(make(13), tenant)
    with served.client() as client:
        client.post(f"/v1/adapters/{name}/prefetch")
        removed = client.delete(f"/v1/adapters/{name}").json()
    assert (removed["memory"], removed["slots"], removed["in_use"]) == (1, 0, 0)


def test_a_prefetched_adapter_waits_in_memory(served: Served, make, tenant):
    name = served.publish(make(9), tenant)
    with served.client() as client:
        assert client.post(f"/v1/adapters/{name}/prefetch").json() == {"id": name, "ready": True}
        assert client.post(f"/v1/adapters/{tenant}/ap-{'0' * 64}/prefetch").status_code == 404
    hits = served.metric("attune_adapter_lookups_total", tier="memory", result="hit")
    answer(served.ask(name))
    assert served.metric("attune_adapter_lookups_total", tier="memory", result="hit") == hits + 1


def test_an_adapter_evicted_from_memory_and_disk_comes_back(served: Served, make, tenant):
    name = served.publish(make(10), tenant)
    before = answer(served.ask(name))
    for seed in range(11, 11 + MEMORY + 1):
        answer(served.ask(served.publish(make(seed), tenant)))
    shutil.rmtree(served.cache / "adapters" / name)
    assert answer(served.ask(name)) == before


def test_files_deleted_under_the_engine_fail_single_requests_only(served: Served, make, tenant):
    """Someone empties the disk cache again and again while cold adapters are asked for: answers or clean errors."""
    names = [served.publish(make(seed), tenant) for seed in range(30, 42)]
    expected = {name: answer(served.ask(name)) for name in names}
    stop = threading.Event()

    def vandal() -> None:
        while not stop.is_set():
            shutil.rmtree(served.cache / "adapters" / tenant, ignore_errors=True)
            time.sleep(0.01)

    async def ask_all() -> list:
        async with served.async_client() as client:
            bodies = [question(name, (100, 200, 300), 4) for name in names * 4]
            return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))

    thread = threading.Thread(target=vandal)
    thread.start()
    try:
        responses = asyncio.run(ask_all())
    finally:
        stop.set()
        thread.join()
    for name, response in zip(names * 4, responses, strict=True):
        if response.status_code == 200:
            assert answer(response) == expected[name]
        else:
            assert response.json()["error"]["message"]
    assert served.alive()
    assert all(answer(served.ask(name)) == expected[name] for name in names)
