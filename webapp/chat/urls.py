"""The chat gateway's address."""

from django.urls import path

from webapp.chat.views import chat_completions

urlpatterns = [path("v1/chat/completions", chat_completions, name="chat_completions")]
