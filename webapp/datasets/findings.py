"""What a format has to say of a whole file, beside its conversations: counts and sentences, and where somebody has to
choose between voices, examples of each."""

from collections import Counter
from dataclasses import dataclass, field

from webapp.datasets.upload import Voice


@dataclass
class Findings:
    #: What was left out or changed, counted by its sentence.
    notes: Counter[str] = field(default_factory=Counter)
    #: Sentences about the whole, with the counts already in them.
    facts: list[str] = field(default_factory=list)
    #: Who wrote how many messages, where 'me' is one of them.
    speakers: Counter[str] = field(default_factory=Counter)
    #: Whose was trained, where there is a choice.
    voice: Voice | None = None
    #: What each would learn, in people's own words: [{before, answer}]. For nobody but the file's readers.
    voices: dict[Voice, list[dict[str, str]]] = field(default_factory=dict)
    #: Numbers of the archive's other files that were of use all the same (a list of names).
    used: set[int | None] = field(default_factory=set)
