"""What type checkers and editors see of the package."""
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import gradus as gd
from conftest import environment

HERE = pathlib.Path(__file__).parent
PACKAGE = pathlib.Path(gd.__file__).parent
NOT_OURS = ("gradus.compat.", "gradus.sklearn")  # the interfaces of others, whose arguments are whatever theirs take
needs_pyright = pytest.mark.skipif(importlib.util.find_spec("pyright") is None or not shutil.which("node"),
                                   reason="pyright or node is not installed")


def pyright(*words):
    run = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", *words], capture_output=True, text=True,
                         env={**environment(), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_GLOBAL_NODE": "1"}, cwd=PACKAGE.parent)
    return json.loads(run.stdout[run.stdout.index("{"):])


@needs_pyright
def test_every_public_name_has_a_type():
    report = pyright("--verifytypes", "gradus", "--ignoreexternal")["typeCompleteness"]
    symbols = [s for s in report["symbols"] if not s["name"].startswith(NOT_OURS)]
    unknown = [f"{s['name']}: {d['message']}" for s in symbols for d in s["diagnostics"] if d["severity"] == "error"]
    assert not unknown, "\n".join(unknown[:40])
    exported = [s for s in symbols if s["isExported"]]
    assert len(exported) > 500 and all(s["isTypeKnown"] and not s["isTypeAmbiguous"] for s in exported)


@needs_pyright
def test_a_typed_program_is_accepted_and_a_wrong_one_is_not():
    found = [(d["range"]["start"]["line"] + 1, d["message"]) for d in pyright(str(HERE / "typed_program.py"))["generalDiagnostics"]
             if d["severity"] == "error"]
    lines = (HERE / "typed_program.py").read_text().splitlines()
    wrong = {i for i, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wrong) >= 5 and {line for line, _ in found} == wrong, found


def test_stubs_and_the_mark_are_in_the_package():
    for name in ("py.typed", "_api.pyi", "_ops.pyi", "_objects.pyi", "_optimizers.py", "nn/_generated.py"):
        assert (PACKAGE / name).is_file(), name
