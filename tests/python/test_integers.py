"""Whole numbers that C's types do not hold are errors, and not the number of their low bits."""
import numpy as np
import pytest

import gradus as gd
from gradus import nn

X = [[3.0, 1.0], [2.0, 5.0]]
WIDE, WIDER = 2 ** 32, 2 ** 64


@pytest.mark.parametrize("call", [
    lambda x: gd.softmax(x, axis=WIDE), lambda x: gd.cumsum(x, WIDE), lambda x: gd.cummax(x, WIDE), lambda x: gd.topk(x, WIDER + 1),
    lambda x: gd.sum(x, axis=WIDE), lambda x: gd.sum(x, axis=(WIDE, 1)), lambda x: gd.argmax(x, axis=WIDE),
    lambda x: gd.expand_dims(x, axis=WIDE), lambda x: gd.concat([x, x], axis=WIDE), lambda x: gd.reshape(x, (WIDER + 4,)),
    lambda x: gd.ones((WIDER + 3,)), lambda x: gd.permute_dims(x, (WIDE, 1)), lambda x: gd.roll(x, WIDER + 1, axis=0),
    lambda x: gd.eye(WIDER + 2), lambda x: gd.linspace(0, 1, WIDER + 3), lambda x: gd.one_hot(gd.asarray([0, 1]), WIDER + 2),
    lambda x: gd.layer_norm(x, axes=WIDE + 1), lambda x: gd.split(x, [WIDER + 1, 1]), lambda x: nn.Linear(WIDER + 2, 3),
    lambda x: gd.set_threads(WIDE + 1), lambda x: gd.seed(WIDER + 5), lambda x: x[WIDER]])
def test_numbers_that_do_not_fit_are_errors(call):
    with pytest.raises((ValueError, IndexError), match="is not from|does not fit"):
        call(gd.tensor(X))


def test_an_index_that_does_not_fit_is_an_index_error():
    with pytest.raises(IndexError):
        gd.tensor(X)[WIDER]


def test_whole_numbers_of_numpy_are_taken():
    x = gd.tensor(X)
    assert gd.topk(x, np.int64(1))[0].tolist() == [[3.0], [5.0]]
    assert gd.cummax(x, np.int32(0))[0].tolist() == [[3.0, 1.0], [3.0, 5.0]]
    assert gd.softmax(x, axis=np.int64(1)).tolist() == gd.softmax(x, axis=1).tolist()


@pytest.mark.parametrize("call, words", [
    (lambda x: gd.topk(x, 2.5), "gd_topk: argument 3: 'float' object"),
    (lambda x: gd.cummax(x, "a"), "gd_cummax: argument 2: 'str' object"),
    (lambda x: gd.dropout(x, "a"), "gd_dropout: argument 2: str cannot be taken"), (lambda x: x * 10 ** 400, "the number is too large")])
def test_wrong_types_are_type_errors(call, words):
    with pytest.raises(TypeError, match=words):
        call(gd.tensor(X))
