"""Writing usage: one row a request, however often the write is tried."""

from uuid import UUID

from webapp.usage.models import UsageRow


def usage_record(
    *,
    tenant: UUID,
    kind: str,
    request_id: str,
    base: str,
    status: int,
    seconds: float,
    end_user: UUID | None = None,
    adapter: UUID | None = None,
    api_key: UUID | None = None,
    input_tokens: int = 0,
    cached_tokens: int = 0,
    output_tokens: int = 0,
    first_token_seconds: float | None = None,
) -> None:
    """Count a request (or a training job) once: a second row with the same kind and request id is left out."""
    row = UsageRow(
        tenant_id=tenant,
        end_user_id=end_user,
        adapter_id=adapter,
        api_key_id=api_key,
        kind=kind,
        base=base,
        request_id=request_id,
        status=status,
        input_tokens=input_tokens,
        cached_tokens=cached_tokens,
        output_tokens=output_tokens,
        first_token_seconds=first_token_seconds,
        seconds=seconds,
    )
    UsageRow.objects.bulk_create([row], ignore_conflicts=True)
