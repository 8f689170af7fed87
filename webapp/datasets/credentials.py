r"""Private keys, keys and tokens of APIs, and passwords.

Keys are known by the prefixes that their makers give them for this purpose, so that hardly anything else is taken for
one; passwords by the word before them. Of the libraries, detect-secrets is made for lines of code and has had no
release since May 2024, and others are programs of their own. Time is linear in the text: each pattern is tried only
where its prefix stands, and nothing in it can match in two ways.
"""

import re
from collections.abc import Iterator

from webapp.datasets.glance import Glance
from webapp.datasets.spans import Span

_LEFT = r"(?<![A-Za-z0-9_-])"
_PEM = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
#: What a key without its end consists of.
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=\s]*")
_KEYS: dict[str, re.Pattern[str]] = {
    prefix: re.compile(_LEFT + pattern)
    for prefix, pattern in {
        "sk-": r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and those who follow them
        "AKIA": r"AKIA[A-Z2-7]{16}(?![A-Za-z0-9])",  # AWS
        "ASIA": r"ASIA[A-Z2-7]{16}(?![A-Za-z0-9])",
        "AIza": r"AIza[A-Za-z0-9_-]{35}",  # Google
        "ya29.": r"ya29\.[A-Za-z0-9_-]{20,}",
        "GOCSPX-": r"GOCSPX-[A-Za-z0-9_-]{28}",
        **{f"gh{of}_": rf"gh{of}_[A-Za-z0-9]{{36,}}" for of in "opsur"},  # GitHub
        "github_pat_": r"github_pat_[A-Za-z0-9_]{22,}",
        "glpat-": r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
        "xox": r"xox[abeoprs]-[A-Za-z0-9-]{16,}",  # Slack
        "xapp-": r"xapp-[A-Za-z0-9-]{16,}",
        "k_live_": r"[rs]k_live_[A-Za-z0-9]{16,}",  # Stripe
        "k_test_": r"[rs]k_test_[A-Za-z0-9]{16,}",
        "whsec_": r"whsec_[A-Za-z0-9]{20,}",
        "SG.": r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{20,64}",  # SendGrid
        "hf_": r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
        "npm_": r"npm_[A-Za-z0-9]{36}",
        "pypi-": r"pypi-[A-Za-z0-9_-]{50,}",
        ":AA": r"\d{8,10}:AA[A-Za-z0-9_-]{33}",  # Telegram's bots
        "eyJ": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{17,}\.[A-Za-z0-9_-]*",  # JSON web tokens
        "attune_": r"attune_[A-Za-z0-9]{8}_[A-Za-z0-9]{38}",
    }.items()
}
#: Names have few digits: "sk-toggleable__label-arrow" is none of the keys that begin like it.
_LEAST_DIGITS = 3
_DIGIT = re.compile(r"\d")
_WORDS = (
    *("password", "passwd", "passcode", "passphrase", "passwort", "kennwort", "wachtwoord", "lösenord"),
    *("hasło", "contraseña", "mot de passe", "senha", "palavra-passe", "parola", "şifre", "пароль"),
    *("密码", "密碼", "パスワード", "비밀번호"),
    *("api key", "api_key", "apikey", "api-key", "secret", "access token", "access_token"),
)
#: In each of the words: asked first, as there are fewer.
_PARTS = (
    *("pass", "wort", "woord", "lösen", "hasło", "contrase", "senha", "parola", "şifre", "парол", "密"),
    *("パス", "비밀", "key", "secret", "token"),
)
_AFTER_WORD = re.compile(
    r"(?:[^\n:=：]{0,24}[:=：][\s\"'`]{0,4}|\s(?:is|ist|es|est|è|é)\s[\"'`]?)([^\s\"'`,;]{6,128})",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^\s/:@]{1,64}:([^\s/@]{1,128})@")


def credentials(text: str, seen: Glance) -> Iterator[Span]:
    """In no order; some may lie within others."""
    if "-----BEGIN " in text:
        yield from _private_keys(text)
    # Most of what people say ends here: keys have digits, and of passwords only those with one are told from words.
    if not seen.digit:
        return
    if seen.word:
        yield from _api_keys(text)
    yield from _passwords(text)
    if "://" in text and "@" in text:
        for match in _IN_URL.finditer(text):
            yield Span(*match.span(1), "password")


def _private_keys(text: str) -> Iterator[Span]:
    end, last = 0, _PEM_END.search(text)
    while begin := _PEM.search(text, end):
        # Where one has no end, those after it have none: many would read the whole text each.
        last = _PEM_END.search(text, begin.end()) if last else None
        body = _PEM_BODY.match(text, begin.end())
        end = last.end() if last else body.end() if body else begin.end()
        yield Span(begin.start(), end, "private_key")


def _api_keys(text: str) -> Iterator[Span]:
    for prefix, pattern in _KEYS.items():
        if prefix in text:
            for match in pattern.finditer(text):
                if sum(map(str.isdigit, match[0])) >= _LEAST_DIGITS or prefix in ("AKIA", "ASIA"):
                    yield Span(match.start(), match.end(), "api_key")


def _passwords(text: str) -> Iterator[Span]:
    """What follows a word for it and might be one: "password: required" and "password: https://…" are not."""
    lowered = text.lower()
    if not any(part in lowered for part in _PARTS):
        return
    if len(lowered) != len(text):  # as "İ" makes it; places would be wrong
        lowered = text
    for word in _WORDS:
        place = lowered.find(word)
        while place >= 0:
            match = _AFTER_WORD.match(text, place + len(word))
            value = match[1].rstrip(".!?)]}") if match else ""
            if match and _DIGIT.search(value) and any(map(str.isalpha, value)) and "://" not in value:
                yield Span(match.start(1), match.start(1) + len(value), "password")
            place = lowered.find(word, place + len(word))
