"""What a job is judged by: conversations of its own file that it never sees, or a validation file's."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.webapp.company import Company, base_model, talks
from tests.webapp.test_transitions import queued, running
from webapp.datasets.files import file_create
from webapp.datasets.held_out import HeldOut, held_out_choose
from webapp.datasets.leakage import leaked
from webapp.datasets.upload import Asked
from webapp.jobs.dispatcher import prepare_all
from webapp.jobs.models import JobEvent

MakeClient = Callable[[str], openai.OpenAI]
Row = dict[str, Any]


def row(source: str, answer: str) -> Row:
    return {
        "id": source,
        "messages": [
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": answer, "weight": 1},
        ],
    }


def rows(count: int) -> list[Row]:
    return [row(f"{number}", f"It was number {number} of them.") for number in range(1, count + 1)]


def said(among: list[Row], chosen: HeldOut) -> set[str]:
    return {among[number]["messages"][1]["content"] for number in chosen.rows}


class TestChoice:
    @pytest.mark.parametrize(
        ("count", "share", "held"),
        [(19, 0.5, 0), (20, 0.1, 2), (20, 0.01, 2), (60, 0.1, 6), (40, 0.5, 20), (2000, 0.1, 64), (60, 0, 0)],
    )
    def test_how_many(self, count: int, share: float, held: int) -> None:
        assert len(held_out_choose(rows(count), share).rows) == held

    def test_what_is_said_decides_and_not_where_it_stands(self) -> None:
        file = rows(200)
        turned = [row(f"{number}", each["messages"][1]["content"]) for number, each in enumerate(file[::-1])]
        first = said(file, held_out_choose(file, 0.1))
        assert len(first) == 20
        assert said(turned, held_out_choose(turned, 0.1)) == first
        assert said(file, held_out_choose(file, 0.2)) > first, "a larger share holds the smaller one"
        numbers = held_out_choose(file, 0.1).rows
        assert max(numbers) - min(numbers) > 100, "from all over the file"

    def test_a_conversation_is_on_one_side(self) -> None:
        file = [
            row(f"{source}.{part}", f"Chat {source}, part {part}: what happened then.")
            for source in range(1, 41)
            for part in range(1, 1 + source % 3 + 1)
        ]
        chosen = held_out_choose(file, 0.1)
        sources = {file[number]["id"].partition(".")[0] for number in chosen.rows}
        assert chosen.by == "conversation"
        assert len(sources) == 4
        assert chosen.rows == {
            number for number, each in enumerate(file) if each["id"].partition(".")[0] in sources
        }
        assert len(chosen.rows) <= round(0.1 * len(file))

    def test_the_one_conversation_that_is_most_of_the_file_is_not_given_away(self) -> None:
        file = [row(f"1.{part}", f"The long one, part {part}.") for part in range(1, 501)]
        file += [row(f"{number}", f"A short one, number {number}.") for number in range(2, 31)]
        chosen = held_out_choose(file, 0.1)
        assert chosen.by == "conversation"
        assert len(chosen.rows) == 3
        assert min(chosen.rows) >= 500

    def test_one_long_chat_is_cut_by_time(self) -> None:
        file = [row(f"1.{part}", f"What I said at {part} o'clock.") for part in range(1, 51)]
        assert held_out_choose(file, 0.1) == HeldOut(frozenset(range(45, 50)), "time")
        short = [row("2.1", "Another chat."), row("2.2", "It was short.")]
        assert held_out_choose([*file, *short], 0.1).rows == frozenset(range(45, 50))

    def test_no_conversation_of_it_is_on_both_sides(self) -> None:
        file = [row(f"1.{part // 3}.{part % 3 + 1}", f"What I said at {part} o'clock.") for part in range(50)]
        assert held_out_choose(file, 0.1).rows == frozenset(range(45, 50))
        assert held_out_choose(file, 0.08).rows == frozenset(range(48, 50)), (
            "of the one before, not the end alone"
        )
        whole = [row(f"1.1.{part}", f"What I said at {part} o'clock.") for part in range(50)]
        assert held_out_choose(whole, 0.1) == HeldOut()

    def test_pairs_that_answer_one_prompt_are_on_one_side(self) -> None:
        file = [
            row(f"{number}", f"It was number {number} of them.") | {"rejected": "No."} for number in range(60)
        ]
        for number, each in enumerate(file):
            each["messages"][0]["content"] = f"Number {number % 30}, please?"
        chosen = held_out_choose(file, 0.1)
        assert len(chosen.rows) == 6
        assert {number % 30 for number in chosen.rows if (number + 30) % 60 in chosen.rows} == {
            number % 30 for number in chosen.rows
        }

    def test_many_chats_that_are_all_long_are_cut_by_time(self) -> None:
        file = [
            row(f"{chat}.{part}", f"Chat {chat} went on to {part}.")
            for chat in range(1, 23)
            for part in range(1, 101)
        ]
        assert held_out_choose(file, 0.1) == HeldOut(frozenset(range(50, 100)), "time")

    def test_what_is_said_twice_is_no_fair_judge(self) -> None:
        """But for case and punctuation; a short word that all say is another matter."""
        file = rows(30)
        for each in file[:25]:
            twin = row(f"{len(file) + 1}", each["messages"][1]["content"].upper() + "!!")
            file.append(twin)
        for each in file:
            each["messages"] += [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": "ok", "weight": 1},
            ]
        chosen = held_out_choose(file, 0.5)
        assert chosen.rows == frozenset(range(25, 30))
        assert held_out_choose(file[:25] + file[30:], 0.5) == HeldOut()

    def test_what_is_nearly_said_twice_is_no_fair_judge(self) -> None:
        lamp = "We kept the lamp burning all night, though nobody came past the house in lane {}."
        file = rows(30) + [row(f"{number}", lamp.format(number)) for number in range(31, 61)]
        chosen = held_out_choose(file, 0.5)
        assert len(chosen.rows) == 30
        assert max(chosen.rows) == 29

    def test_what_is_not_trained_does_not_count(self) -> None:
        file = rows(30)
        for each in file:
            context = {"role": "assistant", "content": "A long text that is context everywhere.", "weight": 0}
            each["messages"] = [each["messages"][0], context, *each["messages"]]
        assert len(held_out_choose(file, 0.1).rows) == 3


def split_of(url: str) -> dict[str, str]:
    return {
        each["id"]: each["split"] for each in map(json.loads, httpx.get(url, verify=False).text.splitlines())
    }


def told(client: openai.OpenAI, job: str) -> list[tuple[str, str]]:
    return [(event.level, event.message) for event in client.fine_tuning.jobs.list_events(job)]


@pytest.mark.django_db(transaction=True)
class TestJob:
    def test_a_tenth_is_held_out(
        self, company: Company, web: httpx.Client, openai_client: MakeClient
    ) -> None:
        job, trainer = running(company, web, training_file=company.file(talks(40)))
        split = split_of(trainer.spec.conversations.url)
        held = [name for name, side in split.items() if side == "validation"]
        assert (len(split), len(held)) == (40, 4)
        client = openai_client(company.key)
        seen = client.fine_tuning.jobs.retrieve(job.public_id).to_dict()["held_out"]
        assert seen == {
            "by": "conversation",
            "conversations": 4,
            "examples": 4,
            "left_out": 0,
            "left_out_ids": [],
        }
        assert (
            "info",
            "Held out 4 of 40 conversations, with 4 answers to judge by. The same file always splits alike.",
        ) in told(client, job.public_id)
        _, again = running(company, web, training_file=company.file(talks(40)))
        assert split_of(again.spec.conversations.url) == split

    def test_a_chat_export_is_cut_by_time(self, company: Company, web: httpx.Client) -> None:
        lines = [
            f"{day:02}/05/2024, 10:{minute:02} - {who}: {who} said {word} on day {day}\n"
            for day in range(1, 26)
            for minute, (who, word) in enumerate([("Ann", "hello"), ("Ben", "bye")])
        ]
        file = file_create(
            tenant=company.tenant, filename="chat", stream=["".join(lines).encode()], asked=Asked(me="Ben")
        )
        job, trainer = running(company, web, training_file=file)
        held = [
            name for name, side in split_of(trainer.spec.conversations.url).items() if side == "validation"
        ]
        assert held == ["1.24", "1.25"]
        messages = JobEvent.objects.filter(job=job).values_list("message", flat=True)
        assert any("the last ones of the longest chat" in message for message in messages)

    @pytest.mark.slow
    def test_the_share_is_the_callers(
        self, company: Company, web: httpx.Client, openai_client: MakeClient
    ) -> None:
        base_model()
        file, client = company.file(talks(40)).public_id, openai_client(company.key)
        for share, held in ((0, 0), (0.5, 20), (None, 4)):
            body = {} if share is None else {"held_out": share}
            job = client.fine_tuning.jobs.create(model="tiny", training_file=file, extra_body=body)
            assert job.to_dict()["held_out"] is None, "not known yet"
            prepare_all()
            judged = client.fine_tuning.jobs.retrieve(job.id).to_dict()["held_out"]
            assert (judged["conversations"], judged["by"]) == (held, "conversation" if held else None)
        assert any("as asked" in message for _, message in told_of_all(client))

    @pytest.mark.parametrize(
        "fields",
        [{"held_out": -0.1}, {"held_out": 0.6}, {"held_out": "0.1"}, {"held_out": 0.2, "validation": 1}],
    )
    def test_shares_that_cannot_be(
        self, company: Company, openai_client: MakeClient, fields: dict[str, Any]
    ) -> None:
        base_model()
        body = {"model": "tiny", "training_file": company.file(talks(40)).public_id, **fields}
        if body.pop("validation", None):
            body["validation_file"] = company.file(talks(50)[40:]).public_id
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client(company.key).post("/fine_tuning/jobs", body=body, cast_to=object)
        assert (refused.value.code, refused.value.param) == ("invalid_value", "held_out")

    def test_a_small_file_is_trained_on_whole_and_says_so(self, company: Company, web: httpx.Client) -> None:
        job, trainer = running(company, web, training_file=company.file(talks(19)))
        assert set(split_of(trainer.spec.conversations.url).values()) == {"train"}
        assert trainer.spec.conversations.sha256 == job.training_file.conversations_sha256
        messages = JobEvent.objects.filter(job=job).values_list("message", flat=True)
        assert any("Nothing is held out (fewer than 20 conversations)" in message for message in messages)

    def test_rows_that_are_all_alike(self, company: Company) -> None:
        job = queued(company, training_file=company.file(talks(1) * 30))
        job.refresh_from_db()
        assert job.held_out["by"] is None
        messages = JobEvent.objects.filter(job=job).values_list("message", flat=True)
        assert any("too much alike" in message for message in messages)


@pytest.mark.django_db(transaction=True)
class TestValidationFile:
    def test_what_is_trained_on_is_left_out_of_judging(
        self, company: Company, web: httpx.Client, openai_client: MakeClient
    ) -> None:
        """But for case and punctuation, the fifth conversation is in both files."""
        loud = [
            {"messages": [{**turn, "content": turn["content"].upper() + "!"} for turn in talk["messages"]]}
            for talk in talks(7)[4:]
        ]
        job, trainer = running(
            company, web, training_file=company.file(talks(5)), validation_file=company.file(loud)
        )
        assert split_of(trainer.spec.conversations.url) == {
            **dict.fromkeys("12345", "train"),
            "v2": "validation",
            "v3": "validation",
        }
        client = openai_client(company.key)
        assert client.fine_tuning.jobs.retrieve(job.public_id).to_dict()["held_out"] == {
            "by": "validation_file",
            "conversations": 2,
            "examples": 2,
            "left_out": 1,
            "left_out_ids": ["1"],
        }
        [warning] = [message for level, message in told(client, job.public_id) if level == "warn"]
        assert "1 conversations of the validation file (rows 1)" in warning

    def test_what_is_nearly_trained_on_is_left_out_too(self, company: Company, web: httpx.Client) -> None:
        """Rows differ as wholes; what counts is what each learns. A short answer counts with its question."""

        def talk(question: str, answer: str) -> dict[str, Any]:
            return {
                "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            }

        lamp = "We kept the lamp burning all night, though nobody came past the house."
        held = [
            talk("Tell me of the lamp.", lamp.replace("nobody", "no one")),
            {"messages": [{"role": "system", "content": "Be brief."}, *talk("Sure?", "Yes.")["messages"]]},
            talk("Really?", "Yes."),
            talk("And the lamp?", "We put it out at midnight, because oil was dear and the moon was up."),
        ]
        trained = [*talks(3), talk("Go on.", lamp), talk("Sure?", "Yes.")]
        _, trainer = running(
            company, web, training_file=company.file(trained), validation_file=company.file(held)
        )
        split = split_of(trainer.spec.conversations.url)
        assert [name for name, side in split.items() if side == "validation"] == ["v3", "v4"]

    def test_pairs_that_answer_a_trained_prompt_are_left_out(self) -> None:
        prompts = [row(f"{number}", "Gladly.") | {"rejected": "No."} for number in range(3)]
        for number, each in enumerate(prompts):
            each["messages"][0]["content"] = f"Number {number}, please?"
        assert leaked(prompts[:2], prompts[1:]) == {0}

    def test_nothing_is_left_to_judge_by(self, company: Company) -> None:
        job = queued(
            company, training_file=company.file(talks(5)), validation_file=company.file(talks(5)[3:])
        )
        job.refresh_from_db()
        assert (job.state, job.error_code) == ("failed", "validation_leak")


def told_of_all(client: openai.OpenAI) -> list[tuple[str, str]]:
    return [each for job in client.fine_tuning.jobs.list() for each in told(client, job.id)]
