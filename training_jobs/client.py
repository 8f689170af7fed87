"""The web application's internal API, as a trainer calls it: training_jobs.messages over HTTP."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from training_jobs.errors import AWAY_STATUSES, Away, Fenced, OurFault, PassingFault
from training_jobs.messages import (
    Claim,
    Complete,
    Fail,
    Heartbeat,
    HeartbeatReply,
    JobSpec,
    Release,
    StateReply,
    UploadRequest,
    UploadSlot,
    WorkerHello,
)

# At INFO httpx logs every URL, and a presigned one is a key.
logging.getLogger("httpx").setLevel(logging.WARNING)

M = TypeVar("M", bound=BaseModel)


class WebAway(Exception):
    """The web application could not be reached. The same call may work in a moment."""


class WebFailed(WebAway):
    """It answered, with a fault of its own. The same call may work in a moment, too."""


class WebApp:
    """One connection pool; the calls of a job carry that job's token, a hello the trainer's."""

    def __init__(self, url: str, *, wait: Callable[[float], object] = time.sleep) -> None:
        self._http = httpx.Client(base_url=url, timeout=httpx.Timeout(10.0, connect=3.0))
        self._wait = wait

    def close(self) -> None:
        self._http.close()

    def claim(self, job: str, *, dispatch_token: str, claim: Claim) -> JobSpec:
        """Raises Fenced, OurFault, or WebAway after 30 seconds: the dispatcher sends the job again."""
        return self._patiently(30, f"/internal/jobs/{job}/claim", dispatch_token, claim, JobSpec)

    def hello(self, worker: str, *, trainer_token: str, hello: WorkerHello) -> None:
        self._post(f"/internal/workers/{worker}", trainer_token, hello)

    def of_job(self, spec: JobSpec) -> "JobCalls":
        return JobCalls(self, spec)

    def _post(self, path: str, token: str, message: BaseModel) -> httpx.Response:
        try:
            response = self._http.post(
                path,
                content=message.model_dump_json(),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
        except httpx.TransportError as error:
            raise WebAway(f"The web application cannot be reached ({type(error).__name__}).") from None
        if response.status_code in (404, 410):
            raise Fenced
        if response.status_code in AWAY_STATUSES:
            raise WebAway(f"The web application answered {response.status_code}.")
        if response.status_code >= 500:
            raise WebFailed(f"The web application answered {response.status_code}.")
        if response.status_code >= 300:
            raise OurFault(
                "refused_by_web", f"The web application refused the trainer's message: {_why(response)}"
            )
        return response

    def _patiently(self, seconds: float, path: str, token: str, message: BaseModel, answer: type[M]) -> M:
        """Try until it answers or `seconds` are over."""
        deadline, pause = time.monotonic() + seconds, 0.5
        while True:
            try:
                return _read(answer, self._post(path, token, message))
            except WebAway:
                if time.monotonic() + pause > deadline:
                    raise
            self._wait(pause)
            pause = min(8.0, pause * 2)


class JobCalls:
    """The calls of one claimed job. All raise Fenced once the job is not this worker's any more, and OurFault.

    But for heartbeats, they raise Away or PassingFault when the web application was away, or failed, for too long.
    """

    def __init__(self, web: WebApp, spec: JobSpec) -> None:
        self._web, self._token, self.epoch = web, spec.token, spec.epoch
        self._path = f"/internal/jobs/{spec.job}"

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Once, no patience: the next one is due soon. Raises WebAway."""
        response = self._web._post(f"{self._path}/heartbeat", self._token, heartbeat)
        return _read(HeartbeatReply, response)

    def upload_slot(self, request: UploadRequest) -> UploadSlot:
        return self._call("uploads", request, UploadSlot)

    def complete(self, complete: Complete) -> StateReply:
        return self._call("complete", complete, StateReply)

    def fail(self, fail: Fail) -> StateReply:
        return self._call("fail", fail, StateReply)

    def release(self, release: Release, *, patience: float) -> StateReply:
        """The worker is on its way out: wait for the web application only so long."""
        return self._call("release", release, StateReply, patience=patience)

    def _call(self, verb: str, message: BaseModel, answer: type[M], *, patience: float = 600) -> M:
        """Ten minutes outlast a restart of the web application; the lease decides whether the job is still ours."""
        try:
            return self._web._patiently(patience, f"{self._path}/{verb}", self._token, message, answer)
        except WebFailed as error:
            raise PassingFault("web_failed", str(error)) from None
        except WebAway as error:
            raise Away("web_away", str(error)) from None


def _read(answer: type[M], response: httpx.Response) -> M:
    """Raises WebFailed for what is no answer of the web application's: a proxy's page, say."""
    try:
        return answer.model_validate_json(response.content)
    except ValidationError:
        raise WebFailed("The web application's address answered something else.") from None


def _why(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"
