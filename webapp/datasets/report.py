"""What became of an upload's rows: counts, notes and the first bad rows. Of content nothing but examples of voices."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from webapp.datasets.duplicates import LISTED, Duplicates
from webapp.datasets.findings import Findings
from webapp.datasets.languages import Languages, language_name
from webapp.datasets.lengths import Lengths
from webapp.datasets.masking import Sensitive
from webapp.datasets.upload import Asked, Other

#: Bad rows that the report itself lists; all of them are in the report's object.
LISTED_PROBLEMS = 1_000
_LISTED_SPEAKERS = 100
_LISTED_FILES = 100
_LISTED_NOTES = 50


@dataclass
class Report:
    """`error` and `code` are set when nothing of the file can be trained on."""

    asked: Asked
    lengths: Lengths
    rows: int = 0
    good: int = 0
    bad: int = 0
    examples: int = 0
    error: str | None = None
    code: str | None = None
    format: str = ""
    problems: list[dict[str, Any]] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    #: The files of an archive that are not of its format.
    others: tuple[Other, ...] = ()
    findings: Findings = field(default_factory=Findings)
    duplicates: Duplicates = field(default_factory=Duplicates)
    sensitive: Sensitive = field(default_factory=Sensitive)
    languages: Languages = field(default_factory=Languages)

    def as_json(self) -> dict[str, Any]:
        """How the report is stored and shown. What does not apply to the format is left out."""
        report: dict[str, Any] = {
            "rows": self.rows,
            "good": self.good,
            "bad": self.bad,
            "examples": self.examples,
            "error": self.error,
            "code": self.code,
            "problems": self.problems,
            "notes": self._notes(),
            "facts": self.findings.facts,
            "duplicates": {"rows": self.duplicates.count, "listed": self.duplicates.listed},
            "near_duplicates": {
                "rows": len(self.duplicates.nearly),
                "listed": self.duplicates.nearly[:LISTED],
            },
            "too_long": {"rows": self.lengths.count, "listed": self.lengths.listed},
            "sensitive": self.sensitive.as_json(),
            "languages": self.languages.as_json(),
            "masked": self.asked.mask,
        }
        if left := self._left_out:
            report["left_out"] = {
                "files": len(left),
                "listed": [
                    {"entry": each.member.entry, "name": each.member.name, "reason": each.reason}
                    for each in left[:_LISTED_FILES]
                ],
            }
        if self.findings.voices:
            report["voice"], report["voices"] = self.findings.voice, self.findings.voices
        if self.findings.speakers:
            listed = self.findings.speakers.most_common(_LISTED_SPEAKERS)
            report["speakers"] = [{"name": name, "messages": count} for name, count in listed]
            report["me"] = self.asked.me
        return report

    @property
    def _left_out(self) -> list[Other]:
        return [each for each in self.others if each.member.entry not in self.findings.used]

    def _notes(self) -> list[str]:
        counted = self.notes + self.findings.notes
        notes = [f"{count} × {sentence}" for sentence, count in counted.most_common(_LISTED_NOTES)]
        if left := self._left_out:
            why = Counter(each.reason for each in left).most_common(5)
            told = ", ".join(f"{count:,} {reason}" for reason, count in why)
            notes.append(f"{len(left):,} files of the archive were left out: {told}. 'left_out' names them.")
        if self.duplicates.count:
            notes.append(
                f"{self.duplicates.count} × a row says what an earlier one says, but for case, spacing and "
                "punctuation: the model learns it as often as it is there. Leave repeats out if that is not meant."
            )
        if nearly := len(self.duplicates.nearly):
            notes.append(
                f"{nearly} × a row says nearly what an earlier one says, in what is asked and in what is learned."
            )
        if told := self.lengths.told():
            notes.append(told)
        if told := self.sensitive.told():
            notes.append(
                f"{told}: each was replaced by a placeholder, the same throughout the file."
                if self.asked.mask
                else f"{told}: a model may say to others what it has learned. Take them out, or let them be replaced "
                "by placeholders (mask)."
            )
        if languages := self.languages.as_json():
            told = ", ".join(f"{language_name(code)} ({count})" for code, count in languages.items())
            notes.append(f"What is learned is in {told}, by the conversations whose language could be told.")
        if 0 < self.examples < 10:
            notes.append(
                f"Only {self.examples} examples: expect a change of style, and hardly any facts. 50 do better."
            )
        return notes
