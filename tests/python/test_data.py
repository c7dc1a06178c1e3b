"""Files and loaders: what is read is what was written, and a loader goes on where it stood."""
import gzip
import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import time

import pytest

import gradus as gd
from gradus import data

ROOT = pathlib.Path(__file__).resolve().parents[2]
MNIST = ROOT / "data/mnist"


def idx_file(path, code, form, shape, values):
    block = struct.pack(f">BBBB{len(shape)}I{len(values)}{form}", 0, 0, code, len(shape), *shape, *values)
    path.write_bytes(gzip.compress(block) if path.suffix == ".gz" else block)
    return path


def test_idx_files(tmp_path):
    for code, form, dtype, name in ((8, "B", gd.uint8, "a"), (9, "b", gd.int8, "b"), (11, "h", gd.int16, "c"), (12, "i", gd.int32, "d.gz"),
                                    (13, "f", gd.float32, "e"), (14, "d", gd.float64, "f.gz")):
        t = data.read_idx(idx_file(tmp_path / name, code, form, (2, 3), range(6)))
        assert t.dtype == dtype and t.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(gd.FormatError):
        data.read_idx(idx_file(tmp_path / "g", 8, "B", (2, 4), range(6)))
    with pytest.raises(OSError):
        data.read_idx(tmp_path / "nothing")
    pixels = idx_file(tmp_path / "images", 8, "B", (3, 2, 2), [0, 255] * 6)
    labels = idx_file(tmp_path / "labels", 8, "B", (3,), [1, 0, 2])
    flat, square = data.idx(pixels, labels), data.idx(pixels, labels, flatten=False, scale=2.0, shift=1.0)
    assert flat.shape == (4,) and flat.classes == 3 and flat[0][0].tolist() == [0, 1, 0, 1] and flat[2][1].item() == 2
    assert square.shape == (2, 2) and square[1][0].tolist() == [[1, 511], [1, 511]]


def test_photographs(tmp_path):
    image = pytest.importorskip("PIL.Image")
    picture = image.new("RGB", (8, 6), (250, 10, 20))
    (tmp_path / "all/a").mkdir(parents=True)
    picture.save(tmp_path / "all/a/1.jpg", quality=95)
    t = data.read_image(tmp_path / "all/a/1.jpg")
    assert t.shape == (3, 6, 8) and t.dtype == gd.uint8 and abs(t[0].to("float32").mean().item() - 250) < 3
    assert data.read_image(tmp_path / "all/a/1.jpg", 3, 4).shape == (3, 3, 4)
    folder = data.image_folder(tmp_path / "all", 4, 4)
    assert len(folder) == 1 and folder[0][0].shape == (3, 4, 4)
    (tmp_path / "list.csv").write_text("all/a/1.jpg,fox\n")
    listed = data.image_list(tmp_path / "list.csv", 4, 4, crop=True, cache=0, dtype="uint8")
    assert listed[0][0].dtype == gd.uint8 and listed.fields[1].class_names == ["fox"]
    with pytest.raises(ValueError, match="neither"):
        data.read_image(tmp_path / "all/a/1.jpg", 3)


def test_pictures_of_tensors(tmp_path):
    grey = gd.tensor([[0, 0.5], [2, -1]])
    data.write_image(tmp_path / "a.pgm", grey)
    assert (tmp_path / "a.pgm").read_bytes() == b"P5\n2 2\n255\n" + bytes([0, 128, 255, 0])
    data.write_image(tmp_path / "a.pgm", grey, low=-1, high=2)
    assert (tmp_path / "a.pgm").read_bytes()[-4:] == bytes([85, 128, 255, 0])
    colours = gd.tensor([[[1, 2]], [[3, 4]], [[5, 255]]], dtype="uint8")
    data.write_image(tmp_path / "a.ppm", colours)
    assert (tmp_path / "a.ppm").read_bytes()[-6:] == bytes([1, 3, 5, 2, 4, 255])
    try:
        data.write_image(tmp_path / "a.png", colours)
        assert data.read_image(tmp_path / "a.png").tolist() == colours.tolist()
    except gd.UnsupportedError:
        pass  # a build without libpng
    with pytest.raises(gd.ShapeError, match="1 to 4 channels"):
        data.write_image(tmp_path / "a.png", gd.zeros((5, 2, 2)))


def test_a_damaged_photograph_is_an_error(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    with pytest.raises((gd.FormatError, gd.UnsupportedError)):
        data.read_image(tmp_path / "x.jpg")


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_tokens_go_on_where_they_stopped(tmp_path, random, workers):
    data.write_tokens(tmp_path / "tokens.bin", range(1000), 1000)

    def loader_of(tokens, seed=3):
        if not random:
            return data.DataLoader(data.tokens(tokens, 50), 2, drop_last=True, seed=seed, workers=workers)
        return data.DataLoader(data.tokens(tokens, 50, stride=1), 2, seed=seed, workers=workers, with_replacement=True, batches_per_epoch=9)
    for tokens in (tmp_path / "tokens.bin", list(range(1000)), gd.arange(1000)):
        loader = loader_of(tokens)
        first = [(x.tolist(), y.tolist()) for x, y in loader]
        assert len(first) == len(loader) == 9
        assert all(y == [[n + 1 for n in row] for row in x] for x, y in first)
        second = [x.tolist() for x, _ in loader]
        assert (second != [x for x, _ in first]) is random
        other = loader_of(tokens)
        for i, _ in enumerate(other):
            if i == 2:
                break
        again = loader_of(tokens)
        again.load_state_dict(other.state_dict())
        assert [x.tolist() for x, _ in again] == [x for x, _ in first[3:]]
        again.load_state_dict(other.state_dict())  # back
        assert [x.tolist() for x, _ in again] == [x for x, _ in first[3:]]
        with pytest.raises(gd.StateError, match="the state is of seed 3"):
            loader_of(tokens, seed=4).load_state_dict(other.state_dict())
    part = data.DataLoader(data.tokens(list(range(1000)), 10, first=500, count=100), 1)
    assert min(x.min().item() for x, _ in part) == 500 and max(y.max().item() for _, y in part) < 600
    with pytest.raises(gd.ShapeError, match="needs them and one more"):
        data.tokens([1, 2, 3], 3)


def test_parts_and_weights_of_data_sets(tmp_path):
    pixels = idx_file(tmp_path / "images", 8, "B", (40, 2), [i for i in range(40) for _ in range(2)])
    labels = idx_file(tmp_path / "labels", 8, "B", (40,), [int(i % 4 == 0) for i in range(40)])
    digits = data.idx(pixels, labels, scale=1.0)
    assert [field.name for field in digits.fields] == ["image", "label"] and digits.fields[1].classes == 2
    first, second = digits.split(0.6, seed=1, stratify="label")
    assert len(first) == 24 and sum(first[:24][1].tolist()) == 6 and len(second) == 16 and sum(second[:16][1].tolist()) == 4
    assert sorted(first[:24][0][:, 0].tolist() + second[:16][0][:, 0].tolist()) == list(range(40))
    tests = [digits.fold(4, i)[1] for i in range(4)]
    assert sorted(n for test in tests for n in test[:10][0][:, 0].tolist()) == list(range(40))
    assert digits.subset([3, 1]).subset([1])[0][0].tolist() == [1, 1]
    assert digits.class_weights() == [40 / 60, 2.0] and digits.sample_weights()[:2] == [2.0, 40 / 60]
    drawn = data.DataLoader(digits, 100, weights=digits.sample_weights(), batches_per_epoch=20)
    assert abs(sum(y.sum().item() for _, y in drawn) - 1000) < 100
    x, y, draws = next(iter(data.DataLoader(digits, 8, draws=3)))
    assert draws.shape == (8, 3) and 0 <= draws.min().item() < draws.max().item() < 1
    total = gd.compile(lambda x, y, draws: draws.sum())
    assert total.run(data.DataLoader(digits, 8, draws=3), 1) == [draws.sum().item()]
    for wrong in ({"weights": [1.0]}, {"batches_per_epoch": 9}):
        with pytest.raises(ValueError):
            len(data.DataLoader(digits, 8, **wrong))
    with pytest.raises(ValueError, match="there is no field 'y'; there are image, label"):
        digits.split(0.5, stratify="y")


@pytest.mark.skipif(not list(MNIST.glob("t10k-images*")), reason="data/mnist is not there")
def test_many_steps_in_one_call():
    def training(one_call):
        gd.seed(3)
        model = gd.nn.Linear(784, 10)
        adam = gd.optim.Adam(model)
        step = gd.compile(lambda x, y: adam.minimize(gd.cross_entropy(model(x), y)))
        loader = data.DataLoader(data.mnist(MNIST, train=False), batch_size=1500, shuffle=True, seed=1)
        if one_call:
            losses = step.run(loader, 3) + step.run(loader) + step.run(loader, 9)  # 7 batches an epoch, the last one smaller
            assert step.stats.traces == 2 and loader.state_dict() == {"epoch": 2, "position": 2, "seed": 1}
        else:
            losses = [step(x, y).item() for _ in range(2) for x, y in loader]
            losses += [step(x, y).item() for (x, y), _ in zip(loader, range(2))]
        return losses, [p.tobytes() for p in model.parameters()]
    assert training(True) == training(False)
    loader = data.DataLoader(data.mnist(MNIST, train=False), batch_size=5000)
    count = gd.compile(lambda x, y: (y * 0).sum() + len(y))
    assert count.run(loader, 4) == [5000.0] * 4
    assert [len(x) for x, _ in loader] == [5000, 5000]  # a run that ended with the epoch leaves the next one whole
    with pytest.raises(gd.StateError, match="another loop"):
        for _ in loader:
            count.run(loader, 1)


def test_data_sets_of_arrays(tmp_path):
    numpy = pytest.importorskip("numpy")
    x, y = numpy.arange(24, dtype="float64").reshape(6, 2, 2), numpy.array([0, 2, 1, 0, 2, 2], "uint8")
    samples = data.from_arrays(x, y, classes={"y": -1})
    assert [(f.name, f.shape, f.dtype, f.classes) for f in samples.fields] == [("x", (2, 2), gd.float64, 0), ("y", (), gd.uint8, 3)]
    x[1, 0, 0] = 99  # shared
    assert samples[1][0].tolist() == [[99, 5], [6, 7]] and samples[[5, 0]][1].tolist() == [2, 0] and samples[-1][1].item() == 2
    numpy.save(tmp_path / "x.npy", x)
    mapped = data.from_arrays(image=numpy.load(tmp_path / "x.npy", mmap_mode="r"), label=y[::2].repeat(2))
    for workers in (0, 3):
        loader = data.DataLoader(mapped, 4, shuffle=True, seed=2, workers=workers)
        batches = [(image.tolist(), label.tolist()) for image, label in loader]
        assert [len(label) for _, label in batches] == [4, 2]
        assert sorted(row for image, _ in batches for row in image) == sorted(x.tolist())
        assert workers == 0 or batches == before
        before = batches
    grown = gd.ones((3, 2)).T  # not contiguous
    part = data.from_arrays(grown, [1, 2])
    del grown
    assert part[0:2][0].tolist() == [[1, 1, 1], [1, 1, 1]] and part[1][1].item() == 2
    with pytest.raises(gd.ShapeError, match=r"as many rows: \(6, 2, 2\), \(5,\)"):
        data.from_arrays(x, y[:5])
    with pytest.raises(gd.ShapeError):
        data.from_arrays(gd.tensor(1.0))
    with pytest.raises(ValueError, match="there is no field 'z'"):
        data.from_arrays(x, classes={"z": 2})
    with pytest.raises(ValueError, match="label 2 of sample 1, of 2 classes"):
        data.from_arrays(x, y, classes={"y": 2})


def test_runs_over_other_loaders_are_loops():
    total = gd.compile(lambda x, y: (x + y).sum())
    for samples in (data.from_arrays(gd.arange(10), gd.arange(10)), [(i, i) for i in range(10)]):
        loader = data.DataLoader(samples, batch_size=4)
        assert total.run(loader) == [12, 44, 34] and total.run(loader, 2) == [12, 44] and total.run(loader, 2) == [34, 12]
    assert total.run([(gd.arange(3), gd.arange(3))], 3) == [6, 6, 6]
    assert gd.compile(lambda x, y: x.sum(), mode="lazy").run(loader, 1) == [22]


def test_sounds(tmp_path):
    import wave
    for name, values in (("a", [0, 16384, -32768]), ("b", [8192] * 9)):
        (tmp_path / name).mkdir()
        with wave.open(str(tmp_path / name / "1.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(struct.pack(f"<{len(values)}h", *values))
    sound, rate = data.read_audio(tmp_path / "a/1.wav")
    assert sound.tolist() == [[0, 0.5, -1]] and rate == 8000
    sounds = data.audio_folder(tmp_path, 5)
    assert [x.tolist() for x, _ in (sounds[0], sounds[1])] == [[[0, 0, 0.5, -1, 0]], [[0.25] * 5]]
    assert sounds.fields[1].class_names == ["a", "b"]
    assert data.audio_folder(tmp_path).shape == (1, 3)
    with pytest.raises(gd.FormatError, match="a/1.wav: 8000 frames a second, not 16000, which was asked for: ffmpeg"):
        data.audio_folder(tmp_path, rate=16000)
    with pytest.raises(OSError):
        data.read_audio(tmp_path / "none.wav")


class Slow:
    """A data set in Python whose samples are ready in another order than they are asked for."""

    def __init__(self, count=23, wrong=None):
        self.count, self.wrong, self.threads = count, wrong, set()

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        self.threads.add(threading.current_thread().name)
        if i == self.wrong:
            raise KeyError("picture17.png")
        time.sleep(0.003 * (i % 3))
        return gd.tensor([float(i), 2.0]), i


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"with_replacement": True, "batches_per_epoch": 5},
                                     {"weights": [1.0 + i for i in range(23)], "drop_last": True}])
def test_data_sets_in_python_and_workers(options):
    library = data.from_arrays(gd.stack([gd.arange(23, dtype="float32"), gd.full((23,), 2.0)], axis=1), gd.arange(23))
    wanted = [(x.tolist(), y.tolist()) for loader in [data.DataLoader(library, 4, **options)] for _ in range(2) for x, y in loader]
    for workers in (0, 1, 3):
        slow = Slow()
        loader = data.DataLoader(slow, 4, workers=workers, **options)
        assert [(x.tolist(), y.tolist()) for _ in range(2) for x, y in loader] == wanted
        assert (threading.current_thread().name in slow.threads) is (workers == 0)
        for i, _ in enumerate(loader):  # left in its midst
            if i == 1:
                break
        again = data.DataLoader(Slow(), 4, workers=workers, **options)
        again.load_state_dict({"epoch": 1, "position": 2, "seed": loader.seed})
        assert [x.tolist() for x, _ in again] == [x for x, _ in wanted[len(loader) + 2:]]
    assert not [t for t in threading.enumerate() if t.name.startswith("gradus-loader")]


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_samples_in_python_reach_the_caller(workers):
    loader = data.DataLoader(Slow(wrong=9), 4, workers=workers)
    with pytest.raises(KeyError, match="picture17.png") as error:
        list(loader)
    if sys.version_info >= (3, 11):
        assert error.value.__notes__ == ["in sample 9 of Slow"]
    with pytest.raises(ValueError, match="length_window and draws"):
        data.DataLoader(Slow(), draws=2)
    with pytest.raises(ValueError, match="collate is for others"):
        data.DataLoader(data.from_arrays(gd.ones((3, 2))), collate=list)


def test_workers_and_compiled_steps():
    """Samples that are made with the library in threads, while the main one traces and trains."""
    step = gd.compile(lambda x, y: (x * 2).sum() + y.sum())
    loader = data.DataLoader(Slow(), 4, workers=3)
    assert sum(step(x, y).item() for x, y in loader) == sum(2 * (i + 2) + i for i in range(23))
    assert step.stats.traces == 2


def test_tables(tmp_path, iris):
    table = data.table(iris)
    assert len(table) == 150 and table.kinds["species"] == "category" and table["species"][0] == "setosa"
    assert "species: category" in repr(table)
    assert table[table.columns[0]][:2] == [5.1, 4.9] and table.missing("species") == 0
    train, validation = table.split("species", 0.2, seed=3)
    assert len(train) == 120 and len(validation) == 30 and sorted(validation[:30][1].tolist()) == [0] * 10 + [1] * 10 + [2] * 10
    encoder = train.encoder
    assert encoder.features == table.columns[:4] and encoder.target == "species"
    assert encoder.classes == ["setosa", "versicolor", "virginica"]
    rows, _ = table.split("species", 0.2, seed=3)
    assert rows[:9][0].tolist() == train[:9][0].tolist() and train.split(0.5)[0].metadata == train.metadata
    means = train[:120][0].mean(axis=0)
    assert abs(means).max().item() < 1e-5 < abs(encoder.encode(table)[0].mean(axis=0)).max().item()  # learnt of the training rows
    x, y = encoder.encode(table, [149, 0])
    assert x.shape == (2, 4) and y.tolist() == [2, 0] and encoder.encode(table, target=False)[1] is None
    assert encoder.decode(y) == ["virginica", "setosa"] == encoder.decode(gd.tensor([[0.0, 1, 2], [3, 1, 2]]))
    encoder.save(tmp_path / "encoder.json")
    for other in (data.TableEncoder.load(tmp_path / "encoder.json"), data.TableEncoder.from_json(encoder.to_json())):
        assert other.encode(table)[0].tobytes() == encoder.encode(table)[0].tobytes() and repr(other) == repr(encoder)
    with pytest.raises(ValueError, match="there is no column 'kind'; there are sepal"):
        table.split("kind")
    with pytest.raises(ValueError, match="there is no column 'id'"):
        table.encoder("species", ignore=["id"])
    with pytest.raises(OSError):
        data.table(tmp_path / "nothing.csv")


def test_tables_of_all_kinds(tmp_path):
    (tmp_path / "a.csv").write_text("id;born;ok;price;city\n1;2024-02-29;yes;1,5;Paris\n"
                                    "2;;no;;Rome\n3;2024-03-01;;4,5;Paris\n4;2024-03-01;no;3;Rome\n")
    table = data.table(tmp_path / "a.csv", separator=";", decimal_comma=True)
    assert table["price"][0] == 1.5 and table["price"][1] != table["price"][1] and table["ok"] == [True, False, None, False]
    assert table["born"][0] == 1709164800 and table["city"] == ["Paris", "Rome", "Paris", "Rome"]
    assert table.known_rows("price") == [0, 2, 3] and table.missing("price") == 1
    table.set_kind("id", "category")
    encoder = table.encoder("price", ignore=["born"], rows=table.known_rows("price"))
    assert "city=Paris" in encoder.features and "id=1" in encoder.features and not encoder.classes
    x, y = encoder.encode(table, [0, 2])
    assert y.shape == (2, 1) and encoder.decode(y) == pytest.approx([1.5, 4.5]) and encoder.dataset(table, [0])[0][1].shape == (1,)
    with pytest.raises(gd.FormatError, match="price"):
        encoder.encode(table)


def test_tables_of_arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    nan = float("nan")
    cells = {
        "i": (pa.array([1, None, 3, -4], pa.int16()), [1, nan, 3, -4]),
        "u": (pa.array([2**63 + 2048, 1, 2, 3], pa.uint64()), [2**63 + 2048, 1, 2, 3]),
        "f": (pa.array([1.5, nan, None, float("inf")]), [1.5, nan, nan, nan]),
        "h": (pa.array([0.5, 1, 2, None], pa.float16()), [0.5, 1, 2, nan]),
        "m": (pa.array([1250, None, -300, 2 * 10**20], pa.decimal128(38, 0)).cast(pa.decimal128(38, 2)), [1250, nan, -300, 2e20]),
        "b": (pa.array([True, False, None, True]), [True, False, None, True]),
        "s": (pa.array(["Paris", "", None, 'Rome, "x"']), ["Paris", "", None, 'Rome, "x"']),
        "long": (pa.array(["x", "y", "x", None], pa.large_string()), ["x", "y", "x", None]),
        "view": (pa.array(["short", "longer than twelve bytes", None, "short"], pa.string_view()),
                 ["short", "longer than twelve bytes", None, "short"]),
        "dictionary": (pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
        "nothing": (pa.nulls(4), [None] * 4),
        "day": (pa.array([19782, -1, None, 0], pa.date32()), [19782 * 86400, -86400, nan, 0]),
        "day64": (pa.array([0, 86400000, None, -86400000], pa.date64()), [0, 86400, nan, -86400]),
        "time": (pa.array([1709214306500000, -1, None, 0], pa.timestamp("us")), [1709214306.5, -1e-6, nan, 0]),
        "zone": (pa.array([0, 1, None, 3600], pa.timestamp("s", tz="Europe/Berlin")), [0, 1, nan, 3600]),
        "iso": (pa.array(["2024-01-01", "2024-01-02", None, "2024-01-03T10:00"]), [1704067200, 1704153600, nan, 1704276000]),
    }
    whole = pa.table({name: values for name, (values, _) in cells.items()})
    parts = pa.concat_tables([whole.slice(1, 2), whole.slice(0, 3)])
    pytest.importorskip("pyarrow.parquet").write_table(whole, tmp_path / "t.parquet")
    for source, rows in ((whole, [0, 1, 2, 3]), (parts, [1, 2, 0, 1, 2]), (tmp_path / "t.parquet", [0, 1, 2, 3]),
                         (pa.RecordBatchReader.from_batches(whole.schema, whole.to_batches()), [0, 1, 2, 3])):
        table = data.table(source)
        assert len(table) == len(rows) and table.columns == list(cells)
        for name, (_, wanted) in cells.items():
            found = [wanted[row] for row in rows]
            assert table[name] == pytest.approx(found, nan_ok=True) if isinstance(found[0], (int, float)) else table[name] == found, name
            assert table.missing(name) == sum(n is None or n != n for n in found)
    kinds = data.table(whole).kinds
    assert [kinds[name] for name in ("i", "b", "s", "dictionary", "day", "iso", "nothing")] == \
        ["number", "boolean", "category", "category", "time", "time", "text"]
    for wrong, kind, sentence in ((pa.table({"l": [[1], [2]]}), gd.UnsupportedError, '"l" has the type "\\+l" of Arrow'),
                                  (pa.table({"a": pa.array([], pa.int8())}), gd.FormatError, "no rows"),
                                  (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), gd.FormatError,
                                   'two columns are called "a"')):
        with pytest.raises(kind, match=sentence):
            data.table(wrong)

    def batches():
        yield whole.to_batches()[0]
        raise ValueError("the third file is missing")
    with pytest.raises(OSError, match="the third file is missing"):
        data.table(pa.RecordBatchReader.from_batches(whole.schema, batches()))


def test_files_of_arrow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    whole = pa.table({"a": [1, None, 3], "city": ["Paris", "Rome", None]})
    with pa.OSFile(str(tmp_path / "file.arrow"), "w") as file, pa.ipc.new_file(file, whole.schema) as writer:
        writer.write(whole)
    with pa.OSFile(str(tmp_path / "stream.arrow"), "w") as file, pa.ipc.new_stream(file, whole.schema) as writer:
        writer.write(whole)
    (tmp_path / "s.ARROWS").write_bytes((tmp_path / "stream.arrow").read_bytes())
    (tmp_path / "f.ipc").write_bytes((tmp_path / "file.arrow").read_bytes())
    feather.write_feather(whole, str(tmp_path / "t.feather"))
    for name in ("file.arrow", "stream.arrow", "s.ARROWS", "f.ipc", "t.feather"):
        table = data.table(tmp_path / name)
        assert table.columns == ["a", "city"] and table["a"] == pytest.approx([1, float("nan"), 3], nan_ok=True), name
        assert table["city"] == ["Paris", "Rome", None], name
    for name in ("cut.arrow", "cut.feather", "cut.parquet"):
        (tmp_path / name).write_bytes((tmp_path / "file.arrow").read_bytes()[:40])
        with pytest.raises(gd.FormatError, match=name):
            data.table(tmp_path / name)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_of_other_libraries(library, iris):
    pytest.importorskip("pyarrow")
    frame = pytest.importorskip(library).read_csv(str(iris))
    ours, theirs = data.table(iris), data.table(frame)
    assert theirs.kinds == ours.kinds and all(theirs[name] == ours[name] for name in ours.columns)
    a, b = (table.split("species", seed=2)[0] for table in (ours, theirs))
    assert a.metadata == b.metadata and a[:len(a)][0].tobytes() == b[:len(b)][0].tobytes()


def test_the_shell_takes_what_fit_made(tmp_path, iris):
    tool = shutil.which("gradus") or ROOT / "build/release/gradus"
    if not pathlib.Path(tool).exists():
        pytest.skip("the tool is not built")
    table = data.table(iris)
    train, validation = table.split("species")
    gd.seed(1)
    model = gd.nn.Model.from_json('{"input": [4], "layers": [{"name": "a", "type": "linear", "units": 16, "activation": "relu"}, '
                                  '{"name": "out", "type": "linear", "units": 3}]}')
    records = gd.fit(model, gd.optim.Adam(model, lr=0.01), data.DataLoader(train, 16, shuffle=True), 10, validation=validation,
                     metrics={"accuracy": gd.accuracy}, run=tmp_path / "r", progress=False)
    best = min(records, key=lambda record: record["validation_loss"])

    def shell(*words):
        return subprocess.run([tool, *map(str, words)], capture_output=True, text=True)
    said = shell("eval", tmp_path / "r").stdout
    assert f"22 rows kept for validation: accuracy {100 * best['validation_accuracy']:.2f} %, loss {best['validation_loss']:.4f}" in said
    said = shell("predict", tmp_path / "r", iris).stdout.splitlines()
    encoder = data.TableEncoder.load(tmp_path / "r")
    assert [line.split(",")[0] for line in said[1:]] == encoder.decode(model.eval()(encoder.encode(table)[0]))
    assert "validation/accuracy" in shell("compare", tmp_path / "r").stdout
    numpy = pytest.importorskip("numpy")
    x, y = encoder.encode(table)
    numpy.savez(tmp_path / "new.npz", x=numpy.asarray(x), y=numpy.asarray(y))
    samples = data.from_arrays(x, y, classes={"y": -1})
    records = gd.fit(model, gd.optim.Adam(model, lr=0.01), data.DataLoader(samples, 16), 2, validation=samples, run=tmp_path / "a",
                     progress=False)
    assert "150 samples: accuracy" in (said := shell("eval", tmp_path / "a", tmp_path / "new.npz").stdout)
    assert f"loss {min(record['validation_loss'] for record in records):.4f}" in said
    said = shell("predict", tmp_path / "a", tmp_path / "new.npz").stdout.splitlines()
    assert [int(line.split(",")[0]) for line in said[1:]] == gd.argmax(model.eval()(x), -1).tolist()
    resumed = shell("train", "--resume", tmp_path / "r")
    assert resumed.returncode == 1 and "gd.fit" in resumed.stderr
