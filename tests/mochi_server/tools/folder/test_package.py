"""Folders of tools: what loads, what does not, and what is said about it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from mochi_server.tools.base import InvalidArguments, Problem
from mochi_server.tools.folder.package import LoadedPackage, load_package
from mochi_server.tools.loading import FolderSpec

GOOD = 'def {0}(a: int) -> str:\n    """Do it."""\n    return str(a)\n'
BOTH = {
    "__init__.py": '''
from .numbers import add, divide

__all__ = ["add", "divide", "wait"]
__math__ = ["add", "divide"]
__slow__ = ["wait"]
__destructive__ = ["divide"]
__sequential__ = ["wait"]
__timeouts__ = {"wait": 2.5}


async def wait(seconds: int = 1) -> str:
    """Wait a while."""
''',
    "_words.py": 'def say(number: float) -> str:\n    return f"It is {number:g}."\n',
    "lazy.py": "from operator import truediv as quotient\n\n__all__ = ['quotient']\n",
    "numbers.py": '''
from __future__ import annotations

from ._words import say


def add(a: float, b: float) -> str:
    """Add two numbers."""
    return say(a + b)


def divide(a: float, b: float = 2.0) -> str:
    """Divide a number."""
    from .lazy import quotient

    return say(quotient(a, b))
''',
    "text/__init__.py": '''
from .._words import say
from .case import shout

__all__ = ["shout", "spell"]


def spell(word: str) -> str:
    """Spell a word."""
    return say(len(word)) + " " + "-".join(word)
''',
    "text/case.py": GOOD.format("shout"),
    "time_tools/__init__.py": f"""
__all__ = ["weekday"]
__group__ = "time"
__destructive__: list[str] = []


{GOOD.format("weekday")}""",
}
"""Both layouts at once: functions of the folder's own files, and sub-folders."""

Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(files: dict[str, str]) -> Path:
        folder = tmp_path / "tools"
        for name, text in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return folder

    return write


def load(folder: Path, *, subfolders: bool = True) -> LoadedPackage:
    return load_package(FolderSpec(path=folder, subfolders=subfolders), generation="7")


def only_problem(package: LoadedPackage) -> Problem:
    (problem,) = package.description.problems
    return problem


def place(problem: Problem) -> tuple[str, int | None]:
    return Path(problem.file).name, problem.line


def test_both_layouts_load_at_once_with_their_groups(write: Write) -> None:
    package = load(write(BOTH))
    description = package.description
    assert description.problems == ()
    assert list(package.functions) == ["add", "divide", "wait", "shout", "spell", "weekday"]
    assert description.groups == {
        "math": ("add", "divide"),
        "slow": ("wait",),
        "text": ("shout", "spell"),
        "time": ("weekday",),
    }
    assert package.functions["spell"].function(word="ab") == "It is 2. a-b"
    assert package.functions["divide"].function(3) == "It is 1.5."


def test_without_subfolders_only_the_folder_itself_is_looked_at(write: Write) -> None:
    package = load(write(BOTH), subfolders=False)
    assert list(package.functions) == ["add", "divide", "wait"]


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    description = load(tmp_path / "none").description
    assert (description.tools, description.problems) == ((), ())


def test_a_file_in_the_place_of_the_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text("")
    assert only_problem(load(tmp_path / "tools")).reason == "is not a folder"


def test_each_load_is_a_generation_of_its_own(write: Write) -> None:
    folder = write({"__init__.py": 'from .m import f\n__all__ = ["f"]\n'})
    body = 'def f() -> str:\n    """Do it."""\n    from .late import word\n    return word\n'
    write({"m.py": body, "late.py": "word = 'old'\n"})
    old = load(folder)
    assert old.functions["f"].function() == "old"
    write({"m.py": body.replace("return word", "return word + '!'"), "late.py": "word = 'new'\n"})
    new = load(folder)
    assert (old.functions["f"].function(), new.functions["f"].function()) == ("old", "new!")


def test_an_edit_in_the_same_second_is_seen(write: Write) -> None:
    text = '__all__ = ["f"]\n' + GOOD.format("f")
    for number in range(5):
        folder = write({"__init__.py": text.replace("str(a)", f"'{number}'")})
        assert load(folder).functions["f"].function(a=1) == str(number)
    assert not (folder / "__pycache__").exists()


def test_forgotten_packages_leave_nothing_among_the_modules(write: Write) -> None:
    folder = write({"__init__.py": 'from .m import f\n__all__ = ["f"]\n', "m.py": GOOD.format("f")})
    load(folder).forget()  # the first one imports what loads need
    before = set(sys.modules)
    package = load(folder)
    assert set(sys.modules) - before
    package.forget()
    assert set(sys.modules) - before == set()
    assert package.functions["f"].function(a=1) == "1"


def test_a_broken_root_hides_no_sub_folder(write: Write) -> None:
    folder = write(
        {
            "__init__.py": "\n\nraise RuntimeError('no')\n",
            "shared.py": "word = 'shared'\n",
            "good/__init__.py": "from ..shared import word\n__all__ = ['f']\n" + GOOD.format("f"),
        }
    )
    package = load(folder)
    assert list(package.functions) == ["f"]
    problem = only_problem(package)
    assert place(problem) == ("__init__.py", 3)
    assert problem.reason == "RuntimeError: no"


def test_a_broken_sub_folder_hides_neither_the_root_nor_another(write: Write) -> None:
    folder = write(
        {
            "__init__.py": "__all__ = ['f']\n" + GOOD.format("f"),
            "bad/__init__.py": "from .deep import x\n",
            "bad/deep.py": "def go():\n    return 1 / 0\nx = go()\n",
            "good/__init__.py": "__all__ = ['g']\n" + GOOD.format("g"),
        }
    )
    package = load(folder)
    assert list(package.functions) == ["f", "g"]
    assert place(only_problem(package)) == ("deep.py", 2)


BROKEN = {
    "syntax": ("x = 1\ndef f(:\n", 2),
    "indent": ("def f():\nreturn 1\n", 2),
    "exit": ("import sys\nsys.exit(3)\n", 2),
    "interrupt": ("raise KeyboardInterrupt\n", 1),
    "generator exit": ("raise GeneratorExit\n", 1),
    "recursion": ("def f():\n    f()\nf()\n", 2),
    "missing module": ("x = 1\nimport there_is_no_such_module\n", 2),
    "no message": (
        "class E(Exception):\n    def __str__(self):\n        raise ValueError\nraise E\n",
        4,
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_whatever_an_import_does_becomes_a_problem_at_its_cause(write: Write, kind: str) -> None:
    text, line = BROKEN[kind]
    folder = write({"__init__.py": "from . import bad\n__all__ = []\n", "bad.py": text})
    assert place(only_problem(load(folder))) == ("bad.py", line)


@pytest.mark.parametrize("data", [b"x = 1\0", b"# coding: nonsense\n", b"x = '\xff'\n"])
def test_a_file_that_is_no_text_of_python_is_named(write: Write, data: bytes) -> None:
    folder = write({"__init__.py": "from . import bad\n"})
    (folder / "bad.py").write_bytes(data)
    assert Path(only_problem(load(folder)).file).name == "bad.py"


def test_a_plain_import_of_a_neighbour_gets_a_hint(write: Write) -> None:
    folder = write({"__init__.py": "from helper import x\n", "helper.py": "x = 1\n"})
    assert "from .helper import" in only_problem(load(folder)).reason


ENDLESS = """
class Any:
    def __getattr__(self, name): return self
    def __call__(self): ...
f = Any()
"""

HOSTILE = """
class Any:
    @property
    def __wrapped__(self): raise SystemExit("no")
    def __call__(self): ...
f = Any()
"""

REFUSED = {
    "hostile": (HOSTILE, "SystemExit: no"),
    "no docstring": ("def f(a: int) -> str:\n    return ''\n", "no docstring"),
    "no hint": ('def f(a) -> str:\n    """Do."""\n', "parameter 'a' has no type hint"),
    "no result": ('def f(a: int):\n    """Do."""\n', "no hint for its result"),
    "none": ('def f(a: int) -> None:\n    """Do."""\n', "returns nothing"),
    "odd result": ('class C: ...\ndef f() -> C:\n    """Do."""\n', "neither text nor JSON"),
    "iterator": (
        'from collections.abc import Iterator\ndef f() -> Iterator[str]:\n    """Do."""\n',
        "no text",
    ),
    "args": ('def f(*a: int) -> str:\n    """Do."""\n', "functools.wraps"),
    "kwargs": ('def f(**a: int) -> str:\n    """Do."""\n', "functools.wraps"),
    "positional": ('def f(a: int, /) -> str:\n    """Do."""\n', "positional-only"),
    "callback": (
        'from typing import Callable\ndef f(b: int, a: Callable[[], int]) -> str:\n    """Do."""\n',
        "parameter 'a': no JSON schema",
    ),
    "unknown hint": ('def f(a: \'Nope\') -> str:\n    """Do."""\n', "cannot be resolved"),
    "generator": ('def f() -> str:\n    """Do."""\n    yield ""\n', "is a generator"),
    "async generator": ('async def f() -> str:\n    """Do."""\n    yield ""\n', "is a generator"),
    "class": ('class f:\n    """Do."""\n', "is a class"),
    "module": ("import json as f\n", "is a module"),
    "number": ("f = 3\n", "is not callable"),
    "builtin": ("from math import sqrt as f\n", "positional-only"),
    "endless": (ENDLESS, "wrapped too often"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_a_tool_is_named_and_hides_no_other(write: Write, kind: str) -> None:
    text, reason = REFUSED[kind]
    folder = write({"__init__.py": f"{text}\n__all__ = ['f', 'g']\n" + GOOD.format("g")})
    package = load(folder)
    assert list(package.functions) == ["g"]
    problem = only_problem(package)
    assert reason in problem.reason
    assert problem.tool == "f"


LISTS = {
    "missing": ("x = 1\n__all__ = ['f', 'gone']\n", 2, "'gone', which does not exist"),
    "text": ("__all__ = 'f'\n", 1, "not a list of names"),
    "numbers": ("__all__ = [1]\n", 1, "not a list of names"),
    "group": ("__all__ = ['f']\n__math__ = ['f', 'gone']\n", 2, "__math__ names 'gone'"),
    "destructive": ("__all__ = ['f']\n__destructive__ = ['gone']\n", 2, "names 'gone'"),
    "destructive text": ("__all__ = ['f']\n__destructive__ = 'f'\n", 2, "not a list"),
    "sequential": ("__all__ = ['f']\n__sequential__ = ('gone',)\n", 2, "names 'gone'"),
    "timeouts": ("__all__ = ['f']\n__timeouts__ = {'gone': 1}\n", 2, "names 'gone'"),
    "no seconds": ("__all__ = ['f']\n__timeouts__ = {'f': -1}\n", 2, "no number of seconds"),
    "timeouts list": ("__all__ = ['f']\n__timeouts__ = ['f']\n", 2, "not a dict"),
}


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_that_is_wrong_is_named_by_its_line(write: Write, kind: str) -> None:
    text, line, reason = LISTS[kind]
    package = load(write({"__init__.py": text + GOOD.format("f")}))
    problem = only_problem(package)
    assert reason in problem.reason
    assert place(problem) == ("__init__.py", line)
    assert list(package.functions) == (["f"] if "['f'" in text else [])
    if kind.startswith("destructive"):
        assert package.functions["f"].destructive is None, "the list may have meant it"


@pytest.mark.parametrize("listed", [True, False])
def test_a_misspelt_name_among_the_destructive_tools_makes_none_harmless(
    write: Write, listed: bool
) -> None:
    """It may stand for any of them."""
    text = GOOD.format("wipe") + GOOD.format("look") + "__destructive__ = ['wipee']\n"
    folder = write({"__init__.py": text + ("__all__ = ['wipe', 'look']\n" if listed else "")})
    package = load(folder)
    assert "__destructive__ names 'wipee'" in only_problem(package).reason
    assert [tool.destructive for tool in package.description.tools] == [None, None]


def test_what_one_of_two_packages_calls_destructive_is(write: Write) -> None:
    folder = write(
        {
            "__init__.py": "from .a import f\n__all__ = ['f']\n__destructive__ = []\n",
            "a/__init__.py": "__all__ = ['f']\n__destructive__ = ['f']\n" + GOOD.format("f"),
        }
    )
    (tool,) = load(folder).description.tools
    assert tool.destructive is True


@pytest.mark.parametrize("wrong", ["['ff']", "'f'"])
@pytest.mark.parametrize(("other", "origin"), [("__init__.py", ".a"), ("b/__init__.py", "..a")])
def test_a_wrong_list_is_not_made_good_by_that_of_another_package(
    write: Write, wrong: str, other: str, origin: str
) -> None:
    folder = write(
        {
            "a/__init__.py": f"__all__ = ['f']\n__destructive__ = {wrong}\n" + GOOD.format("f"),
            other: f"from {origin} import f\n__all__ = ['f']\n__destructive__ = []\n",
        }
    )
    package = load(folder)
    assert package.functions["f"].destructive is None


@pytest.mark.parametrize("init", ["", "from .wiping import wipe\n__all__ = ['wipe']\n"])
@pytest.mark.parametrize(("listed", "destructive"), [("", None), ("'wipe'", True)])
def test_a_tool_that_its_file_calls_destructive_is_not_harmless(
    write: Write, init: str, listed: str, destructive: bool | None
) -> None:
    folder = write(
        {
            "__init__.py": f"{init}__destructive__ = [{listed}]\n",
            "wiping.py": "__destructive__ = ['wipe']\n" + GOOD.format("wipe"),
        }
    )
    package = load(folder)
    assert package.functions["wipe"].destructive is destructive
    if destructive is None:
        problem = only_problem(package)
        assert (problem.file, problem.line) == (str(folder / "wiping.py"), 1)
        assert "__init__.py only" in problem.reason
    else:
        assert package.description.problems == ()


def test_of_two_tools_with_one_name_the_first_wins(write: Write) -> None:
    folder = write(
        {
            "a/__init__.py": "__all__ = ['f']\n" + GOOD.format("f"),
            "b/__init__.py": "__all__ = ['f']\n" + GOOD.format("f"),
        }
    )
    package = load(folder)
    assert package.functions["f"].file == str(folder / "a" / "__init__.py")
    assert "taken already" in only_problem(package).reason
    assert package.description.groups == {"a": ("f",)}


def test_a_function_exported_twice_is_one_tool_with_all_that_is_said(write: Write) -> None:
    folder = write(
        {
            "__init__.py": "from .a import f\n__all__ = ['f']\n",
            "a/__init__.py": (
                "__all__ = ['f']\n__destructive__ = []\n__sequential__ = ['f']\n"
                "__timeouts__ = {'f': 4}\n" + GOOD.format("f")
            ),
        }
    )
    package = load(folder)
    assert package.description.problems == ()
    tool = package.functions["f"]
    assert (tool.destructive, tool.sequential, tool.timeout) == (False, True, 4)
    assert package.description.groups == {"a": ("f",)}


@pytest.mark.parametrize("init", [None, "", "__group__ = 'mine'\n"])
@pytest.mark.parametrize("inner", ["", "sub/"])
def test_functions_of_a_file_are_tools_where_no_list_leaves_them_out(
    write: Write, init: str | None, inner: str
) -> None:
    """Dropped into the folder; a sub-folder needs its __init__.py."""
    files = {
        f"{inner}mine.py": GOOD.format("f") + GOOD.format("_own"),
        f"{inner}_helper.py": GOOD.format("g"),
        f"{inner}test_mine.py": GOOD.format("h"),
        f"{inner}bare.py": "word = 'no function'\n",
    }
    if init is not None:
        files[f"{inner}__init__.py"] = init
    folder = write(files)
    description = load(folder).description
    if inner and init is None:
        (problem,) = description.problems
        assert (description.tools, problem.severity) == ((), "hint")
        assert problem.file == str(folder / "sub" / "mine.py")
        assert "no __init__.py" in problem.reason
        return
    assert description.problems == ()
    assert [(tool.name, tool.destructive) for tool in description.tools] == [("f", None)]
    group = "mine" if init else "sub" if inner else None
    assert description.groups == ({group: ("f",)} if group else {})


def test_functions_of_the_package_itself_are_tools_without_a_list(write: Write) -> None:
    """Defined in it, or imported from one of its files; nothing from elsewhere."""
    text = "from json import dumps\nfrom .m import f\n__destructive__ = ['f']\n"
    folder = write({"__init__.py": text + GOOD.format("g"), "m.py": GOOD.format("f")})
    description = load(folder).description
    assert description.problems == ()
    assert {tool.name: tool.destructive for tool in description.tools} == {"g": False, "f": True}


def test_what_a_list_leaves_out_is_told_once_a_file_as_a_hint(write: Write) -> None:
    """Helpers without hints or docstring are left alone where the package imports their file."""
    folder = write(
        {
            "__init__.py": "from .m import f as g\nfrom . import helper\n__all__ = ['g']\n",
            "m.py": GOOD.format("f") + GOOD.format("more") + GOOD.format("_own"),
            "helper.py": "def place(path):\n    return path\n",
            "dropped.py": "def wave():\n    return 'hello'\nraise SystemExit('not imported')\n",
            "torn.py": "def f(:\n",
        }
    )
    package = load(folder)
    assert list(package.functions) == ["g"]
    found = [(place(each)[0], each.reason, each.severity) for each in package.description.problems]
    assert [(file, severity) for file, _, severity in found] == [
        ("dropped.py", "hint"), ("m.py", "hint"), ("torn.py", "hint"),
    ]  # fmt: skip
    assert found[0][1] == "left out: wave (__all__ in __init__.py does not name it)"
    assert found[1][1] == "left out: more (__all__ in __init__.py does not name it)"
    assert "SyntaxError" in found[2][1]
    assert package.description.problems[0].as_json()["severity"] == "hint"


def test_a_function_that_lacks_something_is_a_hint_where_nobody_named_it(write: Write) -> None:
    """And a file that has nothing else is not run."""
    folder = write(
        {
            "mine.py": (
                GOOD.format("f")
                + "def helper(a):\n    return a\n"
                + 'def setup(a: int) -> None:\n    """Set up."""\n'
                + 'def show(a: int):\n    """Show."""\n'
            ),
            "script.py": "def main():\n    ...\nraise SystemExit('it was run')\n",
        }
    )
    package = load(folder)
    assert list(package.functions) == ["f"]
    mine, script = package.description.problems
    assert (place(mine), mine.severity) == (("mine.py", None), "hint")
    assert mine.reason.startswith("left out: 'helper' has no docstring; 'show' has no hint")
    assert "'setup' returns nothing" in mine.reason
    assert script.reason == "left out: 'main' has no docstring"


def test_one_broken_file_hides_no_other_where_all_are_tools(write: Write) -> None:
    folder = write(
        {
            "a.py": "x = 1\ndef f(:\n",
            "b.py": "import there_is_no_such_module\n" + GOOD.format("g"),
            "c.py": GOOD.format("h"),
        }
    )
    package = load(folder)
    assert list(package.functions) == ["h"]
    problems = package.description.problems
    assert [(*place(each), each.severity) for each in problems] == [
        ("a.py", 2, "warning"), ("b.py", 1, "warning"),
    ]  # fmt: skip
    assert problems[0].reason.startswith("SyntaxError")


def test_a_files_own_list_says_what_is_public_in_it(write: Write) -> None:
    text = "__all__ = ['f']\n" + GOOD.format("f") + GOOD.format("g")
    package = load(write({"mine.py": text}))
    assert list(package.functions) == ["f"]


def test_folders_that_are_not_meant_are_left_alone(write: Write) -> None:
    bad = "raise RuntimeError\n"
    names = [".git", "__pycache__", "_private", "venv", ".venv", "node_modules", "own_env"]
    folder = write({f"{name}/__init__.py": bad for name in names})
    (folder / "own_env" / "pyvenv.cfg").write_text("")
    assert load(folder).description.problems == ()


def test_links_and_names_with_dots_are_not_followed_and_said_so(write: Write) -> None:
    folder = write({"v1.2/__init__.py": "__all__ = ['f']\n" + GOOD.format("f")})
    (folder / "link").symlink_to(folder / "v1.2")
    package = load(folder)
    assert package.functions == {}
    assert [Path(each.file).name for each in package.description.problems] == ["link", "v1.2"]


WRAPPED = '''
import functools
def twice(function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        return function(*args, **kwargs)
    return run

@twice
def decorated(a: int) -> str:
    """Do it."""
    return str(a * 2)

@twice
async def hidden(a: int) -> str:
    """Do it."""
    return str(a * 2)

def two(a: int, b: int) -> str:
    """Do it."""
    return str(a * b)

partial = functools.partial(two, b=2)

class Doubler:
    """Doubles."""
    def __call__(self, a: int) -> str:
        """Do it."""
        return str(a * 2)
    def method(self, a: int) -> str:
        """Do it."""
        return str(a * 2)
    async def later(self, a: int) -> str:
        """Do it."""
        return str(a * 2)

instance = Doubler()
method = Doubler().method
__all__ = ["decorated", "hidden", "partial", "instance", "method"]
'''


@pytest.mark.parametrize("name", ["decorated", "hidden", "partial", "instance", "method"])
def test_callables_of_every_kind_can_be_tools(write: Write, name: str) -> None:
    package = load(write({"__init__.py": WRAPPED}))
    assert package.description.problems == ()
    tool = package.functions[name]
    assert tool.function(**tool.bind({"a": "21"})) == "42"
    assert tool.description == "Do it."
    assert "Do it." in tool.source
    assert not tool.is_async


def test_an_async_method_is_async(write: Write) -> None:
    text = WRAPPED + "later = Doubler().later\n__all__ = ['later']\n"
    tool = load(write({"__init__.py": text})).functions["later"]
    assert tool.is_async
    assert inspect.iscoroutinefunction(tool.function)


def test_a_module_that_answers_for_itself_cannot_break_the_load(write: Write) -> None:
    text = "__all__ = ['f', 'g']\ndef __getattr__(name):\n    raise SystemExit(name)\n"
    package = load(write({"__init__.py": text, "sub/__init__.py": "__all__ = []\n"}))
    assert place(package.description.problems[0]) == ("__init__.py", 3)


OBJECTS = '''
class StructuredTool:
    """As langchain_core.tools has it: it cannot be called."""
    def __init__(self, function=None, coroutine=None):
        self.name, self.args_schema = "other", type("Schema", (), {})
        self.description = "Described by the object."
        self.func, self.coroutine = function, coroutine

class SimpleTool:
    """As smolagents makes it of a function: ``forward`` has a parameter more than it takes."""
    def __init__(self, function):
        self.name, self.inputs, self.output_type = "other", {}, "string"
        self.description = "Described by the object."
        def forward(*args, **kwargs):
            return function(*args, **kwargs)
        forward.__wrapped__ = function
        self.forward = forward
    def __call__(self, *args, sanitize_inputs_outputs: bool = False, **kwargs):
        raise RuntimeError("not through here")

class Counter:
    """As a class of smolagents' is written by hand."""
    name, output_type = "counter", "string"
    inputs = {"a": {"type": "integer", "description": "What to count."}}
    description = "Described by the object."
    def forward(self, a: int) -> str:
        return str(a * 2)
    def __call__(self, *args, **kwargs):
        raise RuntimeError("not through here")

@StructuredTool
def structured(a: int) -> str:
    """Do it."""
    return str(a * 2)

async def wait(a: int) -> str:
    """Do it."""
    return str(a * 2)
later = StructuredTool(coroutine=wait)

@SimpleTool
def simple(a: int) -> str:
    """Do it."""
    return str(a * 2)

counter = Counter()
'''


@pytest.mark.parametrize("name", ["structured", "later", "simple", "counter"])
def test_a_tool_object_of_another_framework_is_taken_as_its_function(
    write: Write, name: str
) -> None:
    package = load(write({"__init__.py": OBJECTS + f"__all__ = [{name!r}]\n"}))
    assert package.description.problems == ()
    tool = package.functions[name]
    made = tool.function(**tool.bind({"a": "21"}))
    assert (asyncio.run(made) if tool.is_async else made) == "42"
    assert tool.is_async is (name == "later")
    text = "Described by the object." if name == "counter" else "Do it."
    assert tool.description == text
    assert list(tool.parameters["properties"]) == ["a"]


def test_decorated_functions_are_such_objects_where_no_list_names_them(write: Write) -> None:
    assert {"structured", "simple", "wait"} == set(load(write({"mine.py": OBJECTS})).functions)


def test_what_another_program_fills_is_no_parameter_for_the_model(write: Write) -> None:
    """Open WebUI hands such values to its tools; here the function gets its own default."""
    text = (
        "def f(a: int, __user__: dict = {}, __event_emitter__=None) -> str:\n"
        '    """Do it."""\n    return f"{a} {__user__} {__event_emitter__}"\n'
        'def needs(a: int, __request__) -> str:\n    """Do it."""\n    return ""\n'
        "__all__ = ['f', 'needs']\n"
    )
    package = load(write({"__init__.py": text}))
    tool = package.functions["f"]
    assert list(tool.parameters["properties"]) == ["a"]
    assert list(tool.short_parameters) == ["a"]
    assert tool.function(**tool.bind({"a": 1})) == "1 {} None"
    with pytest.raises(InvalidArguments, match="Unknown: __user__"):
        tool.bind({"a": 1, "__user__": {}})
    assert "'__request__' has no type hint" in only_problem(package).reason


def test_reasons_name_the_users_file_not_that_of_a_library(write: Write, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "mochi_test_library.py").write_text(
        "class Search:\n    name = description = 'search'\n"
        "def loose(function):\n    def run(*args, **kwargs):\n        ...\n    return run\n"
    )
    folder = write(
        {
            "__init__.py": "from .m import f\nfrom .m import g\n\n__all__ = ['f', 'g']\n",
            "m.py": (
                "from mochi_test_library import Search, loose\n"
                "@loose\ndef f(a: int) -> str:\n    ...\ng = Search()\n"
            ),
        }
    )
    sys.path.insert(0, str(library))
    try:
        problems = load(folder).description.problems
    finally:
        sys.path.remove(str(library))
        del sys.modules["mochi_test_library"]
    assert [place(each) for each in problems] == [("__init__.py", 1), ("__init__.py", 2)]


def test_a_name_that_no_model_can_call_is_a_problem(write: Write) -> None:
    folder = write({"__init__.py": "__all__ = ['größe']\n" + GOOD.format("größe")})
    assert "no name that models can call" in only_problem(load(folder)).reason


def test_a_module_that_changes_what_a_module_is_cannot_break_the_load(write: Write) -> None:
    text = "import sys\nsys.modules[__name__ + '.sub'] = 3\n__all__ = []\n"
    package = load(write({"__init__.py": text, "sub/__init__.py": "__all__ = ['f']\n"}))
    assert len(package.description.problems) == 1


def test_a_name_that_no_json_can_say_is_told_in_letters_that_it_can(write: Write) -> None:
    problem = only_problem(load(write({"__init__.py": '__all__ = ["a\\ud800"]\n'})))
    assert problem.tool == "a?"
    assert orjson.dumps(problem.as_json())
