"""The unmodified OpenAI client, checking every answer, does what its documentation shows."""

import io
import json
from collections.abc import Callable

import openai
import pytest

from tests.webapp.company import Company, base_model, company_create, jsonl, talks
from webapp.datasets.models import File
from webapp.jobs.prepare import job_prepare

pytestmark = pytest.mark.django_db(transaction=True)
MakeClient = Callable[[str], openai.OpenAI]


def test_files(openai_client: MakeClient, company: Company) -> None:
    client = openai_client(company.key)
    content = jsonl(talks()).getvalue()
    file = client.files.create(file=("chats.jsonl", content), purpose="fine-tune")
    assert (file.status, file.bytes, file.filename) == ("processed", len(content), "chats.jsonl")
    assert client.files.retrieve(file.id).id == file.id
    assert [each.id for each in client.files.list()] == [file.id]
    assert client.files.content(file.id).read() == content
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError) as refused:
        client.files.retrieve(file.id)
    assert refused.value.code == "file_not_found"
    assert refused.value.request_id


def test_a_nameless_stream_is_taken(openai_client: MakeClient, company: Company) -> None:
    file = openai_client(company.key).files.create(
        file=io.BytesIO(jsonl(talks()).read()), purpose="fine-tune"
    )
    assert file.status == "processed"


def test_lists_of_many_pages(openai_client: MakeClient, company: Company) -> None:
    made = [company.file(talks(1 + number)).public_id for number in range(5)]
    client = openai_client(company.key)
    assert [file.id for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc")] == made
    assert list(client.files.list(purpose="fine-tune-results")) == []


def test_jobs(openai_client: MakeClient, company: Company) -> None:
    base_model()
    client = openai_client(company.key)
    file = client.files.create(file=("chats.jsonl", jsonl(talks())), purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="tiny",
        training_file=file.id,
        suffix="mine",
        seed=7,
        metadata={"user": "maren", "plan": "gold"},
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
        extra_body={
            "adapter": {
                "method": "lora",
                "rank": 4,
                "target_modules": ["v_proj", "q_proj"],
                "layers": [3, 0, 3],
            }
        },
    )
    assert job.status == "validating_files"
    assert (job.seed, job.hyperparameters.n_epochs, job.metadata) == (7, 3, {"user": "maren", "plan": "gold"})
    assert job.to_dict()["adapter"] == {
        "method": "lora",
        "position": "prefill",
        "rank": 4,
        "alpha": 32.0,
        "target_modules": ["q_proj", "v_proj"],
        "layers": [0, 3],
    }
    other = client.fine_tuning.jobs.create(
        model="tiny",
        training_file=file.id,
        hyperparameters={"n_epochs": "auto", "batch_size": 2},
        extra_body={"adapter": {"layers": "all"}},
    )
    assert other.hyperparameters.batch_size == 2
    assert other.to_dict()["adapter"].keys() == {"method", "position", "rank", "alpha"}
    assert [each.id for each in client.fine_tuning.jobs.list(limit=1)] == [other.id, job.id]
    assert [each.id for each in client.fine_tuning.jobs.list(metadata={"plan": "gold"})] == [job.id]
    assert client.fine_tuning.jobs.retrieve(job.id).id == job.id
    assert [event.type for event in client.fine_tuning.jobs.list_events(job.id)] == ["message"]
    assert list(client.fine_tuning.jobs.checkpoints.list(job.id)) == []
    assert client.fine_tuning.jobs.cancel(job.id).status == "cancelled"
    assert client.fine_tuning.jobs.cancel(job.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.pause(job.id)
    assert refused.value.code == "not_pausable"


def test_pause_and_resume(openai_client: MakeClient, company: Company) -> None:
    job = company.job()
    job_prepare(job=job.id)
    client = openai_client(company.key)
    paused = client.fine_tuning.jobs.pause(job.public_id)
    assert (paused.status, paused.to_dict()["progress"]["state"]) == ("queued", "paused")
    assert client.fine_tuning.jobs.pause(job.public_id).to_dict()["progress"]["state"] == "paused"
    resumed = client.fine_tuning.jobs.resume(job.public_id)
    assert (resumed.status, resumed.to_dict()["progress"]["state"]) == ("queued", "queued")
    client.fine_tuning.jobs.cancel(job.public_id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.resume(job.public_id)
    assert refused.value.code == "not_paused"


def test_models(openai_client: MakeClient, company: Company) -> None:
    base_model()
    client = openai_client(company.key)
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "attune"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("ft:tiny:a/b:c")
    with pytest.raises(openai.PermissionDeniedError):
        client.models.delete("tiny")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tenant": "x"}, "tenant"),
        ({"method": {"type": "dpo"}}, "method.type"),
        ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 51}}}}, None),
        ({"hyperparameters": {"batch_size": 0}}, "hyperparameters.batch_size"),
        ({"suffix": ""}, "suffix"),
        ({"suffix": "x" * 65}, "suffix"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"adapter": {"method": "full"}}, "adapter.method"),
        ({"adapter": {"path": "/etc"}}, "adapter.path"),
        ({"adapter": {"target_modules": ["q_proj"]}}, "adapter.target_modules"),
        ({"adapter": {"method": "lora", "target_modules": []}}, "adapter.target_modules"),
        ({"adapter": {"method": "lora", "target_modules": ["lm_head"]}}, "adapter.target_modules.0"),
        ({"adapter": {"layers": []}}, "adapter.layers"),
        ({"adapter": {"layers": [0, -1]}}, "adapter.layers.1"),
        ({"adapter": {"layers": [0, 4]}}, "adapter.layers"),
        ({"adapter": {"layers": ["0"]}}, "adapter.layers.0"),
        ({"adapter": {"layers": "some"}}, "adapter.layers"),
        ({"seed": -1}, "seed"),
        ({"model": "gpt-5"}, "model"),
        ({"integrations": [{"type": "wandb"}]}, "integrations"),
    ],
)
def test_bad_jobs_name_the_field(
    openai_client: MakeClient, company: Company, fields: dict[str, object], param: str | None
) -> None:
    base_model()
    body = {"model": "tiny", "training_file": company.file().public_id, **fields}
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client(company.key).post("/fine_tuning/jobs", body=body, cast_to=object)
    assert refused.value.type == "invalid_request_error"
    assert param is None or refused.value.param == param


def test_wrong_keys_and_routes(openai_client: MakeClient, company: Company) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        openai_client("sk-of-someone-else").models.list()
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as refused:
        openai_client(company.key).get("/no/such/route", cast_to=object)
    assert refused.value.code == "unknown_url"


def test_a_file_without_a_good_row(openai_client: MakeClient, company: Company) -> None:
    base_model()
    client = openai_client(company.key)
    file = client.files.create(file=("bad.jsonl", b'{"messages": []}\n'), purpose="fine-tune")
    assert file.status == "error"
    assert file.to_dict()["report"]["problems"][0]["line"] == 1
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.create(model="tiny", training_file=file.id)
    assert refused.value.code == "invalid_training_file"


def test_a_user_key_acts_for_its_end_user_alone(openai_client: MakeClient, company: Company) -> None:
    base_model()
    client = openai_client(company.maren_key)
    tenants_file = company.file().public_id
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(tenants_file)
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.create(model="tiny", training_file=tenants_file)
    file = client.files.create(file=("a.jsonl", jsonl(talks(3))), purpose="fine-tune")
    assert File.objects.get(end_user=company.maren).public_id == file.id
    job = client.fine_tuning.jobs.create(model="tiny", training_file=file.id)
    assert [each.id for each in client.fine_tuning.jobs.list()] == [job.id]
    with pytest.raises(openai.PermissionDeniedError) as refused:
        client.fine_tuning.jobs.create(model="tiny", training_file=file.id, metadata={"user": "juno"})
    assert refused.value.code == "wrong_user"
    assert client.fine_tuning.jobs.create(model="tiny", training_file=file.id, metadata={"user": "maren"})


def test_what_a_person_uploaded_is_theirs(openai_client: MakeClient, company: Company) -> None:
    """The tenant's key sees that it is there, and can neither read it nor train someone else's model on it."""
    base_model()
    mate = company.teammate
    file = company.file(uploaded_by=mate.user, end_user=mate.end_user)
    client = openai_client(company.key)
    seen = client.files.retrieve(file.public_id)
    assert seen.filename == "(private)"
    assert seen.to_dict()["report"] == {"rows": 12, "good": 12, "bad": 0, "examples": 12}
    for attempt in (
        lambda: client.files.content(file.public_id),
        lambda: client.fine_tuning.jobs.create(model="tiny", training_file=file.public_id),
    ):
        with pytest.raises(openai.PermissionDeniedError) as refused:
            attempt()
        assert refused.value.code == "content_private"


def test_a_file_in_use_is_not_deleted(openai_client: MakeClient, company: Company) -> None:
    job = company.job()
    client = openai_client(company.key)
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.delete(job.training_file.public_id)
    assert refused.value.code == "file_in_use"
    client.fine_tuning.jobs.cancel(job.public_id)
    assert client.files.delete(job.training_file.public_id).deleted
    assert client.fine_tuning.jobs.retrieve(job.public_id).training_file == job.training_file.public_id


def test_an_outsider_sees_nothing(openai_client: MakeClient, company: Company) -> None:
    job = company.job()
    client = openai_client(company_create("Umbrella").key)
    assert list(client.files.list()) == list(client.fine_tuning.jobs.list()) == []
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.retrieve(job.public_id)
    with pytest.raises(openai.NotFoundError):
        client.fine_tuning.jobs.list(after=job.public_id)


def test_the_report_lists_every_bad_row(openai_client: MakeClient, company: Company) -> None:
    rows = jsonl(talks(2)).getvalue() + b'{"messages": 1}\n' * 1500
    client = openai_client(company.key)
    file = client.files.create(file=("a.jsonl", rows), purpose="fine-tune")
    report = file.to_dict()["report"]
    assert (file.status, report["good"], report["bad"], len(report["problems"])) == (
        "processed",
        2,
        1500,
        1000,
    )
    every = client.get(f"/files/{file.id}/report", cast_to=str)
    assert [json.loads(line)["line"] for line in every.splitlines()] == list(range(3, 1503))
