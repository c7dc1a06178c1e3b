"""What is generated from the headers: complete, and laid out as the compiler does."""
import inspect
import pathlib
import shutil
import subprocess
import sys

import pytest

import gradus as gd
from gradus import _api, _lib, _objects, _ops

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_function_is_in_python_or_explained():
    run = subprocess.run([sys.executable, ROOT / "tools/gen-python", "--check", ROOT / "include"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_every_function_is_in_the_library():
    for name in _api.FUNCTIONS:
        assert getattr(_lib.C, name), name


def structs():
    return [s for s in vars(_api).values() if inspect.isclass(s) and issubclass(s, _api.Struct) and s is not _api.Struct]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_structs_are_laid_out_as_in_c(tmp_path):
    lines = ["#include <gradus/gradus.h>", "#include <stdio.h>", "int main(void) {"]
    for struct in structs():
        lines.append(f'printf("{struct.__name__} %zu\\n", sizeof({struct.__name__}));')
        lines += [f'printf("{struct.__name__}.{name} %zu\\n", offsetof({struct.__name__}, {name}));' for name, _ in struct._fields_]
    (tmp_path / "layout.c").write_text("\n".join([*lines, "}"]))
    subprocess.run(["cc", "-std=c11", f"-I{ROOT}/include", tmp_path / "layout.c", "-o", tmp_path / "layout"], check=True)
    said = dict(line.split() for line in subprocess.run([tmp_path / "layout"], capture_output=True, text=True).stdout.splitlines())
    for struct in structs():
        from ctypes import sizeof
        assert sizeof(struct) == int(said[struct.__name__]), struct.__name__
        for name, _ in struct._fields_:
            assert getattr(struct, name).offset == int(said[f"{struct.__name__}.{name}"]), f"{struct.__name__}.{name}"


def test_defaults_are_those_of_the_library():
    """What the headers say as GD_DEFAULT is what gd_options_default fills in."""
    from ctypes import byref, c_char_p, sizeof

    from gradus._convert import options_of
    checked = 0
    for struct in structs():
        if struct._fields_[0][0] != "size":
            continue
        filled = struct()
        assert _lib.C.gd_options_default(struct.__name__.encode(), byref(filled), sizeof(struct)) == 0, struct.__name__
        ours = options_of(struct)
        for name, kind in struct._fields_:
            if kind is c_char_p:  # texts lie elsewhere
                assert getattr(filled, name) == getattr(ours, name), (struct.__name__, name)
                setattr(filled, name, None)
                setattr(ours, name, None)
        assert bytes(filled) == bytes(ours), struct.__name__
        checked += 1
    assert checked > 10


def test_functions_show_their_defaults_and_the_headers_words():
    assert [(p.name, p.default) for p in inspect.signature(gd.sum).parameters.values()] == \
        [("x", inspect.Parameter.empty), ("axis", None), ("keepdims", False), ("dtype", None)]
    parameters = inspect.signature(_ops.adamw).parameters
    assert parameters["lr"].default == 1e-3 and parameters["weight_decay"].default == 0.01
    assert "rounded once" in gd.softmax.__doc__ or "stable" in gd.softmax.__doc__
    assert gd.Tensor.softmax is gd.softmax or gd.Tensor.softmax.__doc__ == "As gd.softmax."


def test_objects_have_constructors_and_methods():
    confusion = gd.metrics.Confusion(3)
    confusion.add(gd.tensor([0, 1, 2, 2]), gd.tensor([0, 1, 1, 2]))
    assert confusion.count(1, 2) == 1
    assert confusion.score("micro").f1 == 0.75
    confusion.close()
    with pytest.raises(gd.StateError, match="closed"):
        confusion.score("micro")


def test_a_library_of_other_headers_is_refused(tmp_path):
    package = tmp_path / "gradus"
    shutil.copytree(pathlib.Path(gd.__file__).parent, package)
    api = (package / "_api.py").read_text()
    (package / "_api.py").write_text(api.replace(_api.HASH, "0" * 64))
    run = subprocess.run([sys.executable, "-c", "import gradus"], capture_output=True, text=True, cwd=tmp_path,
                         env={"PYTHONPATH": str(tmp_path), "GRADUS_LIBRARY": _lib.PATH})
    assert run.returncode != 0 and "built from other headers" in run.stderr


def test_classes_for_opaque_types():
    assert {"Confusion", "Loader", "Module", "Optimizer", "Tokenizer"} <= set(dir(_objects))
