"""/v1/files"""

import hashlib
from datetime import timedelta
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.api.errors import CURL_UPLOAD
from webapp.api.idempotency import answered, once
from webapp.api.requests import FileForm, FilesPage, read_form
from webapp.api.rows import file_by_id, files_of, page_of
from webapp.api.shapes import Deleted, FileList, FileObject, file_shape
from webapp.api.streams import download
from webapp.config.faults import BadRequest
from webapp.datasets.files import file_content, file_delete, file_keep, file_problems
from webapp.datasets.intake import upload_take
from webapp.datasets.readers import check_readable
from webapp.datasets.upload import Asked
from webapp.tenants.scope import Scope, end_user_for

_UPLOAD = {
    "multipart/form-data": {
        "type": "object",
        "required": ["file", "purpose"],
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "purpose": {"type": "string", "enum": ["fine-tune"]},
            "user": {"type": "string", "description": "Attune's own: whose conversations these are."},
            "me": {
                "type": "string",
                "description": "Attune's own, for exports of people's chats: the speaker to train, by the name in the "
                "export. Without it, the report lists the `speakers`.",
            },
            "voice": {
                "type": "string",
                "enum": ["me", "assistant"],
                "description": "Attune's own, for exports of ChatGPT and Claude: train the person's words, or the "
                "assistant's. Without it, the report shows examples of both `voices`.",
            },
            "mask": {
                "type": "boolean",
                "default": False,
                "description": "Attune's own: replace e-mail addresses, telephone and card numbers, bank accounts, "
                "keys and passwords by placeholders in what is trained.",
            },
            "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
            "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
        },
    }
}
_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER)


class Files(APIView):
    parser_classes = [MultiPartParser]

    @extend_schema(operation_id="files_create", request=_UPLOAD, responses=FileObject, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Upload conversations. They are checked row by row before the answer, which holds the report."""
        form, upload = _upload(request)
        scope: Scope = request.user
        end_user = end_user_for(scope, form.user, param="user")

        body = _fingerprint(request, form, upload)
        if before := answered(request, route="files", body=body):
            return before
        asked = Asked(me=form.me, voice=form.voice, mask=form.mask)
        with upload_take(tenant=scope.tenant, stream=upload, purpose=form.purpose, asked=asked) as intake:

            def create() -> dict[str, Any]:
                file = file_keep(
                    tenant=scope.tenant,
                    filename=upload.name or "upload",
                    intake=intake,
                    uploaded_by=scope.user,
                    end_user=end_user,
                    expires_after=timedelta(seconds=form.expires_after_seconds)
                    if form.expires_after_seconds
                    else None,
                )
                return file_shape(file, scope=scope)

            return once(request, route="files", body=body, do=create)

    @extend_schema(
        operation_id="files_list",
        responses=FileList,
        parameters=[
            OpenApiParameter("after", str),
            OpenApiParameter("limit", int),
            OpenApiParameter("order", str, enum=["asc", "desc"]),
            OpenApiParameter("purpose", str),
        ],
    )
    def get(self, request: Request) -> Response:
        """The files that this key may see, newest first."""
        asked = read_form(FilesPage, request.query_params)
        rows = files_of(request.user)
        if asked.purpose is not None:
            rows = rows.filter(purpose=asked.purpose)
        after = file_by_id(request.user, asked.after, param="after") if asked.after else None
        page, more = page_of(rows, after=after, limit=asked.limit, newest_first=asked.order == "desc")
        return Response(listed([file_shape(file, scope=request.user, brief=True) for file in page], more))


class FileView(APIView):
    @extend_schema(operation_id="files_retrieve", responses=FileObject)
    def get(self, request: Request, file: str) -> Response:
        """One file and its report."""
        return Response(file_shape(file_by_id(request.user, file), scope=request.user))

    @extend_schema(operation_id="files_delete", responses=Deleted)
    def delete(self, request: Request, file: str) -> Response:
        """Delete a file; refused while a job trains on it, and to all but the person whose it is."""
        row = file_by_id(request.user, file)
        check_readable(scope=request.user, file=row, to="delete it")
        file_delete(file=row)
        return Response(Deleted(id=row.public_id, object="file").model_dump())


class FileContent(APIView):
    @extend_schema(operation_id="files_content", responses={(200, "application/octet-stream"): bytes})
    def get(self, request: Request, file: str) -> Any:
        """The bytes as they were uploaded. A file that a person uploaded for themselves is theirs alone."""
        row = file_by_id(request.user, file)
        chunks = file_content(scope=request.user, file=row)
        return download(chunks, filename=row.public_id, content_type="application/octet-stream")


class FileReport(APIView):
    @extend_schema(operation_id="files_report", responses={(200, "application/jsonl"): bytes})
    def get(self, request: Request, file: str) -> Any:
        """Attune's own: every bad row, one JSON object a line: {line, field, reason, fix}."""
        row = file_by_id(request.user, file)
        chunks = file_problems(scope=request.user, file=row)
        return download(chunks, filename=f"{row.public_id}.report.jsonl", content_type="application/jsonl")


def listed(data: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    ends = (
        {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
        if data
        else {"first_id": None, "last_id": None}
    )
    return {"object": "list", "data": data, "has_more": has_more, **ends}


def _upload(request: Request) -> tuple[FileForm, UploadedFile]:
    if "file" in request.POST:
        raise BadRequest(
            f"'file' came as text, not as a file. Send the file itself ({CURL_UPLOAD}: mind the @).",
            code="missing_file",
            param="file",
        )
    form = read_form(FileForm, request.POST)
    if set(request.FILES) != {"file"} or len(request.FILES.getlist("file")) != 1:
        raise BadRequest("Send exactly one file, in the part 'file'.", code="missing_file", param="file")
    if (form.expires_after_anchor is None) != (form.expires_after_seconds is None):
        raise BadRequest(
            "expires_after needs both anchor and seconds.", code="invalid_value", param="expires_after"
        )
    return form, request.FILES["file"]


def _fingerprint(request: Request, form: FileForm, upload: UploadedFile) -> bytes:
    """What makes two uploads the same, without holding either."""
    if "Idempotency-Key" not in request.headers:
        return b""
    content = hashlib.sha256()
    for chunk in upload.chunks():
        content.update(chunk)
    upload.seek(0)
    return f"{form.model_dump_json()}\n{upload.name}\n{content.hexdigest()}".encode()
