"""Talking to the base model and one's own side by side. Nothing of it is stored: the page holds the conversation."""

from typing import Annotated, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET
from pydantic import BaseModel as Message
from pydantic import ConfigDict, Field

from webapp.adapters.models import Adapter
from webapp.adapters.models import BaseModel as Base
from webapp.adapters.visible import adapters_usable, adapters_visible, check_passed
from webapp.api.errors import openai_errors
from webapp.chat.database import in_database
from webapp.chat.gateway import chat_answer
from webapp.chat.request import ChatRequest, check_size
from webapp.chat.selection import Answerer, answerer
from webapp.config.faults import MethodNotAllowed, NotAuthenticated, NotFound
from webapp.config.strict_json import read_json, read_object
from webapp.dashboard.access import member_page, membership_of, own_scope, scope_of


class Question(Message):
    """What the page sends for each side. `adapter` is an id; the base side leaves it out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    side: Literal["base", "own"]
    adapter: UUID
    messages: Annotated[list[dict[str, str]], Field(min_length=1, max_length=200)]
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 256


@member_page
@require_GET
def chat(request: HttpRequest) -> HttpResponse:
    adapters = list(usable_adapters(request))
    active = request.membership.end_user.active_adapter_id
    chosen = _chosen(adapters, request.GET.get("model"), active)
    context = {
        "adapters": adapters,
        "active": active,
        "chosen": chosen,
        "base": chosen.base if chosen else Base.objects.filter(is_default=True).first(),
    }
    return render(request, "dashboard/chat.html", context)


@openai_errors
async def answers(request: HttpRequest) -> HttpResponseBase:
    """One side's answer as server-sent events, through the same gateway as the API."""
    if request.method != "POST":
        raise MethodNotAllowed("Ask with a POST request.", code="method_not_allowed")
    asked, who = await in_database(_selected, request)
    return await chat_answer(asked, who)


def usable_adapters(request: HttpRequest):
    """Own versions first, the newest on top; then the tenant-wide ones, and for managers those of its end users."""
    own = request.membership.end_user_id
    found = adapters_usable(scope_of(request))
    return sorted(found.order_by("-created_at"), key=lambda adapter: adapter.end_user_id != own)


def _selected(request: HttpRequest) -> tuple[ChatRequest, Answerer]:
    membership = membership_of(request)
    if membership is None:
        raise NotAuthenticated("You are logged out. Log in again and repeat the question.", code="logged_out")
    request.membership = membership
    check_size(request.body)
    question = read_json(Question, request.body)
    adapter = adapters_visible(scope_of(request)).filter(id=question.adapter).first()
    if adapter is None:
        raise NotFound(
            "This model is not there any more. Reload the page to see those that are.", code="model_not_found"
        )
    check_passed(adapter, param="adapter")
    asked = read_object(
        ChatRequest,
        {
            "model": adapter.base.name,
            "messages": question.messages,
            "temperature": question.temperature,
            "max_tokens": question.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    who = answerer(
        own_scope(request),
        base=adapter.base,
        adapter=adapter if question.side == "own" else None,
        end_user=membership.end_user,
    )
    return asked, who


def _chosen(adapters: list[Adapter], wanted: str | None, active: UUID | None) -> Adapter | None:
    """The one in the address, else the active one, else the first."""
    by_id = {str(adapter.id): adapter for adapter in adapters}
    return by_id.get(wanted or "") or by_id.get(str(active)) or next(iter(adapters), None)
