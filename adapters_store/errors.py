"""Everything that can be wrong with an adapter, as types with stable codes (docs/errors.md)."""


class AdapterError(Exception):
    """A fault with a stable `code` and a sentence that says what to do. Messages never hold file contents."""

    code = "adapter_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadName(AdapterError):
    code = "bad_adapter_name"


class AdapterMissing(AdapterError):
    code = "adapter_not_found"


class AdapterCorrupt(AdapterError):
    """The bytes are not what their digest, manifest or format says."""

    code = "adapter_corrupt"


class AdapterUnsupported(AdapterError):
    """Well formed, but not something this engine or version can serve (method, rank, schema version)."""

    code = "adapter_unsupported"


class WrongBase(AdapterError):
    """Trained for another base model."""

    code = "adapter_wrong_base"


class CacheFull(AdapterError):
    """Every cached adapter is in use; ask again shortly."""

    code = "adapter_cache_full"


class StorageUnavailable(AdapterError):
    """The object store could not be reached or refused; nothing is known about the object."""

    code = "storage_unavailable"
