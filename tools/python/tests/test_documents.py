"""The examples of README and of the docstrings run, and the stubs say what there is."""

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import icecore
import icecore._native
import icecore.proof
from conftest import COMMAND

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_of_readme_run(tmp_path, monkeypatch, capsys):
    for name, version in {"duckdb": "1", "pandas": "3", "polars": "1", "pyarrow": "14"}.items():
        pytest.importorskip(name, minversion=version)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    names = {}
    environment = {**os.environ, "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}"}
    for language, text in blocks:
        if language == "sh":
            subprocess.run(["bash", "-eu", "-c", text], check=True, capture_output=True, env=environment)
        elif language == "python":
            exec(compile(text, str(README), "exec"), names)
    assert [language for language, _ in blocks].count("python") >= 6
    assert capsys.readouterr().out == "b'alice' b'100' 1\nthe proof is of another value\n"


def test_the_example_in_the_readme_of_the_repository_runs(sample, monkeypatch):
    pytest.importorskip("polars")
    monkeypatch.chdir(sample.parent)
    text = (Path(__file__).parents[3] / "README.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names = {}
    exec(example, names)
    assert names["state"]["value"].to_list() == [b"80", b"7", b"20"]


def test_the_examples_of_docstrings_run(sample, monkeypatch):
    monkeypatch.chdir(sample.parent)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    places = [icecore, icecore._native, icecore.proof, icecore._native.Archive, icecore._native.Rows]
    places += [icecore._native.open, icecore._native.verify]
    for owner in (icecore.Archive, icecore.Rows):
        places += [member for name, member in vars(owner).items() if not name.startswith("_")]
    found = set()
    for place in places:
        name = getattr(place, "__qualname__", place.__name__)
        text = inspect.getdoc(place) or ""
        for test in finder.find(place, name, globs={}) if inspect.ismodule(place) else parsed(text, name):
            test.globs.update(icecore=icecore, archive=icecore.open("chain.ice"))
            if test.examples:
                found.add(test.name)
                runner.run(test)
    assert runner.failures == 0 and runner.tries > 20
    public = {f"Archive.{name}" for name in vars(icecore.Archive) if not name.startswith("_")}
    assert public - found <= {"Archive.close", "Archive.closed"}, "every method has an example"


def parsed(text, name):
    return [doctest.DocTestParser().get_doctest(text, {}, name, None, 0)]


def test_the_stubs_say_what_there_is():
    path = Path(icecore.__file__).with_name("_native.pyi")
    assert path.with_name("py.typed").exists()
    stubs = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            stubs[node.name] = None
            stubs.update({f"{node.name}.{item.name}": item for item in node.body if isinstance(item, ast.FunctionDef)})
        elif isinstance(node, ast.FunctionDef):
            stubs[node.name] = node
    there = {name: value for name, value in vars(icecore._native).items() if not name.startswith("_")}
    kinds = {name: value for name, value in there.items() if isinstance(value, type)}
    methods = {
        f"{kind}.{name}": value
        for kind, owner in kinds.items()
        for name, value in vars(owner).items()
        if not name.startswith("_") or name in ("__enter__", "__exit__", "__iter__", "__next__")
        or name.startswith("__arrow")
    }
    assert set(stubs) == set(there) | set(methods)
    for name, value in {**there, **methods}.items():
        if not callable(value) or isinstance(value, type) or name.endswith("__"):
            continue
        arguments = stubs[name].args
        stub = [argument.arg for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        assert stub == list(inspect.signature(value).parameters), name
        assert value.__doc__, f"{name} has no text"


def test_the_types_hold(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-p", "icecore"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout
