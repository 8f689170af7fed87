"""How a job can end other than well: whose fault it is decides what the user is told (docs/errors.md)."""


class JobFault(Exception):
    """An honest end with a stable `code` and a sentence that says what to do. Never holds what anyone wrote."""

    retry = False
    counts = True

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class UserFault(JobFault):
    """The data or the settings of the job; another attempt would end the same way."""


class OurFault(JobFault):
    """This worker or its surroundings, for good: a base model that is not here, a format that it cannot read."""


class PassingFault(JobFault):
    """Something that may be over at the next attempt: out of memory, an error that nobody foresaw."""

    retry = True


class Away(PassingFault):
    """Storage or the web application cannot be reached. That says nothing of the job: it is none of its attempts.

    Whoever answers is not away: a fault of theirs counts, or a job that always meets it would never end.
    """

    counts = False


#: What a server, or a proxy before it, answers when it is there for nobody; any other fault is about what was asked.
AWAY_STATUSES = frozenset({429, 502, 503, 504})


class Fenced(Exception):
    """The job is no longer this worker's: cancelled, taken over, or never known. Say nothing more and stop."""


class Stopped(Exception):
    """Training was asked to stop at a step and did."""
