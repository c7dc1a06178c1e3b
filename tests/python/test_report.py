"""Logs of runs: read back by TensorBoard itself, by json, csv and the library."""
import csv
import json
import math
import pathlib
import subprocess

import numpy as np
import pytest

import gradus as gd
from gradus import report


def open_log(folder, **options):
    try:
        return report.RunLog.open(folder, **options)
    except gd.UnsupportedError as reason:
        pytest.skip(str(reason))


def write(folder):
    log = open_log(folder, tensorboard=True, csv=True)
    log.hyperparameters(["optimizer.lr", "model", "shuffle"], ["0.5", "mlp", "true"])
    for step in range(5):
        log.scalars(step, step // 2, ["train/loss", "validation/accuracy"], [1 / (step + 1), step / 4])
    log.scalar(4, "odd", math.nan)
    log.histogram(2, "weights", gd.asarray(np.linspace(-1, 1, 1000), dtype="float32"))
    log.text(3, "note", "*Grüße*")
    return log


def read_events(folder):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(folder), size_guidance={"tensors": 0, "images": 0, "scalars": 0, "histograms": 0})
    read.Reload()
    return read


def test_tensorboard_reads_scalars_histograms_and_texts(tmp_path):
    write(tmp_path).close()
    read = read_events(tmp_path)
    assert set(read.Tags()["scalars"]) == {"train/loss", "validation/accuracy", "odd"}
    loss = read.Scalars("train/loss")
    assert [e.step for e in loss] == [0, 1, 2, 3, 4]
    assert [e.value for e in loss] == [np.float32(1 / (n + 1)) for n in range(5)]
    assert all(abs(e.wall_time - loss[0].wall_time) < 60 for e in loss) and loss[0].wall_time > 1.7e9
    assert math.isnan(read.Scalars("odd")[0].value)
    (histogram,) = read.Histograms("weights")
    value = histogram.histogram_value
    assert histogram.step == 2 and value.num == 1000 and sum(value.bucket) == 1000
    assert value.min == -1 and value.max == 1 and len(value.bucket) == len(value.bucket_limit) == 64
    assert value.bucket_limit[-1] == 1 and abs(value.sum) < 1e-3 and abs(value.sum_squares - 1000 / 3) < 1
    assert [e.tensor_proto.string_val[0].decode() for e in read.Tensors("note")] == ["*Grüße*"]


def test_tensorboard_reads_hyperparameters(tmp_path):
    write(tmp_path).close()
    read = read_events(tmp_path)
    from tensorboard.plugins.hparams import plugin_data_pb2
    content = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["optimizer.lr"].number_value == 0.5
    assert start.hparams["model"].string_value == "mlp" and start.hparams["shuffle"].bool_value is True


def test_tensorboard_reads_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    log = open_log(tmp_path, tensorboard=True)
    x = np.zeros((3, 3, 4, 5), np.float32)  # three images of 4 x 5
    x[0, 0], x[1, 1], x[2, 2, 0, 0] = 1, 0.5, 7
    try:
        log.image(1, "first", x)
    except gd.UnsupportedError as reason:
        pytest.skip(str(reason))
    log.image(1, "grey", np.arange(12, dtype=np.uint8).reshape(1, 3, 4))
    log.close()
    read = read_events(tmp_path)
    (event,) = read.Images("first")
    assert (event.step, event.height, event.width) == (1, 9, 11)  # 2 x 2 with a line between
    import io
    pixels = np.asarray(image.open(io.BytesIO(event.encoded_image_string)))
    assert pixels.shape == (9, 11, 3)
    assert (pixels[:4, :5] == [255, 0, 0]).all() and (pixels[:4, 6:] == [0, 128, 0]).all() and (pixels[4] == 128).all()
    assert (pixels[5, 0] == [0, 0, 255]).all() and (pixels[6:, :5] == 0).all()
    grey = image.open(io.BytesIO(read.Images("grey")[0].encoded_image_string))
    assert grey.mode == "L" and (np.asarray(grey) == np.arange(12).reshape(3, 4)).all()


def test_tensorboard_reads_graphs(tmp_path):
    log = open_log(tmp_path, tensorboard=True)
    model = gd.nn.Sequential(gd.nn.Linear(4, 3), gd.nn.ReLU(), gd.nn.Linear(3, 2))
    loss = gd.cross_entropy(model(gd.asarray(np.ones((5, 4), np.float32))), gd.asarray(np.zeros(5, np.int64)))
    log.graph(7, loss)
    log.close()
    graph = read_events(tmp_path).Graph()
    nodes = {node.name: node for node in graph.node}
    assert len(nodes) == len(graph.node), "names are there once"
    assert all(name in nodes for node in graph.node for name in node.input)
    ops = [node.op for node in graph.node]
    assert ops.count("Parameter") == 4 and ops.count("relu") == 1
    relu = next(node for node in graph.node if node.op == "relu")
    (below,) = relu.input
    assert nodes[below].op == "add"
    (shape,) = nodes["parameter"].attr["_output_shapes"].list.shape
    assert [d.size for d in shape.dim] == [4, 3] and nodes["parameter"].attr["dtype"].type == 1
    assert graph.versions.producer > 0 and graph.node[-1].op not in ("Parameter", "Placeholder")


def test_tensorboard_reads_what_the_tool_logs(tmp_path):
    root = pathlib.Path(__file__).resolve().parents[2]
    tool = root / "build" / "release" / "gradus"
    if not tool.is_file():
        pytest.skip("the tool is not built")
    pytest.importorskip("tensorboard")
    done = subprocess.run([tool, "train", root / "tests/data/iris.csv", "--target", "species", "--epochs", "2", "--tensorboard",
                           "--run", tmp_path / "run"], capture_output=True, text=True, check=False)
    if "protobuf-c" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    read = read_events(tmp_path / "run")
    tags = read.Tags()
    assert {"train/loss", "validation/accuracy", "lr", "time/forward", "time/backward", "memory"} < set(tags["scalars"])
    weights = [name for name in tags["histograms"] if name.startswith("weights/")]
    assert weights and all(name.replace("weights/", "gradients/") in tags["histograms"] for name in weights)
    assert [e.step for e in read.Histograms(weights[0])] == [4, 8]
    nodes = {node.name: node for node in read.Graph().node}
    assert nodes["fc1/weight"].op == "Parameter" and nodes["fc1/matmul"].input[1] == "fc1/weight"
    assert b"linear" in read.Tensors("network")[0].tensor_proto.string_val[0]
    from tensorboard.plugins.hparams import plugin_data_pb2
    content = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams["epochs"].number_value == 2


def test_prometheus_reads_the_newest_values(tmp_path):
    parser = pytest.importorskip("prometheus_client.parser")
    name = 'of "quotes" and \\ strokes, häßlich'
    log = open_log(tmp_path / 'a "run"', prometheus=str(tmp_path / "m.prom"))
    log.scalars(3, 1, ["train/loss", name, "none"], [0.5, 1e30, math.nan])
    log.scalars(7, 2, ["train/loss"], [0.1])
    log.close()
    families = {family.name: family for family in parser.text_string_to_metric_families((tmp_path / "m.prom").read_text())}
    assert set(families) == {"gradus_run_step", "gradus_run_epoch", "gradus_run_seconds", "gradus_run_timestamp_seconds", "gradus_run_metric"}
    assert all(family.type == "gauge" and family.documentation for family in families.values())
    assert [(sample.labels, sample.value) for sample in families["gradus_run_step"].samples] == [({"run": 'a "run"'}, 7)]
    values = {sample.labels["name"]: sample.value for sample in families["gradus_run_metric"].samples}
    assert values["train/loss"] == 0.1 and values[name] == 1e30 and math.isnan(values["none"])


def test_a_resumed_log_has_each_step_once(tmp_path):
    write(tmp_path).close()
    log = report.RunLog.open(tmp_path, tensorboard=True, csv=True, resume_step=2)
    for step in (3, 4, 5):
        log.scalars(step, step // 2, ["train/loss", "validation/accuracy"], [10 + step, 0.0])
    log.close()
    expected = [1, 1 / 2, 1 / 3, 13, 14, 15]
    loss = read_events(tmp_path).Scalars("train/loss")
    assert [e.step for e in loss] == [0, 1, 2, 3, 4, 5]
    assert [e.value for e in loss] == [np.float32(v) for v in expected]
    with open(tmp_path / "metrics.jsonl", encoding="utf-8") as lines:
        read = [json.loads(line) for line in lines]
    assert [line["train/loss"] for line in read] == expected and [line["step"] for line in read] == list(range(6))
    with open(tmp_path / "metrics.csv", newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["train/loss"]) for row in rows] == expected and rows[3]["odd"] == ""
    times = [line["time"] for line in read]
    assert times == sorted(times)


def test_runs_are_read_back(tmp_path):
    log = write(tmp_path)
    log.flush()
    run = report.History.load(tmp_path)
    found = report.metrics(run)
    assert list(found) == ["epoch", "train/loss", "validation/accuracy", "odd"]
    steps, times, values = found["train/loss"]
    assert steps == [0, 1, 2, 3, 4] and values == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5] and len(times) == 5
    assert math.isnan(found["odd"][2][0])
    assert report.options(run) == {"optimizer.lr": "0.5", "model": "mlp", "shuffle": "true"}
    with pytest.raises(gd.StateError, match="writes it"):
        report.RunLog.open(tmp_path)
    with pytest.raises(ValueError, match="differ in length"):
        log.scalars(9, 0, ["a"], [1.0, 2.0])
    log.close()
    with pytest.raises(gd.StateError, match="is there already"):
        report.RunLog.open(tmp_path)


def test_charts_are_drawn(tmp_path):
    import xml.dom.minidom
    chart = report.Chart.create(title="Loss <of> training", x_label="step")
    chart.line("train", range(100), np.linspace(2, 1, 100), smoothing=0.9)
    chart.line("test", [0, 50, 99], [2.0, math.nan, 1.5], dashed=True)
    chart.mark(50.0, "half")
    chart.save(tmp_path / "loss.svg")
    svg = (tmp_path / "loss.svg").read_text(encoding="utf-8")
    assert svg == chart.svg()
    texts = ["".join(n.data for n in t.childNodes) for t in xml.dom.minidom.parseString(svg).getElementsByTagName("text")]
    assert {"Loss <of> training", "step", "train", "test", "half"} < set(texts)
    assert "a train   b test" in chart.text(60, 15, "unicode") and "\033[" in chart.text(60, 15, "colour")
    with pytest.raises(ValueError, match="differ in length"):
        chart.line("odd", [1, 2], [1])


def test_charts_of_metrics(tmp_path):
    ranking = gd.metrics.Ranking.create()
    ranking.add(gd.asarray([0.1, 0.4, 0.35, 0.8]), gd.asarray([0, 0, 1, 1]))
    false_positive, true_positive, thresholds = ranking.roc()
    assert false_positive.tolist() == [0, 0, 0.5, 0.5, 1] and true_positive.tolist() == [0, 0.5, 0.5, 1, 1]
    assert thresholds.shape == (5,)
    assert "area 0.7500" in report.Chart.roc(ranking).svg()
    assert "average precision 0.8333" in report.Chart.precision_recall(ranking).svg()
    confusion = gd.metrics.Confusion.create(2)
    confusion.add(gd.asarray([0, 1, 1]), gd.asarray([0, 0, 1]))
    assert confusion.matrix().tolist() == [[1, 1], [0, 1]]
    assert "cats" in report.Chart.confusion(confusion, ["cats", "dogs"]).svg()
    assert report.Chart.images(np.eye(3, dtype=np.float32)[None], False).text(20, 10, "ascii") == "== \n  =\n"
