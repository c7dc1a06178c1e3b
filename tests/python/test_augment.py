"""gd.augment and its kin: arguments and results as Python has them. What they compute is tests/test_augment.c's."""
import pytest

import gradus as gd


def test_draws_make_the_changes():
    x = gd.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to("uint8")
    assert gd.augment_draws(padding=2, flip=0.5) == 3
    flipped = gd.augment(x, gd.zeros((2, 1)), flip=0.5)
    assert flipped.dtype == gd.float32 and gd.array_equal(flipped, gd.flip(x.to("float32") / 255, 3))
    assert gd.augment(x, None, flip=0.5, height=8, width=6).shape == (2, 3, 8, 6)
    with pytest.raises(gd.ShapeError, match="need"):
        gd.augment(x, gd.zeros((2, 2)), padding=2, flip=0.5)
    with pytest.raises(gd.InvalidError, match="flip of 2"):
        gd.augment(x, None, flip=2)
    with pytest.raises(gd.InvalidError, match="hue of 1"):
        gd.augment_draws(hue=1)


def test_mixing_gives_images_and_targets():
    x, targets, draws = gd.ones((2, 1, 4, 4)), gd.one_hot(gd.tensor([0, 1]), 2, "float32"), gd.full((2, 4), 0.3)
    for mix in (gd.mixup, gd.cutmix):
        mixed, soft = mix(x, targets, draws, 1.0)
        assert mixed.shape == (2, 1, 4, 4) and soft.shape == (2, 2) and abs(soft.sum().item() - 2) < 1e-6
