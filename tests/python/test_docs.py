"""What the documents and examples show is what happens."""
import doctest
import pathlib
import re
import shutil
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
@pytest.mark.parametrize("name", ["docs/python.md", "docs/guide/10-from-python.md"])
def test_chapters(name, monkeypatch):
    if "guide" in name and not list((ROOT / "data/mnist").glob("t10k-images*")):
        pytest.skip("data/mnist is not there")
    monkeypatch.chdir(ROOT)
    chapter = ROOT / name
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


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.skipif(not list((ROOT / "data/mnist").glob("train-images*")), reason="data/mnist is not there")
def test_mnist_ends_with_the_bits_of_c(tmp_path):
    """examples/mnist.c over the same library, and examples/python/mnist.py: the same lines, and the same file of weights."""
    source = (ROOT / "examples/mnist.c").read_text()
    assert source.count("EPOCHS = 10") == 1
    (tmp_path / "mnist.c").write_text(source.replace("EPOCHS = 10", "EPOCHS = 1"))
    (tmp_path / "lib").mkdir()
    library, brought = tmp_path / "lib" / "libgradus.so", pathlib.Path(gd._lib.PATH).parents[1] / "gradus.libs"
    shutil.copy(gd._lib.PATH, library)
    if brought.exists():  # a wheel's, which it finds from where it lies
        (tmp_path / "gradus.libs").symlink_to(brought)
    subprocess.run(["cc", "-std=c11", f"-I{ROOT}/include", "mnist.c", library, f"-Wl,-rpath,{library.parent}",
                    f"-Wl,-rpath-link,{brought}", "-o", "mnist"], cwd=tmp_path, check=True)
    said, files = [], []
    soname = re.search(r"libgradus\.so[.0-9]*", subprocess.run(["ldd", tmp_path / "mnist"], capture_output=True, text=True).stdout).group()
    if soname != "libgradus.so":
        shutil.copy(gd._lib.PATH, library.with_name(soname))
    for name, words in (("c", [tmp_path / "mnist"]), ("python", [sys.executable, ROOT / "examples/python/mnist.py", "1"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").symlink_to(ROOT / "data")
        run = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path / name, env=environment())
        assert run.returncode == 0, run.stderr
        said.append(run.stdout)
        values = gd.load(tmp_path / name / "mnist_mlp.safetensors")
        files.append({path: t.tobytes() for path, t in values.items()})
    assert said[0] == said[1] and files[0] == files[1] and len(files[0]) == 6


def test_names_of_the_package_have_docstrings():
    missing = [name for name in gd.__all__ if callable(getattr(gd, name)) and not getattr(gd, name).__doc__]
    assert not missing
