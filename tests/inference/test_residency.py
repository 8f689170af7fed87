"""What is in memory, what must stay, and what happens when files are not there."""

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
    def __init__(self, capacity, *, max_bytes=1000, seconds=0.0):
        self.calls, self.answers, self.seconds = [], {}, seconds
        self.residency = Residency(capacity=capacity, max_bytes=max_bytes, load=self._load)

    def _load(self, wanted, drop):
        self.calls.append((wanted.lora_int_id, drop))
        time.sleep(self.seconds)
        ready = {"state": "ready", "bytes": 10}
        return [ready, self.answers.get(wanted.lora_int_id, ready)]

    def admit(self, number, step, now=(), name=None):
        return self.residency.admit(adapter(number, name), step=step, running=now)[0]


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


def test_cold_adapters_do_not_hold_up_those_who_run():
    ledger = Ledger(9, seconds=0.03)
    assert [ledger.admit(n, 0, running()) for n in (1, 2, 3)] == [
        Verdict.READY,
        Verdict.READING,
        Verdict.READING,
    ]
    assert [ledger.admit(n, 1, ()) for n in (2, 3)] == [Verdict.READY] * 2, "nobody runs: nobody is held up"


def read(name, path):
    if path == "corrupt":
        raise AdapterCorrupt("one byte is wrong")
    if path == "gone":
        raise FileNotFoundError(path)
    return f"weights of {name}"


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


def test_prefetch_then_load_reads_once(memory):
    assert wait(memory, "a") == {"state": "ready"}
    assert memory.load(1, "a", "gone", []) == {"state": "ready", "bytes": len("weights of a")}
    assert memory.get(1, "a") == "weights of a"
    assert memory.prefetch("a", "gone") == {"state": "ready"}


def test_load_reads_by_itself(memory):
    assert memory.load(1, "a", "here", []) == {"state": "ready", "bytes": len("weights of a")}
    assert memory.bytes_resident() == len("weights of a")
    assert memory.get(2, "b") is None


def test_failures_have_a_code_and_are_forgotten_once_told(memory):
    assert wait(memory, "a", "corrupt") == {
        "state": "failed",
        "code": "adapter_corrupt",
        "message": "one byte is wrong",
    }
    assert wait(memory, "a", "here") == {"state": "ready"}
    assert memory.load(1, "b", "gone", [])["code"] == "adapter_unreadable"
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
