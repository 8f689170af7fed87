"""What language the answers are in that a model would learn to give, by a sample."""

from collections import Counter
from functools import cache

from django.utils.translation import get_language_info
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from webapp.datasets.conversation import Conversation

#: The first conversations, and of each so many characters of its answers: enough to tell, a fraction of a millisecond.
_LOOKED_AT, _CHARACTERS = 500, 500
#: Shorter answers ("ok, lol") could be in any language.
_FEWEST_LETTERS = 20
#: Of the identifier's normalised probability: right English answers have 0.7 to 1, greetings and code less.
_SURE = 0.8
#: Of the conversations that could be told, for a language to count: below it is quotations, and errors.
_SHARE = 0.1
#: One language under three codes.
_NORWEGIAN = {"no", "nb", "nn"}


class Languages:
    """`found`: conversations by ISO 639-1 code, of those whose language could be told."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._looked_at = 0

    def look(self, talk: Conversation) -> None:
        if self._looked_at == _LOOKED_AT:
            return
        self._looked_at += 1
        said = " ".join(turn.content for turn in talk.turns if turn.weight == 1)[:_CHARACTERS]
        if sum(character.isalpha() for character in said) < _FEWEST_LETTERS:
            return
        code, probability = _identifier().classify(said)
        if probability >= _SURE:
            self.found[code] += 1

    def as_json(self) -> dict[str, int]:
        """Those that count, the most frequent first."""
        fewest = max(2, _SHARE * self.found.total())
        return {code: count for code, count in self.found.most_common() if count >= fewest}


def language_name(code: str) -> str:
    """In English; the code itself for a language that Django has no name for."""
    if code == "zh":  # Django has its two scripts
        return "Chinese"
    try:
        return str(get_language_info(code)["name"])
    except KeyError:
        return code


def lacking(languages: dict[str, int], known: list[str]) -> list[str]:
    """Of a file's `languages`, the codes that a base model does not know by its card (`known`).

    None where the card says nothing, or not in codes of two letters.
    """
    codes = {code.lower().partition("-")[0] for code in known}
    if not codes or any(len(code) != 2 for code in codes):
        return []
    if codes & _NORWEGIAN:
        codes |= _NORWEGIAN
    return [code for code in languages if code not in codes]


@cache
def _identifier() -> LanguageIdentifier:
    """A second and 80 MB, once a process that reads uploads."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
