"""What language a file is in is said in its report, and that the base model does not know it by the job."""

from typing import Any

import pytest

from tests.webapp.company import Company, base_model, jsonl
from webapp.datasets.languages import lacking
from webapp.datasets.validate import validate
from webapp.jobs.dispatcher import prepare_all
from webapp.jobs.models import Job, JobEvent, State

SAID = {
    "en": "I live in a cottage on the hill, close to the sea, and I go for a walk every morning.",
    "de": "Ich wohne in einem kleinen Haus am Meer und gehe jeden Morgen eine Stunde spazieren.",
    "fr": "J'habite une petite maison au bord de la mer et je me promène tous les matins.",
    "es": "Vivo en una casa pequeña cerca del mar y salgo a caminar todas las mañanas.",
    "it": "Vivo in una piccola casa vicino al mare e ogni mattina faccio una passeggiata.",
    "pt": "Moro numa casinha perto do mar e todas as manhãs faço uma caminhada.",
    "nl": "Ik woon in een klein huisje aan zee en maak elke ochtend een wandeling.",
    "pl": "Mieszkam w małym domku nad morzem i codziennie rano chodzę na spacer.",
    "tr": "Denize yakın küçük bir evde yaşıyorum ve her sabah yürüyüşe çıkıyorum.",
    "ru": "Я живу в маленьком доме у моря и каждое утро хожу гулять.",
    "zh": "我住在海边的一座小房子里，每天早上都出去散步一个小时。",
    "ja": "私は海の近くの小さな家に住んでいて、毎朝散歩に行きます。",
}


def talks(*codes: str, question: str = "Where do you live?") -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": f"{SAID[code]} {number}"},
            ]
        }
        for number, code in enumerate(codes)
    ]


def languages(rows: list[dict[str, Any]]) -> dict[str, int]:
    result = validate(jsonl(rows))
    result.close()
    return result.report.as_json()["languages"]


@pytest.mark.parametrize("code", SAID)
def test_each_language_is_told(code: str) -> None:
    assert languages(talks(*[code] * 3)) == {code: 3}


def test_it_is_that_of_the_answers() -> None:
    assert languages(talks("fr", "fr", question=SAID["de"])) == {"fr": 2}


def test_a_stray_one_does_not_count_and_the_most_frequent_comes_first() -> None:
    assert languages(talks(*["en"] * 4, *["de"] * 8, "fr")) == {"de": 8, "en": 4}


def test_what_is_too_short_or_no_language_tells_nothing() -> None:
    rows = talks("en", "en")
    for row, said in zip(rows, ("ok lol 👍", "x = {1: [2, 3]}; y += x[1][0] ** 2 // 7"), strict=True):
        row["messages"][1]["content"] = said
    assert languages(rows) == {}


def test_norwegian_is_one_language() -> None:
    assert lacking({"nb": 3, "nn": 2}, ["no"]) == []


def test_the_report_says_it_in_words() -> None:
    result = validate(jsonl(talks(*["de"] * 3, "en", "en")))
    result.close()
    assert any("German (3), English (2)" in note for note in result.report.as_json()["notes"])


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (["en"], ["de"]),
        (["de", "en"], []),
        (["en-US", "DE"], []),
        (["multilingual"], []),
        (["eng"], []),
        ([], []),
    ],
)
def test_lacking(known: list[str], expected: list[str]) -> None:
    assert lacking({"de": 8, "en": 4}, known) == expected


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("known", "warned"), [(["en"], True), (["de"], False), ([], False)])
def test_a_job_on_a_base_that_lacks_it_is_warned(company: Company, known: list[str], warned: bool) -> None:
    base = base_model()
    base.languages = known
    base.save()
    job = company.job(training_file=company.file(talks(*["de"] * 4)))
    prepare_all()
    assert Job.objects.get(id=job.id).state == State.QUEUED
    warnings = [event.message for event in JobEvent.objects.filter(job=job, level="warn")]
    assert [("Its model card says: English." in warning) for warning in warnings] == [True] * warned
    assert "German" not in " ".join(warnings), "the company sees a job's history, and not what people write"
