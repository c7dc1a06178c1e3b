"""Text for language models: tokenisers, models from files, generation token by token."""
from __future__ import annotations

import collections
import ctypes
import math
import os

from . import _api, _callbacks, _integers, _lib, _objects, _ops
from ._convert import as_bytes, run_status
from ._lib import C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, NamedTuple, Sequence


class Tokenizer:
    """Text to token numbers and back. Made by bytes(), characters(text), bpe(path), llama2c(path), gguf(path)."""

    def __init__(self, tokenizer: _objects.Tokenizer) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def bytes(cls) -> Tokenizer:
        """256 tokens, a byte each."""
        return cls(_objects.Tokenizer.bytes())

    @classmethod
    def characters(cls, text: str) -> Tokenizer:
        """The distinct characters of a text."""
        return cls(_objects.Tokenizer.characters(text))

    @classmethod
    def bpe(cls, path: Any) -> Tokenizer:
        """GPT-2's byte pair encoding from its list of merges."""
        return cls(_objects.Tokenizer.load_bpe(path))

    @classmethod
    def llama2c(cls, path: Any) -> Tokenizer:
        return cls(_objects.Tokenizer.load_llama2c(path))

    @classmethod
    def gguf(cls, path: Any) -> Tokenizer:
        """The tokeniser in a GGUF file."""
        return cls(_objects.Tokenizer.load_gguf(path))

    @property
    def handle(self) -> int:
        return self._tokenizer.handle

    def __len__(self) -> int:
        return self._tokenizer.count()

    @property
    def begin(self) -> int | None:
        """The token that begins a text, None: there is none."""
        token = self._tokenizer.begin()
        return token if token >= 0 else None

    @property
    def end(self) -> int | None:
        token = self._tokenizer.end()
        return token if token >= 0 else None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; none is added at its ends."""
        block, tokens = as_bytes(text), _api.gd_tokens()
        try:
            run_status(C.gd_tokenize, self.handle, block, len(block), ctypes.byref(tokens))
            return (ctypes.c_int32 * tokens.count).from_address(tokens.ids)[:] if tokens.count else []
        finally:
            C.gd_tokens_free(ctypes.byref(tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; bytes that are not UTF-8 become U+FFFD."""
        numbers, size = _integers.array_of(ctypes.c_int32, tokens), ctypes.c_size_t()
        with self._tokenizer._home.lock:
            text = C.gd_detokenize(self.handle, len(tokens), numbers, ctypes.byref(size))
            if text is None:
                _lib.fail()
            try:
                return ctypes.string_at(text, size.value).decode("utf-8", "replace")
            finally:
                C.gd_text_free(text)

    def piece(self, token: int, previous: int = -1) -> bytes:
        """The bytes that a token adds to a text."""
        size = ctypes.c_size_t()
        with self._tokenizer._home.lock:
            text = C.gd_token_text(self.handle, previous, token, ctypes.byref(size))
            if text is None:
                _lib.fail()
            return text[:size.value] if type(text) is bytes else ctypes.string_at(text, size.value)


def load_model(path: Any, quantized: bool = False) -> _objects.LanguageModel:
    """A language model from a file: GPT-2's safetensors, GGUF (gpt2, llama), llama2.c's checkpoint, or what save() of one wrote.
    quantized: matrices that a GGUF file has as Q8_0, Q5_1, Q5_0, Q4_1, Q4_0 or k-quants stay in 8 or 4 bits in memory, and are computed with in 8 bits."""
    return _objects.LanguageModel.load(path, quantized=quantized)


if TYPE_CHECKING:
    class Written(NamedTuple):
        name: str
        shape: tuple[int, ...]
        type: str
        bytes: int
        error: float
        largest_error: float
        output_error: float | None
else:
    Written = collections.namedtuple("Written", "name shape type bytes error largest_error output_error")
Written.__doc__ = """What has been made of a tensor of a GGUF file. error: of its values as they are read again, the root of the sum of squared
errors over that of squares; output_error: how far the matrix' products are off in the text of `importance`, None without one."""


def quantize(source: Any, to: Any, type: str = "q8_0", importance: _objects.Importance | None = None) -> list[Written]:
    """Write a GGUF file again with its matrices in another type: q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, q3_k,
    q2_k, bf16, f16 or f32. Returns what became of each tensor. A model of one's own is written by save_gguf().
    importance: of model.calibrate(tokens), for which k-quants are then made."""
    return _written(_ops.gguf_quantize, os.fspath(source), os.fspath(to), type=type, importance=importance)


def save_gguf(model: _objects.LanguageModel, tokenizer: Tokenizer, path: Any, type: str = "q8_0",
              importance: _objects.Importance | None = None) -> list[Written]:
    """Write a model and its tokeniser to a GGUF file, for llama.cpp and the programs that stand on it: of the architecture gpt2
    or llama, its matrices as `type` of quantize(). A tokeniser of bytes or characters becomes one of SentencePiece that spells the
    same. Of BPE its words are GPT-2's. Returns what became of each tensor."""
    return _written(model._save_gguf, tokenizer, os.fspath(path), type=type, importance=importance)


def _written(write: Callable[..., None], *where: Any, type: str, importance: _objects.Importance | None) -> list[Written]:
    report: list[Written] = []

    def take(w: _api.gd_gguf_written) -> None:
        kind = C.gd_gguf_type_name(w.type).decode()
        report.append(Written(w.name.decode("utf-8", "replace"), tuple(w.shape.dim[:w.shape.rank]), kind, w.bytes, w.error,
                              w.largest_error, None if w.output_error < 0 else w.output_error))

    options = {} if importance is None else {"importance": importance}
    with _callbacks.Called(take) as number:
        write(*where, type=type.lower() if isinstance(type, str) else type, callback=_callbacks.TOLD, user=number, **options)
    return report


def generate(model: _objects.LanguageModel, tokenizer: Tokenizer, prompt: str = "", tokens: int | None = None, *,
             temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0, repetition_penalty: float = 1.0,
             seed: int = 0, cache: Any = None, draft: _objects.LanguageModel | None = None, draft_tokens: int = 4,
             counts: dict[str, int] | None = None) -> Iterator[str]:
    """Continue a text: its pieces as they are chosen, up to the end token, `tokens` of them, or the model's length. temperature 0:
    the most likely token, always. A piece is whole characters; the prompt is not repeated.

        for piece in gd.text.generate(model, tokenizer, "Once upon a time", 100, temperature=0.8):
            print(piece, end="", flush=True)

    cache: the dtype in which keys and values are kept, gd.float16 or gd.int8. draft: a smaller model with the same tokens, that
    proposes draft_tokens at a time, which the model reads in one pass; tokens keep the model's distribution. counts: a dict that is
    told how many tokens have been "drafted" and "accepted".
    """
    _belong_together(model, tokenizer)
    options = {"temperature": temperature, "top_p": top_p, "repetition_penalty": repetition_penalty, "seed": seed}
    sampler = _objects.Sampler.create(**options, **({} if top_k is None else {"top_k": top_k}))
    generator, drafts = _objects.Generator.create(model), None if draft is None else _objects.Generator.create(draft)
    for g in (generator, drafts):
        if g is not None and cache is not None:
            g.set_cache_dtype(cache)
    first = [tokenizer.begin] if tokenizer.begin is not None else []
    past = first + tokenizer.encode(prompt) or [tokenizer.end or 0]
    new, rest, chosen, most = past, b"", 0, model.options().max_length
    while (tokens is None or chosen < tokens) and (not chosen or len(past) <= most):
        following = _choose(generator, drafts, sampler, len(tokenizer), new, past, draft_tokens)
        if counts is not None:
            counts.update(drafted=generator.drafted(), accepted=generator.accepted())
        for token in following:
            if token == tokenizer.end or tokens is not None and chosen >= tokens:
                break
            rest += tokenizer.piece(token, past[-1])
            whole = _whole(rest)
            if whole:
                yield rest[:whole].decode("utf-8", "replace")
                rest = rest[whole:]
            chosen += 1
            past = past + [token]
        else:
            new = past[-1:]
            continue
        break
    if rest:
        yield rest.decode("utf-8", "replace")


def perplexity(model: _objects.LanguageModel, tokenizer: Tokenizer, text: str, *, cache: Any = None) -> float:
    """exp of the mean of -log p of a text's tokens but the first, in sequences as long as the model's (1,024 at most), each without
    what was before it; as `gradus eval` says it. cache: the dtype in which keys and values are kept, as generate() has it."""
    _belong_together(model, tokenizer)
    generator = _objects.Generator.create(model)
    if cache is not None:
        generator.set_cache_dtype(cache)
    tokens = ([tokenizer.begin] if tokenizer.begin is not None else []) + tokenizer.encode(text)
    if len(tokens) < 2:
        raise ValueError("the text is too short to be measured")
    loss = ctypes.c_double()
    run_status(C.gd_generator_loss, generator.handle, len(tokens), _integers.array_of(ctypes.c_int32, tokens), ctypes.byref(loss))
    return math.exp(loss.value)


def _belong_together(model: _objects.LanguageModel, tokenizer: Tokenizer) -> None:
    """Else they would talk nonsense, or fail in the middle."""
    if len(tokenizer) != model.options().vocabulary:
        raise ValueError(f"the model has {model.options().vocabulary} tokens, the tokeniser {len(tokenizer)}")


def _choose(generator: _objects.Generator, draft: _objects.Generator | None, sampler: _objects.Sampler, kinds: int, new: list[int],
            past: list[int], draft_tokens: int) -> list[int]:
    """The token behind `new`, or with a draft one or more."""
    fed, before = (ctypes.c_int32 * len(new))(*new), (ctypes.c_int32 * len(past))(*past)
    with generator._home.lock:
        if draft is None:
            logits = C.gd_generator_feed(generator.handle, len(new), fed)
            if logits is None:
                _lib.fail()
            out = [C.gd_sample(sampler.handle, kinds, logits, len(past), before)]
            count = 1 if out[0] >= 0 else -1
        else:
            out = (ctypes.c_int32 * (max(draft_tokens, 0) + 1))()
            count = C.gd_generator_speculate(generator.handle, draft.handle, sampler.handle, len(new), fed, len(past), before,
                                             draft_tokens, out)
        if count < 0:
            _lib.fail()
    return list(out[:count])


def _whole(block: bytes) -> int:
    """How many bytes until a character that has only begun."""
    for back in range(1, min(4, len(block)) + 1):
        byte = block[-back]
        if byte >= 0xC0:
            return len(block) if back >= 2 + (byte >= 0xE0) + (byte >= 0xF0) else len(block) - back
        if byte < 0x80:
            break
    return len(block)


__all__ = ["Tokenizer", "Written", "generate", "load_model", "perplexity", "quantize", "save_gguf"]
