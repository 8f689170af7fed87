"""Large uploads on their way in: in files without a name, so that a killed process leaves none of them behind."""

import tempfile
from typing import Any

from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class UnnamedFileUploadHandler(FileUploadHandler):
    """In the place of Django's TemporaryFileUploadHandler, whose file has a name until it is closed."""

    # No file before the first one comes: the parser asks for the attribute to know what to close.
    file: UploadedFile

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self.file = UploadedFile(
            tempfile.TemporaryFile(),  # noqa: SIM115 (the request closes it)
            self.file_name,
            self.content_type,
            0,
            self.charset,
            self.content_type_extra,
        )

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.file.write(raw_data)

    def file_complete(self, file_size: int) -> UploadedFile:
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    def upload_interrupted(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
