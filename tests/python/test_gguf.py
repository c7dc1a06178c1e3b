"""GGUF files: what is saved here is read by the package gguf as it would write it itself, and what it writes is read here."""
import gc
import pathlib

import numpy as np
import pytest

import gradus as gd

gguf = pytest.importorskip("gguf")

LLAMA = {"decoder": "llama", "vocabulary": 256, "max_length": 16, "layers": 2, "heads": 4, "kv_heads": 2, "width": 64, "hidden": 96, "seed": 5}


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


@pytest.fixture
def model():
    made = gd._objects.LanguageModel.create(**LLAMA)
    yield made
    del made
    gc.collect()


@pytest.mark.keeps
@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "BF16", "F16", "F32"])
def test_the_package_would_write_the_same(model, tmp_path, kind):
    plain, small = str(tmp_path / "plain.gguf"), str(tmp_path / "small.gguf")
    tokenizer = gd.text.Tokenizer.bytes()
    gd.text.save_gguf(model, tokenizer, plain, type="f32")
    gd.text.quantize(plain, small, kind)
    ours, source = tensors(small), tensors(plain)
    assert ours.keys() == source.keys() and len(ours) == 2 + 2 * 9
    for name, t in ours.items():
        assert t.tensor_type.name == (kind if source[name].data.ndim == 2 else "F32")
        assert np.array_equal(t.data, gguf.quantize(source[name].data, t.tensor_type).view(t.data.dtype).reshape(t.data.shape))
    fields = gguf.GGUFReader(small).fields
    assert fields["general.architecture"].contents() == "llama"
    assert fields["llama.attention.head_count_kv"].contents() == 2
    assert fields["tokenizer.ggml.tokens"].contents()[65] == "<0x41>" and fields["tokenizer.ggml.tokens"].contents()[32] == "\u2581"


@pytest.mark.keeps
@pytest.mark.parametrize("kind, short, most", [("Q2_K", "Q4_0", 0.27), ("Q3_K", "Q4_0", 0.15), ("Q4_K", "Q5_0", 0.073), ("Q5_K", "Q5_1", 0.036), ("Q6_K", "Q8_0", 0.0175)])
def test_the_package_reads_k_quants(tmp_path, kind, short, most):
    plain, small, again = (str(tmp_path / name) for name in ("plain.gguf", "small.gguf", "again.gguf"))
    made, tokenizer = gd._objects.LanguageModel.create(**{**LLAMA, "width": 256, "hidden": 96}), gd.text.Tokenizer.bytes()
    gd.text.save_gguf(made, tokenizer, plain, type="f32")
    gd.text.save_gguf(made, tokenizer, small, type=kind.lower())
    gd.text.save_gguf(gd.text.load_model(small), tokenizer, again, type="f32")
    ours, source, read = tensors(small), tensors(plain), tensors(again)
    for name, t in ours.items():
        wide = source[name].data.ndim == 2
        assert t.tensor_type.name == ("F32" if not wide else short if "ffn_down" in name else kind)
        values = gguf.dequantize(t.data, t.tensor_type)
        assert np.array_equal(values, read[name].data)
        if wide and "ffn_down" not in name:
            assert np.linalg.norm(values - source[name].data) < most * np.linalg.norm(source[name].data)


@pytest.mark.keeps
@pytest.mark.parametrize("mixed", [("Q4_K", "Q6_K"), ("Q3_K", "Q4_K"), ("Q5_K", "Q2_K"), ("Q4_K", "Q8_0"), ("Q4_0", "Q4_1"), ("Q8_0", "Q5_1"), ("Q5_0", "Q4_0")])
def test_parts_of_a_matrix_of_two_types_stay_in_blocks(tmp_path, mixed):
    """As a Q4_K_M file has them: queries and keys of one type, values of another. Blocks of 32 and large blocks do not fit each other."""
    made, tokenizer = gd._objects.LanguageModel.create(**{**LLAMA, "width": 256, "hidden": 512}), gd.text.Tokenizer.bytes()
    paths = [str(tmp_path / kind) for kind in mixed]
    for path, kind in zip(paths, mixed):
        gd.text.save_gguf(made, tokenizer, path, type=kind.lower())
    readers, both = [gguf.GGUFReader(path) for path in paths], str(tmp_path / "both.gguf")
    other = {t.name: t for t in readers[1].tensors}
    writer = gguf.GGUFWriter(both, "llama")
    for field in readers[0].fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for t in readers[0].tensors:
        t = other[t.name] if "attn_v" in t.name else t
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    plain, blocks = gd.text.load_model(both), gd.text.load_model(both, quantized=True)
    module, exact = blocks.module(), plain.module()
    there = {module.path(i): module.tensor(i) for i in range(module.count())}
    wanted = {exact.path(i): exact.tensor(i) for i in range(exact.count())}
    assert ("0.self.qkv.values" in there) == (mixed != ("Q4_K", "Q8_0")) and "0.self.out.values" in there
    for name in (path.removesuffix(".values") for path in there if path.endswith(".values")):
        weights = np.asarray(wanted[name + ".weight"])
        got = np.asarray(gd.dequantize(there[name + ".values"], there[name + ".scales"]))
        assert np.array_equal(got, weights if name == "token" else weights.T)
    tokens = [list(range(7, 19))]
    ours, f32 = np.asarray(blocks.forward(tokens)), np.asarray(plain.forward(tokens))
    assert 0 < np.linalg.norm(ours - f32) < 0.02 * np.linalg.norm(f32)


@pytest.mark.keeps
def test_what_is_written_is_reported(model, tmp_path):
    plain, small, tokenizer = str(tmp_path / "plain.gguf"), str(tmp_path / "small.gguf"), gd.text.Tokenizer.bytes()
    gd.text.save_gguf(model, tokenizer, plain, type="f32")
    importance = model.calibrate(tokenizer.encode("a text of what it is multiplied with"))
    report, source, read = gd.text.quantize(plain, small, "q4_0", importance), tensors(plain), tensors(small)
    assert sorted(w.name for w in report) == sorted(read)
    for w in report:
        t, exact = read[w.name], source[w.name].data.astype(np.float64)
        off = gguf.dequantize(t.data, t.tensor_type).reshape(exact.shape) - exact
        assert w.type == t.tensor_type.name and w.shape == exact.shape and w.bytes == t.n_bytes
        assert w.largest_error == pytest.approx(abs(off).max(), rel=1e-6)
        assert w.error == pytest.approx(np.sqrt((off ** 2).sum() / (exact ** 2).sum()), rel=1e-6)
        assert (w.output_error is None) == (w.type == "F32" or w.name == "token_embd.weight")
    assert all(w.output_error is None for w in gd.text.save_gguf(model, tokenizer, plain, type="q4_0"))


@pytest.mark.keeps
def test_a_model_is_saved_with_strings_of_ones_own(model, tmp_path):
    path = str(tmp_path / "model.safetensors")
    model.save(path)
    model.save(path, {"tokens": "a b"})
    assert gd._objects.TensorFile.open(path).metadata("tokens") == "a b"
    assert gd.text.load_model(path).options().layers == 2
    with pytest.raises(TypeError, match="expected text"):
        model.save(path, {"tokens": 5})


@pytest.mark.keeps
def test_calibration_makes_products_nearer(tmp_path):
    made, tokenizer = gd._objects.LanguageModel.create(**{**LLAMA, "width": 256, "hidden": 512}), gd.text.Tokenizer.bytes()
    importance = made.calibrate(tokenizer.encode("of what it is multiplied with"))
    assert importance.count() == 14
    alike, calibrated = str(tmp_path / "alike.gguf"), str(tmp_path / "calibrated.gguf")
    gd.text.save_gguf(made, tokenizer, alike, type="q3_k")
    gd.text.save_gguf(made, tokenizer, calibrated, type="q3_k", importance=importance)
    a, b = tensors(alike), tensors(calibrated)
    assert np.array_equal(a["token_embd.weight"].data, b["token_embd.weight"].data)
    assert not np.array_equal(a["blk.0.attn_q.weight"].data, b["blk.0.attn_q.weight"].data)
    plain, again = str(tmp_path / "plain.gguf"), str(tmp_path / "again.gguf")
    gd.text.save_gguf(made, tokenizer, plain, type="f32")
    gd.text.quantize(plain, again, "q3_k", importance=importance)
    assert all(np.array_equal(t.data, b[name].data) for name, t in tensors(again).items())


@pytest.mark.keeps
def test_a_file_of_the_package_is_a_model(model, tmp_path):
    ours, theirs = str(tmp_path / "ours.gguf"), str(tmp_path / "theirs.gguf")
    gd.text.save_gguf(model, gd.text.Tokenizer.bytes(), ours, type="q4_0")
    reader, writer = gguf.GGUFReader(ours), gguf.GGUFWriter(theirs, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for t in reversed(reader.tensors):
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    text = gd.text.Tokenizer.gguf(theirs)
    assert text.decode(text.encode("zwölf 👋\n")) == "zwölf 👋\n"
    said = ["".join(gd.text.generate(gd.text.load_model(path), text, "a", 8, temperature=0)) for path in (ours, theirs)]
    assert said[0] == said[1]


@pytest.mark.keeps
def test_drafts_and_caches_say_the_same(model):
    text, other = gd.text.Tokenizer.bytes(), gd._objects.LanguageModel.create(**{**LLAMA, "layers": 1, "seed": 6})
    said = "".join(gd.text.generate(model, text, "a", 12, temperature=0))
    for draft in (other, model):
        counts = {}
        assert "".join(gd.text.generate(model, text, "a", 12, temperature=0, draft=draft, draft_tokens=3, counts=counts)) == said
        assert counts["drafted"] >= counts["accepted"] and (draft is not model or counts["drafted"] == counts["accepted"] > 0)
    assert len("".join(gd.text.generate(model, text, "a", 5, cache=gd.int8, draft=other))) >= 1
    with pytest.raises(ValueError, match="0 tokens to draft"):
        list(gd.text.generate(model, text, "a", 5, draft=other, draft_tokens=0))


@pytest.mark.keeps
def test_perplexity_is_that_of_the_losses(model):
    text, said = gd.text.Tokenizer.bytes(), "a text that is longer than the model's sequences"
    tokens = text.encode(said)
    losses = []
    for at in range(0, len(tokens) - 1, 16):
        part = tokens[at:at + 17]
        losses += [model.loss(gd.tensor([part[:-1]]), gd.tensor([part[1:]])).item()] * (len(part) - 1)
    expected = np.exp(np.mean(losses))
    assert abs(gd.text.perplexity(model, text, said) / expected - 1) < 1e-5
    assert 0 < abs(gd.text.perplexity(model, text, said, cache=gd.int8) / expected - 1) < 1e-2
    with pytest.raises(ValueError, match="too short"):
        gd.text.perplexity(model, text, "a")


def test_the_golden_file_is_the_packages():
    golden = pathlib.Path(__file__).resolve().parents[1] / "data/gguf/golden.gguf"
    read = tensors(golden)
    for name, t in read.items():
        if name + ".read" in read:
            assert np.array_equal(gguf.dequantize(t.data, t.tensor_type), read[name + ".read"].data)


def test_errors_are_sentences(tmp_path):
    with pytest.raises(gd.FormatError, match="is no GGUF file"):
        gd.text.quantize(__file__, tmp_path / "x.gguf")
    with pytest.raises(ValueError, match="q4_x"):
        gd.text.quantize(__file__, tmp_path / "x.gguf", type="q4_x")
    with pytest.raises(ValueError, match="None: expected one of f32"):
        gd.text.quantize(__file__, tmp_path / "x.gguf", type=None)


def test_text_ends_where_it_ends(tmp_path):
    """C would open the file "model", and take 2**32 + 97 as token 97."""
    with pytest.raises(ValueError, match="zero character"):
        gd.text.load_model(f"{tmp_path}/model\0.gguf")
    with pytest.raises(ValueError, match="zero character"):
        gd.save(tmp_path / "x.safetensors", {"a\0b": gd.ones(3)})
    text = gd.text.Tokenizer.bytes()
    assert text.encode("a\0b") == [97, 0, 98] and text.decode([97, 0, 98]) == "a\0b"
    with pytest.raises(ValueError, match="4294967393 is not from"):
        text.decode([2**32 + 97])


@pytest.mark.keeps
def test_a_tokeniser_of_other_tokens_is_refused(model):
    other = gd.text.Tokenizer.characters("abc")
    with pytest.raises(ValueError, match="the model has 256 tokens, the tokeniser 3"):
        list(gd.text.generate(model, other, "a", 3))
    with pytest.raises(ValueError, match="the model has 256 tokens, the tokeniser 3"):
        gd.text.perplexity(model, other, "abcabc")
