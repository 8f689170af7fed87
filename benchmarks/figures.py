"""What is measured under a name: every row of the targets, the paper's figures, one for a GPU and a check."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, product

from benchmarks.kinds import KINDS
from benchmarks.workload import MIXES


@dataclass(frozen=True)
class Case:
    """One kind of adapter on one workload."""

    kind: str
    profile: str = "punica"
    mix: str = "uniform"
    adapters: int = 32
    #: Streams of the base, and beside them requests of half of the adapters: "none", "cold" (not in memory) or "warm".
    arrivals: str = ""

    @property
    def name(self) -> str:
        parts = [self.kind, self.profile]
        if KINDS[self.kind].method is not None:
            parts += [self.mix, str(self.adapters)]
        return "/".join([*parts, self.arrivals] if self.arrivals else parts)


@dataclass(frozen=True)
class Target:
    """A ratio of two cases, or (measure "answers") the share of answers that are the same; a bound, or none."""

    row: str
    of: Case
    to: Case
    measure: str = "throughput"
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Figure:
    title: str
    #: Cases that are compared: benchmarks.rounds runs a group's together. A case can be in several, and runs in each.
    groups: tuple[tuple[Case, ...], ...]
    targets: tuple[Target, ...] = ()
    #: In each round: requests, and the most tokens of one (of a chat: all of it).
    requests: int = 48
    max_tokens: int = 192
    rounds: int = 5
    #: Requests at once; also what the engine may run at once.
    batch: int = 32
    gpu_slots: int = 8
    #: None: room in memory for all adapters.
    cpu_slots: int | None = None

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(dict.fromkeys(chain(*self.groups)))

    @property
    def adapters(self) -> int:
        return max((case.adapters for case in self.cases if KINDS[case.kind].method is not None), default=0)

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(KINDS[case.kind].engine for case in self.cases))


#: Whatever is measured is compared with these, where they are measured.
_REFERENCES = ("base", "base_again", "lora_stock")


def compared(*cases: Case) -> tuple[tuple[Case, ...], ...]:
    """As few groups as there can be in which every case is beside all the references, and has an engine of its own."""
    references = [case for case in dict.fromkeys(cases) if case.kind in _REFERENCES]
    groups: list[list[Case]] = []
    for case in dict.fromkeys(cases):
        if case.kind in _REFERENCES:
            continue
        engine = KINDS[case.kind].engine
        for group in groups:
            if all(KINDS[other.kind].engine != engine for other in group):
                group.append(case)
                break
        else:
            groups.append([*references, case])
    return tuple(tuple(group) for group in groups or [references])


def _share(profile: str, at_least: float) -> tuple[tuple[Case, Case, Case], tuple[Target, ...]]:
    base = Case("base", profile)
    ours = (Case("lora_p", profile), Case("direft_p", profile))
    targets = [Target(f"{KINDS[case.kind].label}, of base", case, base, at_least=at_least) for case in ours]
    return (base, *ours), tuple(targets)


_SHARE, _SHARE_TARGETS = _share("punica", 0.98)
_SHORT, _SHORT_TARGETS = _share("short", 0.90)
_BASE, _LORA_P, _DIREFT_P = _SHARE
_BASE_AGAIN = Case("base_again")
_STOCK, _LORA = Case("lora_stock"), Case("lora")
_DISTINCT = Case("lora_p", mix="distinct", adapters=256)
_IDENTICAL = Case("lora_p", mix="identical", adapters=256)
_CHAT, _UNCACHED = Case("lora_p", "chat", adapters=16), Case("lora_p_uncached", "chat", adapters=16)
_ALONE, _COLD, _WARM = (
    Case("lora_p", adapters=128, arrivals=arrivals) for arrivals in ("none", "cold", "warm")
)

#: Each in under 15 minutes on two cores that make 150 tokens a second.
ROWS = {
    "share": Figure(
        "% of base, outputs as Punica's", compared(*_SHARE), _SHARE_TARGETS, rounds=4, gpu_slots=32
    ),
    "share-short": Figure(
        "% of base, outputs as short as prompts",
        compared(*_SHORT),
        _SHORT_TARGETS,
        requests=96,
        rounds=4,
        gpu_slots=32,
    ),
    "stock": Figure(
        "LoRA_P and stock LoRA on all tokens",
        compared(_LORA_P, _STOCK),
        (Target("LoRA_P, times stock LoRA", _LORA_P, _STOCK, at_least=4),),
        requests=32,
        rounds=4,
    ),
    "slots": Figure(
        "256 distinct adapters on 8 slots and one adapter",
        ((_DISTINCT, _IDENTICAL),),
        (Target("256 distinct adapters, of one", _DISTINCT, _IDENTICAL, at_least=0.9),),
        requests=128,
        max_tokens=160,
        rounds=3,
    ),
    "turns": Figure(
        "Chats of five turns, with and without prefix caching",
        compared(_CHAT, _UNCACHED),
        (
            Target(
                "TTFT of turn 5, of that without caching", _CHAT, _UNCACHED, "ttft_last_turn", at_most=0.35
            ),
        ),
        requests=2,
        max_tokens=1024,
        rounds=6,
        # One chat at a time: time to the first token is then the prompt's own.
        batch=1,
    ),
    "cold-loads": Figure(
        "Eight streams while 64 cold adapters load",
        ((_ALONE, _COLD, _WARM),),
        (
            Target(
                "p99 token gap, of that with the same requests in memory",
                _COLD,
                _WARM,
                "gap_p99",
                at_most=1.2,
            ),
            Target("p99 token gap, of that with no other requests", _COLD, _ALONE, "gap_p99"),
        ),
        requests=8,
        max_tokens=240,
        rounds=10,
        cpu_slots=64,
    ),
    "kernel": Figure(
        "LoRA on all tokens, our kernels and stock",
        compared(_LORA, _STOCK),
        (
            Target("LoRA on all tokens, times stock", _LORA, _STOCK, at_least=2),
            Target("answers that are the same as stock's", _LORA, _STOCK, "answers", at_least=0.95),
        ),
        requests=32,
        rounds=3,
    ),
}


def _paper(adapters: Iterable[int], mixes: Iterable[str]) -> tuple[tuple[Case, ...], ...]:
    kinds = ("lora_stock", "lora_p", "direft_p", "direft")
    workloads = product(adapters, mixes)
    return tuple(
        chain.from_iterable(
            compared(_BASE, *(Case(kind, mix=mix, adapters=number) for kind in kinds))
            for number, mix in workloads
        )
    )


#: Hours on a CPU.
PAPER = {
    "paper-2a": Figure(
        "Throughput and adapters, all of them in slots",
        _paper((1, 2, 4, 8, 16, 32), MIXES),
        rounds=3,
        gpu_slots=32,
    ),
    "paper-2b": Figure(
        "Throughput and adapters, paged into 32 slots",
        _paper((32, 64, 128, 256, 512), ("uniform",)),
        rounds=3,
        gpu_slots=32,
    ),
}

GPU = {
    "gpu": Figure(
        "32 adapters on a GPU",
        compared(_BASE, _STOCK, _LORA_P, _DIREFT_P),
        (
            *_SHARE_TARGETS,
            Target("LoRA_P, times stock LoRA", _LORA_P, _STOCK, at_least=1.9),
            Target("DiReFT_P, times stock LoRA", _DIREFT_P, _STOCK),
        ),
        requests=96,
        max_tokens=512,
        rounds=2,
    ),
}

CHECKS = {
    "null": Figure(
        "The base against itself: how far measurements can be trusted",
        compared(_BASE, _BASE_AGAIN),
        (Target("base, of the base", _BASE_AGAIN, _BASE, at_least=0.99, at_most=1.01),),
        rounds=4,
    ),
}

FIGURES = {**ROWS, **PAPER, **GPU, **CHECKS}
