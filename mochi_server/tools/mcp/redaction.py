"""The secrets of an MCP server: neither its entry as it is shown, nor any other text has them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import JsonValue

from ...errors import JSONObject
from ...providers.common.values import REDACTED

_PLACEHOLDER = re.compile(
    r"((Basic|Bearer|Token) )?(\$\{(env:|input:)?[A-Za-z0-9_. -]+\})?", re.IGNORECASE
)
"""A value that names a variable only."""
_TELLING = (
    "auth|conn(ection)?[_-]?str|cookie|credential|dsn|header|key|passw|passphrase|pwd|secret|token"
    "|webhook|(?<![A-Za-z0-9])(pass|pat)(?![A-Za-z0-9])"
)
_SECRET_NAME = re.compile(_TELLING, re.IGNORECASE)
_OPTION = re.compile(r"(?P<option>-{1,2}[A-Za-z][\w.-]*)((?P<sign>=)(?P<value>.*))?", re.DOTALL)
_VARIABLE_OPTIONS = frozenset({"-e", "--env", "--environment"})
"""Options of which the value is ``NAME=value``, as those of ``docker run``."""
_SHORT_OPTION = re.compile(
    r"(?P<option>-e(?=[A-Za-z_]\w*=)|-H(?=[\w-]+:)|-u(?=[^-=]+:)"
    r"|-[pPaw](?=.*[^a-z=-])(?!=?[\d.:/-]+(/(tcp|udp))?$)(?!=?[./~$]))(?P<sign>=?)(?P<value>.+)",
    re.DOTALL,
)
"""An option of one letter with its value, as ``-eNAME=value``, or ``-pSECRET``, which is neither a
port, a path or a variable, nor one of Go's options such as ``-port``."""
_MYSQL = "mysql mysqladmin mysqlbinlog mysqlcheck mysqldump mysqlimport mysqlshow mysqlsh"
_MONGO = "mongo mongosh mongodump mongoexport mongofiles mongoimport mongorestore mongostat"
_LDAP = "ldapadd ldapcompare ldapdelete ldapmodify ldapmodrdn ldappasswd ldapsearch ldapwhoami"
_PASSWORD_OPTIONS = {
    program: options.split()
    for programs, options in (
        (f"{_MYSQL} mariadb mariadb-admin mariadb-check mariadb-dump mariadb-import", "-p"),
        (f"{_MONGO} sshpass cqlsh ncftp ncftpget ncftpput 7z 7za 7zz", "-p"),
        ("login", "-p"),  # docker login, az login, and of others
        ("mosquitto_pub mosquitto_rr mosquitto_sub", "-P"),
        ("sqlcmd bcp mssql-cli isql tsql zip unzip ipmitool", "-P"),
        ("redis-cli redis-benchmark valkey-cli valkey-benchmark", "-a"),
        (_LDAP, "-w"),
        ("snmpget snmpset snmpwalk snmpbulkwalk", "-A -X"),
        ("openssl", "-passin -passout -k"),
    )
    for program in programs.split()
}
"""Well-known programs, each with the options of which the value is a password."""
_ENDS_OF_COMMANDS = ("|", "&", ";")
_LOGIN_OPTIONS = frozenset(
    {"-H", "-u", "-U", "--user", "--proxy-user", "--userpwd", "--bearer", "--login"}
)
_HEADER = re.compile(r"(?P<name>[A-Za-z][\w.-]*):\s*(?P<value>.*)", re.DOTALL)
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)
_SCHEME = re.compile(r"(Basic|Bearer|Token|ApiKey)\s+", re.IGNORECASE)
_SCHEMED = re.compile(
    r"""(?<=[=:])(\s*)((?:Basic|Bearer|Token|ApiKey)\s+[^\s'"]+)""", re.IGNORECASE
)
"""What comes after ``Authorization:``, in the midst of a text."""
_NAMED = re.compile(
    rf"""(?<![\w.-])(?P<name>[\w.-]{{0,64}}({_TELLING})[\w.-]{{0,64}}[=:])(?P<value>[^;&,\s'"]+)""",
    re.IGNORECASE,
)
"""A part of a text as ``host=a;password=b``."""
_LOGIN = re.compile(
    r"(?<![^\s/@'\"])[^\s/@'\":]+:[^\s/@'\"]+@(?!sha256:|v?\d+(\.\d+){0,2}$)(?=[\w.\[-])"
)
"""A login without the scheme of an address; not what is before a version or a digest."""
_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+|\s+|.""")
"""A word of a command, with what is quoted, or the space between two."""
_QUOTED_COMMAND = re.compile(r"""(?P<sign>['"])(?P<command>[^'"]*\s[^'"]*)(?P=sign)""", re.DOTALL)
"""A word that is a command as well, as that of ``sh -c``."""
_QUOTED_OPTION = re.compile(r"""(?P<sign>['"])(?P<option>-[^'"]*)(?P=sign)""")
"""A word of a command that is an option in quotes."""
_RANDOM = re.compile(r"(?=.*[A-Za-z])(?=(?:[^0-9]*[0-9]){3})[A-Za-z0-9_=-]{20,}")
_PREFIXED = re.compile(r"(sk|pk|gh[opsu]|github_pat|xox[abp]|glpat|AKIA)[-_]?\w[\w-]{10,}")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

MIN_SECRET = 4
"""Characters; shorter values are taken out of no text, which would have other meanings without."""


def redacted_server(entry: JSONObject) -> JSONObject:
    """Return an entry in the shape of the file with ``…`` in the place of secrets.

    Those are the values of variables and headers, but for names of variables (``${TOKEN}``), and in
    arguments and addresses what follows ``--token`` and its like, logins, values of parameters, and
    what looks like a key.
    """
    return _Redactor().server(entry)


def secrets_of(entry: JSONObject) -> set[str]:
    """Return what ``redacted_server`` hides because it is secret, not only because it may be.

    Values of variables may be anything: they count by their names, and by what they look like.
    """
    redactor = _Redactor()
    redactor.server(entry)
    return redactor.secrets


def restored_secrets(changes: JSONObject, old: JSONObject) -> JSONObject:
    """Return changes of an entry with its own secrets where they have ``…`` for them.

    Raises:
        ValueError: It is not known what a ``…`` stands for.
    """
    restored = _restored(changes, redacted_server(old), old)
    if REDACTED in str(restored):
        raise ValueError(f"it is not known what {REDACTED!r} stands for: write the value")
    return restored if isinstance(restored, dict) else {}


def _restored(new: JsonValue, shown: JsonValue, old: JsonValue) -> JsonValue:
    if new == shown:
        return old
    if isinstance(new, dict) and isinstance(shown, dict) and isinstance(old, dict):
        return {key: _restored(new[key], shown.get(key), old.get(key)) for key in new}
    if isinstance(new, list) and isinstance(shown, list) and isinstance(old, list):
        return _restored_list(new, shown, old)
    return new


def _restored_list(
    new: list[JsonValue], shown: list[JsonValue], old: list[JsonValue]
) -> list[JsonValue]:
    """Restore secrets, unless it is not clear which: several may be shown alike."""
    restored = [*new]
    wanted, places = _places(new), _places(shown)
    if [context for context, _ in wanted] == [context for context, _ in places]:
        for (_, at), (_, was) in zip(wanted, places, strict=True):
            restored[at] = old[was]
        return restored
    for context, at in wanted:
        values = [old[was] for other, was in places if other == context]
        if values and all(value == values[0] for value in values):
            restored[at] = values[0]
    return restored


def _places(shown: list[JsonValue]) -> list[tuple[tuple[JsonValue, JsonValue], int]]:
    """Return the elements with ``…``, each with the one before it if it has nothing else."""
    return [
        ((shown[at - 1] if at and each == REDACTED else None, each), at)
        for at, each in enumerate(shown)
        if REDACTED in str(each)
    ]


def is_key(text: str) -> bool:
    """Tell whether a text looks like a key: long, of letters and digits."""
    return _RANDOM.fullmatch(text) is not None or _PREFIXED.fullmatch(text) is not None


class _Redactor:
    """Replaces the secrets of an entry, and collects them."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()

    def server(self, entry: JSONObject) -> JSONObject:
        shown = dict(entry)
        if isinstance(variables := entry.get("env"), dict):
            shown["env"] = {name: self._variable(name, each) for name, each in variables.items()}
        if isinstance(headers := entry.get("headers"), dict):
            shown["headers"] = {name: self._value(each) for name, each in headers.items()}
        if isinstance(arguments := entry.get("args"), list):
            program = str(entry.get("command"))
            shown["args"] = [*self._arguments(map(str, arguments), program)]
        for name in ("url", "command"):
            if isinstance(text := entry.get(name), str):
                shown[name] = self._text(text)
        return shown

    def _hidden(self, value: str) -> str:
        """Return what is shown in the place of a secret."""
        self.secrets.update((value, value.strip("'\"")))  # in a command it may be quoted
        if (scheme := _SCHEME.match(value)) is not None:
            credentials = value[scheme.end() :]
            self.secrets.add(credentials)
            if scheme[1].lower() == "basic":
                self._login(_decoded(credentials))
        return REDACTED

    def _login(self, login: str) -> None:
        _, separator, password = login.partition(":")
        self.secrets.update({login, password} if separator else {login})

    def _value(self, value: JsonValue) -> JsonValue:
        if value is None or value == REDACTED:
            return value
        if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
            return value
        return self._hidden(str(value))

    def _variable(self, name: str, value: JsonValue) -> JsonValue:
        """Return what is shown of a variable's value, of which nobody knows what it is."""
        shown = self._value(value) if _SECRET_NAME.search(name) else self._text(str(value))
        is_name = value is None or _PLACEHOLDER.fullmatch(str(value)) is not None
        return shown if is_name else REDACTED

    def _arguments(self, arguments: Iterable[str], program: str = "") -> Iterable[str]:
        option = ""  # of which the next argument is the value
        passwords = _password_options(program, [])
        for text in arguments:
            password = passwords and re.fullmatch(
                rf"(?P<option>{'|'.join(passwords)})((?P<sign>=?)(?P<value>.+))?", text, re.DOTALL
            )
            match = password or _secret_option(text)
            if match is None:
                yield self._option_value(option, text) if option else self._argument(text)
                passwords = _password_options(text, passwords)
                option = ""
            elif match["value"] is None:
                yield text
                option = match["option"]
            else:
                value = self._option_value(match["option"], match["value"])
                yield f"{match['option']}{match['sign']}{value}"
                option = ""
            if password:  # the next one may be that of a program which this one starts
                passwords = [each for each in passwords if each != password["option"]]

    def _argument(self, text: str) -> str:
        match = _OPTION.fullmatch(text)
        if match is None or match["value"] is None:
            return self._words(text)
        return f"{match['option']}={self._words(match['value'])}"

    def _option_value(self, option: str, value: str) -> str:
        if option not in _VARIABLE_OPTIONS:
            return str(self._value(value))
        variable = _VARIABLE.fullmatch(value)
        if variable is None:
            return value if value.isidentifier() else REDACTED
        return f"{variable['name']}={self._variable(variable['name'], variable['value'])}"

    def _words(self, text: str) -> str:
        """Return a text, which may be a command with arguments of its own, as is shown."""
        if text.lstrip().startswith(("{", "[")):  # options as JSON
            return self._hidden(text)
        header = _HEADER.fullmatch(text)
        if header is not None and _SECRET_NAME.search(header["name"]):
            return f"{header['name']}: {self._value(header['value'])}"
        text = _SCHEMED.sub(lambda found: found[1] + self._hidden(found[2]), text)
        pieces = _WORD.findall(text)
        if len(pieces) <= 1:
            if (inner := _QUOTED_COMMAND.fullmatch(text)) is not None:
                return f"{inner['sign']}{self._words(inner['command'])}{inner['sign']}"
            return self._text(text)
        quoted = [_QUOTED_OPTION.fullmatch(piece) for piece in pieces]
        plain = (
            each["option"] if each else piece for each, piece in zip(quoted, pieces, strict=True)
        )
        words = iter(self._arguments(piece for piece in plain if piece.strip()))
        signs = (each["sign"] if each else "" for each in quoted)
        return "".join(
            f"{sign}{next(words)}{sign}" if piece.strip() else piece
            for sign, piece in zip(signs, pieces, strict=True)
        )

    def _text(self, text: str) -> str:
        if _ADDRESS.match(text):
            return self._address(text)
        if (variable := _VARIABLE.fullmatch(text)) is not None:
            name, value = variable["name"], variable["value"]
            is_secret = bool(value) and _SECRET_NAME.search(name) is not None
            return f"{name}={self._value(value) if is_secret else self._text(value)}"
        if is_key(text):
            return self._hidden(text)
        return _NAMED.sub(self._named, _LOGIN.sub(self._login_before, text))

    def _named(self, found: re.Match[str]) -> str:
        return f"{found['name']}{self._value(found['value'])}"

    def _login_before(self, found: re.Match[str]) -> str:
        login = found[0].removesuffix("@")
        self._login(login)
        self.secrets.add(login.rpartition(":")[2])
        return f"{REDACTED}@"

    def _address(self, text: str) -> str:
        try:
            parts = urlsplit(text)
        except ValueError:
            return self._hidden(text)
        login, separator, host = parts.netloc.rpartition("@")
        if separator:
            self._login(login)
        path = "/".join(
            self._hidden(part) if is_key(part) else part for part in parts.path.split("/")
        )
        query = "&".join(map(self._parameter, parts.query.split("&")))
        fragment = self._hidden(parts.fragment) if parts.fragment else ""
        netloc = f"{REDACTED}@{host}" if separator else host
        return parts._replace(netloc=netloc, path=path, query=query, fragment=fragment).geturl()

    def _parameter(self, parameter: str) -> str:
        name, _, value = parameter.partition("=")
        if value:
            return f"{name}={self._value(value)}"
        return self._hidden(name) if is_key(name) else name


def _password_options(word: str, before: list[str]) -> list[str]:
    """Return what the options are after a word that may be a program's name, or end a command."""
    name = re.split(r"[\\/]", word)[-1].removesuffix(".exe")
    return [] if word.endswith(_ENDS_OF_COMMANDS) else _PASSWORD_OPTIONS.get(name, before)


def _secret_option(text: str) -> re.Match[str] | None:
    """Return the match of an option of which the value is a secret, whatever the program."""
    if (short := _SHORT_OPTION.fullmatch(text)) is not None:
        return short
    match = _OPTION.fullmatch(text)
    return match if match is not None and _takes_secret(match["option"]) else None


def _takes_secret(option: str) -> bool:
    is_known = option in _LOGIN_OPTIONS or option in _VARIABLE_OPTIONS
    return is_known or _SECRET_NAME.search(option) is not None


def _decoded(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode()
    except ValueError:
        return credentials
