import os
import threading

import pytest

from adapters_store.cache import AdapterCache
from adapters_store.errors import AdapterMissing, CacheFull


def filler(size, calls=None):
    def fetch(folder):
        if calls is not None:
            calls.append(folder)
        (folder / "manifest.json").write_bytes(b"x" * size)

    return fetch


def test_the_least_recently_used_goes_first_and_what_is_leased_stays(tmp_path):
    cache = AdapterCache(tmp_path, max_bytes=30)
    with cache.lease("a", filler(10)) as held:
        for name in ("b", "c"):
            cache.acquire(name, filler(10))
            cache.release(name)
        with cache.lease("b", filler(10)):
            pass
        with cache.lease("d", filler(10)):
            assert held.exists()
            assert ("a" in cache, "b" in cache, "c" in cache) == (True, True, False)
            assert cache.bytes_used == 30


def test_when_everything_is_in_use_it_says_so_and_keeps_nothing_half_done(tmp_path):
    cache = AdapterCache(tmp_path, max_bytes=15)
    with cache.lease("a", filler(10)):
        with pytest.raises(CacheFull), cache.lease("b", filler(10)):
            pass
        assert "b" not in cache
        assert list((tmp_path / "partial").iterdir()) == []
    with cache.lease("b", filler(10)):
        pass


def test_a_failed_fetch_leaves_no_trace_and_can_be_repeated(tmp_path):
    cache = AdapterCache(tmp_path, max_bytes=100)

    def fails(folder):
        (folder / "manifest.json").write_text("half")
        raise AdapterMissing("gone")

    with pytest.raises(AdapterMissing), cache.lease("t/a", fails):
        pass
    with cache.lease("t/a", filler(3)) as folder:
        assert (folder / "manifest.json").read_bytes() == b"xxx"


def test_many_at_once_fetch_once(tmp_path):
    cache, calls = AdapterCache(tmp_path, max_bytes=100), []
    gate = threading.Barrier(8)

    def work():
        gate.wait()
        with cache.lease("a", filler(5, calls)) as folder:
            assert (folder / "manifest.json").exists()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def test_a_new_process_takes_over_what_was_complete_within_its_own_bound(tmp_path):
    first = AdapterCache(tmp_path, max_bytes=100)
    for name in ("t/a", "t/b", "t/c"):
        with first.lease(name, filler(10)):
            pass
    (tmp_path / "partial" / "t_d").mkdir()
    second = AdapterCache(tmp_path, max_bytes=20)
    assert second.bytes_used == 20
    assert list((tmp_path / "partial").iterdir()) == []


def test_a_deleted_adapter_goes_even_while_in_use(tmp_path):
    cache = AdapterCache(tmp_path, max_bytes=100)
    with cache.lease("a", filler(5)) as folder:
        assert cache.remove("a")
        assert not folder.exists()
    assert not cache.remove("a")
    with cache.lease("a", filler(7)):
        assert cache.bytes_used == 7


def test_what_becomes_visible_is_on_disk_before_its_name_is(tmp_path, monkeypatch):
    cache, synced = AdapterCache(tmp_path, max_bytes=100), []

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        assert "a" not in cache
        assert not cache.path("a").exists()

    monkeypatch.setattr(os, "fsync", fsync)
    with cache.lease("a", filler(3)):
        pass
    partial = str(tmp_path / "partial" / "a")
    assert synced == [f"{partial}/manifest.json", partial]
