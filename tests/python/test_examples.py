"""The examples in examples/python that docs do not show: PPO, and the notebooks."""
import importlib.util
import json
import pathlib

import pytest

from conftest import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.fixture(scope="module")
def ppo():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    spec = importlib.util.spec_from_file_location("ppo", EXAMPLES / "ppo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_ppo_balances_the_pole(ppo):
    agent, returns = ppo.train("CartPole-v1", seed=1, steps=40_000)
    assert sum(returns[:20]) / 20 < 60 and sum(returns[-20:]) / 20 > 150


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_ppo_is_deterministic_to_the_bit(ppo, name):
    runs = [ppo.train(name, seed=seed, steps=2048, rollout=64) for seed in (3, 3, 4)]
    bits = [[p.tobytes() for p in agent.parameters()] for agent, _ in runs]
    assert bits[0] == bits[1] != bits[2] and runs[0][1] == runs[1][1]


def test_ppo_learns_in_one_call_a_rollout(ppo, monkeypatch):
    made, compile = [], ppo.gd.compile
    monkeypatch.setattr(ppo.gd, "compile", lambda *args, **kwargs: made.append(compile(*args, **kwargs)) or made[-1])
    ppo.train("CartPole-v1", steps=1024)
    act, learn = made
    assert (learn.stats.calls, learn.stats.traces) == (4, 1) and (act.stats.calls, act.stats.traces) == (128, 1)
    made.clear()


def test_notebooks_are_committed_without_outputs():
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells), path.name
        assert all(len(line.rstrip("\n")) <= 160 for cell in cells for line in cell["source"]), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, monkeypatch, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/svg+xml" in output.get("data", {}) for output in shown) or path.stem == "gpt"
    assert all(output.output_type != "error" for output in shown)
