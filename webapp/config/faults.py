"""The user's faults, as types. Ours are ordinary exceptions: logged with the request id, answered with a bare 500."""


class UserFault(Exception):
    """Something the caller can mend. `code` is stable (docs/errors.md); `param` names the field that is wrong."""

    status = 400

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class BadRequest(UserFault):
    pass


class NotAuthenticated(UserFault):
    status = 401


class NotAllowed(UserFault):
    status = 403


class NotFound(UserFault):
    """There is no such thing, or it is someone else's: the two are never told apart."""

    status = 404


class MethodNotAllowed(UserFault):
    status = 405


class Gone(UserFault):
    """What could be used once, or for a time, cannot be used any more."""

    status = 410


class Fenced(UserFault):
    """A worker that no longer holds the job."""

    status = 410


class TooLarge(UserFault):
    status = 413


class UnsupportedType(UserFault):
    """A body in a form that is not read here."""

    status = 415


class Unprocessable(UserFault):
    status = 422


class Unavailable(UserFault):
    """A part that we need is away; the same call may work in a moment."""

    status = 503
