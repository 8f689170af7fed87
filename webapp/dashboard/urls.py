"""The dashboard's pages."""

from django.urls import path

from webapp.dashboard.views import accounts, chat, files, home, joining, keys, models, people, training

urlpatterns = [
    path("", home.home, name="home"),
    path("signup", accounts.sign_up, name="sign_up"),
    path("login", accounts.LogIn.as_view(), name="login"),
    path("logout", accounts.LogOut.as_view(), name="logout"),
    path("files", files.files, name="files"),
    path("files/<uuid:file>", files.file, name="file"),
    path("files/<uuid:file>/preview", files.file_preview, name="file_preview"),
    path("files/<uuid:file>/read-as", files.file_reread_as, name="file_reread_as"),
    path("files/<uuid:file>/delete", files.file_remove, name="file_remove"),
    path("training", training.jobs, name="jobs"),
    path("training/new", training.job_new, name="job_new"),
    path("training/<uuid:job>", training.job, name="job"),
    path("training/<uuid:job>/cancel", training.job_stop, name="job_stop"),
    path("training/<uuid:job>/pause", training.job_hold, name="job_hold"),
    path("training/<uuid:job>/resume", training.job_go_on, name="job_go_on"),
    path("models", models.models, name="models"),
    path("models/<uuid:adapter>/deactivate", models.deactivate, name="deactivate"),
    path("models/<uuid:adapter>/activate", models.activate, name="activate"),
    path("models/<uuid:adapter>/delete", models.remove, name="adapter_remove"),
    path("chat", chat.chat, name="chat"),
    path("chat/answers", chat.answers, name="answers"),
    path("keys", keys.keys, name="keys"),
    path("keys/<uuid:key>/revoke", keys.key_revoke, name="key_revoke"),
    path("people", people.people, name="people"),
    path(
        "people/invitations/<uuid:invitation>/withdraw",
        people.invitation_remove,
        name="invitation_remove",
    ),
    path("join/<str:token>", joining.join, name="join"),
]
