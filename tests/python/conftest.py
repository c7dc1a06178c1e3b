"""What the tests of the Python package share."""
import gc
import os
import pathlib
import signal

import pytest

import gradus as gd


def environment():
    """Of a process that finds the package as this one does, from any folder."""
    return {**os.environ, "PYTHONPATH": str(pathlib.Path(gd.__file__).parent.parent)}


@pytest.fixture
def iris():
    return pathlib.Path(__file__).resolve().parents[1] / "data/iris.csv"


@pytest.fixture(autouse=True)
def nothing_leaks(request):
    """Live tensors of the library after each test are what they were before it."""
    gc.collect()
    before = gd.memory().live_tensors
    yield
    if "keeps" in request.keywords:
        return
    gc.collect()
    assert gd.memory().live_tensors == before, "tensors have been left over"


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that began this in the background: the tests send it themselves
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "keeps: tensors outlive the test, by design")


def pytest_terminal_summary(terminalreporter, config):
    for line in getattr(config, "told", []):
        terminalreporter.write_line(line)


def pytest_collection_finish(session):
    """What has been imported stays: the collections of each test need not look at it."""
    gc.collect()
    gc.freeze()
