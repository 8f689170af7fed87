"""What is in memory, what must stay, and what happens when files are not there."""

import errno
import os
import threading
import time
from types import SimpleNamespace

import pytest

from adapters_store.errors import AdapterCorrupt
from inference.memory import AdapterMemory, AdapterMemoryFull
from inference.residency import Residency, Verdict


def adapter(number, name=None):
    return SimpleNamespace(lora_int_id=number, lora_name=name or f"adapter-{number}")


def running(*numbers):
    """Requests that still need their adapters, and one whose prompt is done."""
    return [SimpleNamespace(lora_request=adapter(n)) for n in numbers] + [SimpleNamespace(lora_request=None)]


class Ledger:
    """Two workers; `cold` are the ids of what one of them has not read yet, `unreadable` of what it cannot."""

    def __init__(self, capacity, *, max_bytes=1000):
        self.calls, self.answers, self.asked = [], {}, []
        self.cold, self.unreadable = set(), set()
        self.residency = Residency(
            capacity=capacity, max_bytes=max_bytes, load=self._load, prefetch=self._prefetch
        )

    def _prefetch(self, wanted):
        self.asked.append(wanted.lora_int_id)
        if wanted.lora_int_id in self.unreadable:
            return [{"state": "ready"}, {"state": "failed", "code": "c", "message": "broken"}]
        return [{"state": "ready"}, {"state": "loading" if wanted.lora_int_id in self.cold else "ready"}]

    def _load(self, wanted, drop):
        self.calls.append((wanted.lora_int_id, drop))
        ready = {"state": "ready", "bytes": 10}
        return [ready, self.answers.get(wanted.lora_int_id, ready)]

    def admit(self, number, step, now=(), name=None):
        return self.residency.admit(adapter(number, name), step=step, running=now)[0]

    def pin(self, number, now=()):
        return self.residency.pin(adapter(number), running=now)[0]


def test_an_adapter_is_loaded_once():
    ledger = Ledger(2)
    assert [ledger.admit(1, step) for step in range(3)] == [Verdict.READY] * 3
    assert ledger.calls == [(1, [])]


def test_the_least_recently_used_one_makes_room():
    ledger = Ledger(2)
    for step, number in enumerate((1, 2, 1, 3)):
        assert ledger.admit(number, step) is Verdict.READY
    assert ledger.calls[-1] == (3, [2])


def test_what_a_running_prompt_needs_is_never_dropped():
    ledger = Ledger(2)
    ledger.admit(1, 0)
    ledger.admit(2, 0)
    assert ledger.admit(3, 1, running(1, 2)) is Verdict.FULL
    assert ledger.admit(3, 2, running(1)) is Verdict.READY
    assert ledger.calls[-1] == (3, [2])


def test_what_was_admitted_in_this_step_is_never_dropped():
    ledger = Ledger(2)
    assert [ledger.admit(n, 5) for n in (1, 2, 3)] == [Verdict.READY, Verdict.READY, Verdict.FULL]
    assert ledger.admit(3, 6) is Verdict.READY


def test_memory_holds_so_many_bytes_and_one_adapter():
    ledger = Ledger(9, max_bytes=25)
    for number in (1, 2, 3, 4, 5):
        assert ledger.admit(number, number) is Verdict.READY
    assert ledger.calls == [(1, []), (2, []), (3, []), (4, [1]), (5, [2])]
    ledger.answers[6] = {"state": "ready", "bytes": 90}
    assert ledger.admit(6, 6) is Verdict.READY
    assert ledger.admit(7, 7, running(6)) is Verdict.FULL, "all of it is one adapter's, and that is needed"
    assert ledger.admit(7, 8) is Verdict.READY
    assert ledger.calls[-2:] == [(6, [3]), (7, [4, 5, 6])]


def test_what_is_in_no_file_comes_on_top_of_the_bytes():
    ledger = Ledger(9, max_bytes=25)
    ledger.answers[1] = {"state": "ready", "bytes": 90}
    ledger.admit(1, 0)
    assert put(ledger, 1, "synced") == ("ready", [])
    for number in (2, 3, 4):
        assert ledger.admit(number, number) is Verdict.READY
    assert ledger.calls[-1] == (4, [])


def test_a_failure_in_any_worker_is_a_failure_and_may_be_tried_again():
    ledger = Ledger(2)
    ledger.answers[1] = {"state": "failed", "code": "adapter_corrupt", "message": "one byte is wrong"}
    assert ledger.residency.admit(adapter(1), step=0, running=()) == (Verdict.FAILED, "one byte is wrong")
    ledger.answers.clear()
    assert ledger.admit(1, 1) is Verdict.READY


def test_an_id_never_changes_its_adapter():
    ledger = Ledger(2)
    ledger.admit(1, 0)
    assert ledger.admit(1, 1, name="another") is Verdict.FAILED


def put(ledger, number, name, *, state="ready", now=()):
    """The workers' first answer to weights that are in no file, and what they were told to drop."""
    dropped = []

    def write(drop):
        dropped.extend(drop)
        return [{"state": "ready"}, {"state": state, "code": "c", "message": "m"}]

    return ledger.residency.put(number, name, running=now, write=write)[-1]["state"], dropped


def test_what_is_in_no_file_takes_a_new_name_and_stays():
    ledger = Ledger(2)
    assert put(ledger, 1, "before") == ("ready", [])
    assert put(ledger, 1, "after") == ("ready", [])
    assert ledger.admit(1, 0, name="before") is Verdict.FAILED
    for step, number in enumerate((2, 3, 4)):
        assert ledger.admit(number, step) is Verdict.READY
        assert ledger.admit(1, step, name="after") is Verdict.READY
    assert ledger.calls == [(2, []), (3, [2]), (4, [3])]


def test_what_is_in_no_file_makes_room_like_any_other_but_never_takes_the_last_place():
    ledger = Ledger(2)
    ledger.admit(1, 0)
    ledger.admit(2, 0)
    with pytest.raises(AdapterMemoryFull):
        put(ledger, 3, "three", now=running(1, 2))
    ledger.admit(2, 1)
    assert put(ledger, 3, "three", now=running(2)) == ("ready", [1])
    with pytest.raises(AdapterMemoryFull, match="cpu_slots"):
        put(ledger, 4, "four")
    assert ledger.residency.forget("three") == [3]
    assert put(ledger, 4, "four") == ("ready", [])


def test_what_a_worker_refuses_changes_nothing():
    ledger = Ledger(2)
    put(ledger, 1, "before")
    assert put(ledger, 1, "after", state="failed")[0] == "failed"
    assert ledger.admit(1, 0, name="before") is Verdict.READY


def test_while_others_run_adapters_are_read_ahead_a_few_at_a_time():
    ledger = Ledger(9)
    ledger.cold = {1, 2, 3, 4, 5}
    asked = [ledger.admit(n, 0, running()) for n in (1, 2, 3, 4, 5, 6)]
    assert asked == [Verdict.READING] * 6, "6 would be ready, and its turn to be asked for comes"
    assert ledger.asked == [1, 2, 3, 4]
    assert ledger.calls == []
    ledger.cold = {1}
    assert [ledger.admit(n, 1, running()) for n in (1, 2, 6)] == [
        Verdict.READING,
        Verdict.READY,
        Verdict.READY,
    ]
    assert ledger.calls == [(2, []), (6, [])]
    assert ledger.admit(1, 2, ()) is Verdict.READY, "nobody runs: nobody is held up"


def test_what_cannot_be_read_ahead_fails_and_what_finds_no_room_is_not_read():
    ledger = Ledger(1)
    ledger.unreadable = {1}
    assert ledger.residency.admit(adapter(1), step=0, running=running()) == (Verdict.FAILED, "broken")
    ledger.admit(2, 1)
    assert ledger.admit(3, 2, running(2)) is Verdict.FULL
    assert ledger.asked == [1]


def test_what_is_pinned_stays_until_it_is_unpinned():
    ledger = Ledger(2)
    assert ledger.pin(1) is Verdict.READY
    assert ledger.pin(1) is Verdict.READY
    for step, number in enumerate((2, 3, 4)):
        assert ledger.admit(number, step) is Verdict.READY
    assert ledger.calls == [(1, []), (2, []), (3, [2]), (4, [3])]
    assert ledger.residency.unpin("adapter-1")
    assert not ledger.residency.unpin("adapter-1")
    ledger.admit(5, 9)
    assert ledger.calls[-1] == (5, [1])


def test_pins_leave_room_for_others():
    ledger = Ledger(3, max_bytes=25)
    assert ledger.pin(1) is Verdict.READY
    assert ledger.admit(3, 0) is Verdict.READY
    assert ledger.pin(2, running(3)) is Verdict.READY
    assert ledger.pin(3) is Verdict.FULL, "no place would be left"
    assert ledger.residency.forget("adapter-2") == [2]
    ledger.answers[2] = {"state": "ready", "bytes": 90}
    assert ledger.pin(2) is Verdict.FULL, "all the bytes would be taken"
    assert ledger.admit(4, 5) is Verdict.READY


def test_a_pin_is_of_what_can_be_read_under_an_id_of_its_own():
    ledger = Ledger(3)
    ledger.answers[1] = {"state": "failed", "code": "adapter_corrupt", "message": "one byte is wrong"}
    assert ledger.pin(1) is Verdict.FAILED
    ledger.admit(2, 0)
    assert ledger.residency.pin(adapter(2, "another"), running=())[0] is Verdict.FAILED


def read(name, path):
    if path == "corrupt":
        raise AdapterCorrupt("one byte is wrong")
    if path == "gone":
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return f"weights of {name}"


def counted():
    """A memory, and the names that it has read so far."""
    reads = []

    def counting(name, path):
        reads.append(name)
        return read(name, path)

    return AdapterMemory(read=counting, size=len, capacity=2, staged_bytes=1000), reads


@pytest.fixture
def memory():
    return AdapterMemory(read=read, size=len, capacity=2, staged_bytes=1000)


def wait(memory, name, path="here"):
    for _ in range(200):
        answer = memory.prefetch(name, path)
        if answer["state"] != "loading":
            return answer
        time.sleep(0.005)
    raise AssertionError("still loading")


def test_prefetch_then_load_reads_once():
    memory, reads = counted()
    assert wait(memory, "a") == {"state": "ready"}
    assert memory.load(1, "a", "here", []) == {"state": "ready", "bytes": len("weights of a")}
    assert memory.get(1, "a") == "weights of a"
    assert memory.prefetch("a", "here") == {"state": "ready"}
    assert reads == ["a"]


def test_load_reads_by_itself(memory):
    assert memory.load(1, "a", "here", []) == {"state": "ready", "bytes": len("weights of a")}
    assert wait(memory, "bc") == {"state": "ready"}
    assert memory.figures() == {"resident": 1, "bytes": 12, "ahead": 1, "ahead_bytes": 13}
    assert memory.get(2, "b") is None


def test_failures_have_a_code_and_are_forgotten_once_told(memory):
    assert wait(memory, "a", "corrupt") == {
        "state": "failed",
        "code": "adapter_corrupt",
        "message": "one byte is wrong",
    }
    assert wait(memory, "a", "here") == {"state": "ready"}
    failed = memory.load(1, "b", "gone", [])
    assert failed["code"] == "adapter_unreadable"
    assert failed["message"] == "FileNotFoundError: No such file or directory", "paths name tenants"
    assert memory.get(1, "b") is None


def test_resident_adapters_stay_until_dropped_staged_ones_do_not(memory):
    memory.load(1, "a", "here", [])
    for name in ("b", "c", "d"):
        wait(memory, name)
    assert memory.names() == {"a", "c", "d"}
    memory.load(2, "d", "gone", [1])
    assert memory.names() == {"c", "d"}


def test_what_is_read_ahead_is_bounded_by_bytes_too():
    memory = AdapterMemory(read=read, size=len, capacity=9, staged_bytes=2 * len("weights of a"))
    for name in "abc":
        wait(memory, name)
    assert memory.names() == {"a", "b", "c"}, "what comes is not weighed yet"
    wait(memory, "d")
    assert memory.names() == {"b", "c", "d"}


def test_an_id_belongs_to_one_name(memory):
    memory.load(1, "a", "here", [])
    assert memory.load(1, "b", "here", [])["code"] == "adapter_id_taken"
    with pytest.raises(Exception, match="another name"):
        memory.get(1, "b")


def test_remove_tells_what_it_removed(memory):
    memory.load(1, "a", "here", [])
    wait(memory, "b")
    assert memory.remove("a") == {"resident": 1, "staged": 0}
    assert memory.remove("b") == {"resident": 0, "staged": 1}
    assert memory.names() == set()


def test_two_ids_of_one_adapter_share_its_weights():
    memory, reads = counted()
    memory.load(1, "a", "here", [])
    assert memory.load(2, "a", "here", [1])["state"] == "ready"
    assert memory.get(2, "a") == "weights of a"
    assert reads == ["a"]


def test_no_step_reads_a_file_while_others_run():
    """The real ledger over a worker's real memory that its bytes bound: every name comes back when it has gone."""
    readers = []

    def slow(name, path):
        readers.append(threading.current_thread())
        return f"weights of {name}"

    size = len("weights of adapter-1")
    memory = AdapterMemory(read=slow, size=len, capacity=64, staged_bytes=2 * size)
    residency = Residency(
        capacity=64,
        max_bytes=2 * size,
        load=lambda wanted, drop: [memory.load(wanted.lora_int_id, wanted.lora_name, "here", drop)],
        prefetch=lambda wanted: [memory.prefetch(wanted.lora_name, "here")],
    )
    step = 0
    for number in (1, 2, 3, 4, 5, 1, 2, 3, 4, 5):
        for _ in range(1000):
            step += 1
            verdict, _ = residency.admit(adapter(number), step=step, running=running())
            if verdict is Verdict.READY:
                break
            assert verdict is Verdict.READING
            time.sleep(0.005)
        assert memory.get(number, f"adapter-{number}")
    assert len(readers) == 10, "bytes had pushed each out"
    assert threading.current_thread() not in readers


def test_no_more_is_read_ahead_than_there_are_places_to_keep_it_in():
    """As above with places for two, and four requests in the queue: what has been read is there when its turn comes."""
    reads, may_read = [], threading.Semaphore(0)

    def slow(name, path):
        may_read.acquire()
        reads.append(name)
        return f"weights of {name}"

    memory = AdapterMemory(read=slow, size=len, capacity=2, staged_bytes=1000)
    residency = Residency(
        capacity=2,
        max_bytes=1000,
        load=lambda wanted, drop: [memory.load(wanted.lora_int_id, wanted.lora_name, "here", drop)],
        prefetch=lambda wanted: [memory.prefetch(wanted.lora_name, "here")],
    )
    queue = [1, 2, 3, 4]
    for step in range(1000):
        verdicts = {
            number: residency.admit(adapter(number), step=step, running=running())[0] for number in queue
        }
        queue = [number for number in queue if verdicts[number] is not Verdict.READY]
        may_read.release()
        if not queue:
            break
        time.sleep(0.005)
    assert reads == [f"adapter-{number}" for number in (1, 2, 3, 4)]


def test_a_name_that_comes_again_with_another_folder_is_read_again():
    """Names of plain folders are no digests."""
    memory = AdapterMemory(read=lambda name, path: path, size=len, capacity=4, staged_bytes=1000)
    memory.load(1, "plain", "one", [])
    memory.load(2, "plain", "one", [])
    memory.load(3, "plain", "other", [])
    assert [memory.get(number, "plain") for number in (1, 2, 3)] == ["one", "one", "other"]
