"""What the documents and examples show is what happens."""
import doctest
import pathlib
import re
import subprocess
import sys

import pytest

import gradus as gd
from conftest import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_readmes_program_is_the_example_and_prints_what_stands_there():
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```python\n(.*?)```", readme, re.S).group(1)
    example = (ROOT / "examples/python/sine.py").read_text()
    assert program == example.split('"""\n', 1)[1]
    run = subprocess.run([sys.executable, ROOT / "examples/python/sine.py"], capture_output=True, text=True, env=environment())
    assert run.returncode == 0, run.stderr
    losses = [float(line.split()[-1]) for line in run.stdout.splitlines()]
    shown = [float(n) for n in re.findall(r"^    step +\d+  loss (\S+)$", readme, re.M)]
    assert len(losses) == 5 and losses == pytest.approx(shown, rel=0.05)  # the digits are those of C, of this machine's instruction set


@pytest.mark.keeps
def test_the_chapter():
    chapter = ROOT / "docs/python.md"
    failed, tried = doctest.testfile(str(chapter), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failed == 0 and tried > 20


@pytest.mark.skipif(not list((ROOT / "data/mnist").glob("train-images*")), reason="data/mnist is not there")
def test_the_mnist_example_prints_the_numbers_of_c(tmp_path):
    (tmp_path / "data").symlink_to(ROOT / "data")
    run = subprocess.run([sys.executable, ROOT / "examples/python/mnist.py", "1"], capture_output=True, text=True, cwd=tmp_path,
                         env=environment())
    assert run.returncode == 0, run.stderr
    loss, accuracy = re.match(r"epoch +1  loss (\S+)  test accuracy (\S+) %", run.stdout).groups()
    assert abs(float(loss) - 0.3708) < 0.005 and abs(float(accuracy) - 92.99) < 1


def test_names_of_the_package_have_docstrings():
    missing = [name for name in gd.__all__ if callable(getattr(gd, name)) and not getattr(gd, name).__doc__]
    assert not missing
