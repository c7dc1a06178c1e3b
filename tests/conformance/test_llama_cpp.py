"""GGUF files and llama.cpp (llama-cpp-python): it reads what is saved here, computes the same logits of the same tokens, and cuts the
same text into the same tokens.

Ours computes in f32 with the weights that a file has. llama.cpp rounds activations: to 8 bits where weights are in blocks, to the weights' type
where that is f16 or bf16. So logits are compared by the norm of their difference over their own.
"""
import ctypes
import pathlib

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp", reason="there is no llama-cpp-python")

import gradus as gd  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[2].parent / "shared" / "data"
SIZES = {"vocabulary": 256, "max_length": 64, "layers": 2, "heads": 4, "width": 256, "seed": 5}
MODELS = {"llama": {**SIZES, "decoder": "llama", "kv_heads": 2, "hidden": 512, "tied": False},
          "llama tied": {**SIZES, "decoder": "llama", "hidden": 768, "rotary_base": 5e5, "epsilon": 1e-6},
          "gpt2": {**SIZES, "decoder": "gpt2"}}
F32 = 0  # GGML_TYPE_F32
PROMPT, AFTER = 24, 5


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """All its parameters are random, biases and the norms' weights too."""
    made, random = gd._objects.LanguageModel.create(**MODELS[request.param]), np.random.default_rng(20)
    module = made.module()
    with gd.no_grad():
        for i in range(module.count()):
            p = module.tensor(i)
            centre = 1.0 if p.ndim == 1 and module.path(i).endswith("weight") else 0.0
            scale = 0.2 if p.ndim == 1 else 1 / np.sqrt(p.shape[-1])
            p.copy_(gd.tensor((centre + scale * random.standard_normal(p.shape)).astype(np.float32)))
    return made


def tokens_of(count):
    return np.random.default_rng(21).integers(0, SIZES["vocabulary"], count).tolist()


class Peer:
    """A model of llama.cpp whose keys and values are f32."""

    def __init__(self, path):
        self.model = llama_cpp.Llama(str(path), n_ctx=64, n_threads=2, n_threads_batch=2, type_k=F32, type_v=F32, verbose=False)

    def logits(self, tokens):
        self.model.eval(tokens)
        values = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
        return np.ctypeslib.as_array(ctypes.cast(values, ctypes.POINTER(ctypes.c_float)), (self.model.n_vocab(),)).copy()


def most_error(kind):
    """Beside k-quants its activations have a scale for 256, else for 32. Of f32 GPT-2 was 3e-4 apart, Llama less than 1e-4."""
    return {"f32": 1e-3, "f16": 2e-3, "bf16": 1e-2}.get(kind, 4e-2 if kind.endswith("k") else 3e-2)


def error(ours, theirs):
    return np.linalg.norm(ours.astype(np.float64) - theirs) / np.linalg.norm(theirs)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_logits_are_those_of_llama_cpp(model, tmp_path, kind):
    path, tokens = tmp_path / "model.gguf", tokens_of(PROMPT + AFTER)
    gd.text.save_gguf(model, gd.text.Tokenizer.bytes(), str(path), type=kind)
    peer, ours = Peer(path), np.asarray(gd.text.load_model(str(path)).forward([tokens]))[0]
    got = [error(ours[PROMPT - 1], peer.logits(tokens[:PROMPT]))]
    got += [error(ours[at], peer.logits(tokens[at:at + 1])) for at in range(PROMPT, PROMPT + AFTER)]
    assert max(got) < most_error(kind)


@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q4_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_logits_of_weights_that_stay_in_blocks(model, tmp_path, kind):
    path, tokens = tmp_path / "model.gguf", tokens_of(PROMPT)
    gd.text.save_gguf(model, gd.text.Tokenizer.bytes(), str(path), type=kind)
    ours = np.asarray(gd.text.load_model(str(path), quantized=True).forward([tokens]))[0, -1]
    assert error(ours, Peer(path).logits(tokens)) < most_error(kind)


def small(tokenizer):
    return gd._objects.LanguageModel.create(vocabulary=len(tokenizer), max_length=16, layers=1, heads=2, width=32, seed=1)


def cut(path, text):
    """llama.cpp's tokens of a text, with none that the file says to begin with."""
    return llama_cpp.Llama(str(path), n_ctx=16, vocab_only=True, verbose=False).tokenize(text.encode(), add_bos=False, special=False)


TEXTS = ["First Citizen:\nBefore we proceed any further, hear me speak.\n", "zwölf Boxkämpfer 👋 1234567 it's  we'll\t\n\n x", " ", "a"]


@pytest.mark.parametrize("make", ["bytes", "bpe"])
def test_tokens_are_those_of_llama_cpp(tmp_path, make):
    vocabulary = DATA / "gpt2-bpe" / "vocab.bpe"
    if make == "bpe" and not vocabulary.is_file():
        pytest.skip("there is no shared/data/gpt2-bpe")
    tokenizer = gd.text.Tokenizer.bytes() if make == "bytes" else gd.text.Tokenizer.bpe(vocabulary)
    path = tmp_path / "model.gguf"
    gd.text.save_gguf(small(tokenizer), tokenizer, str(path), type="f32")
    for text in TEXTS:
        assert tokenizer.encode(text) == gd.text.Tokenizer.gguf(str(path)).encode(text) == cut(path, text)
