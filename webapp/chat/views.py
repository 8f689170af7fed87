"""POST /v1/chat/completions."""

from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from webapp.api.authentication import scope_of_request
from webapp.api.errors import openai_errors
from webapp.chat.database import in_database
from webapp.chat.gateway import chat_answer
from webapp.chat.request import ChatRequest, chat_request
from webapp.chat.selection import Answerer, answerer_select
from webapp.config.faults import MethodNotAllowed


# A key in a header authenticates, never a cookie, so there is nothing for another site to abuse.
@csrf_exempt
@openai_errors
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    """OpenAI's chat completions; `user` or an adapter's name in `model` says whose model answers."""
    if request.method != "POST":
        raise MethodNotAllowed("Send a POST request.", code="method_not_allowed")
    asked, answerer = await in_database(_selected, request)
    return await chat_answer(asked, answerer)


def _selected(request: HttpRequest) -> tuple[ChatRequest, Answerer]:
    scope = scope_of_request(request)
    asked = chat_request(request.body)
    return asked, answerer_select(scope=scope, model=asked.model, user=asked.end_user)
