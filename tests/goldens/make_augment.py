"""Writes tests/goldens/augment.h: changes of images as torchvision makes them, for tests/test_augment.c.

    python3 tests/goldens/make_augment.py     (torch 2.15.0, torchvision 0.29.2)

The images and the numbers that amounts are drawn from are made here; what amount a number means is what gradus/augment.h says, in double;
the change by that amount is torchvision's.
"""
import math
import pathlib

import torch
import torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

N, C, H, W = 3, 3, 6, 7


def numbers(seed):
    """Numbers of [0, 1) in 24 bits, a simple generator's."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (state >> 40) / 2**24


source = numbers(1)
images = torch.tensor([round(next(source), 4) for _ in range(N * C * H * W)]).reshape(N, C, H, W)
images[0, 1] = images[0, 0]  # two channels alike
images[1, :, 2, 3] = 0.5  # grey


def between(u, low, high):
    return low + u * (high - low)


def ratio(u, most):
    return math.exp(between(u, -math.log(most), math.log(most)))


def place(u, room):
    return min(math.floor(u * (room + 1)), room)


def factor(u, strength):
    return between(u, max(0, 1 - strength), 1 + strength)


def padding(x, u, p):
    return F.crop(F.pad(x, [p] * 4), place(u[0], 2 * p), place(u[1], 2 * p), H, W)


def crop(x, u, least, aspect, height, width):
    area, sides = H * W * between(u[0], least, 1), ratio(u[1], aspect)
    h = min(max(round(math.sqrt(area / sides)), 1), H)
    w = min(max(round(math.sqrt(area * sides)), 1), W)
    return F.resized_crop(x, place(u[2], H - h), place(u[3], W - w), h, w, [height, width], InterpolationMode.BILINEAR, antialias=True)


def affine(x, u, rotation=0, translation=0, zoom=1, shear=0):
    shift = [between(u[1], -translation * W, translation * W), between(u[2], -translation * H, translation * H)]
    return F.affine(x, between(u[0], -rotation, rotation), shift, 1 / ratio(u[3], zoom), [between(u[4], -shear, shear), 0.0],
                    InterpolationMode.BILINEAR)


def erase(x, u, probability, least, most, aspect, value):
    area, sides = H * W * between(u[1], least, most), ratio(u[2], aspect)
    h, w = min(round(math.sqrt(area * sides)), H), min(round(math.sqrt(area / sides)), W)
    return F.erase(x, place(u[3], H - h), place(u[4], W - w), h, w, torch.tensor(value)) if u[0] < probability else x


# name, options in C, how many numbers, the change, the result's size
CASES = [
    ("padding", ".padding = 3", 2, lambda x, u: padding(x, u, 3), (H, W)),
    ("flip", ".flip = 0.5", 1, lambda x, u: F.hflip(x) if u[0] < 0.5 else x, (H, W)),
    ("flip_vertical", ".flip_vertical = 0.6", 1, lambda x, u: F.vflip(x) if u[0] < 0.6 else x, (H, W)),
    ("padding_and_flips", ".padding = 2, .flip = 0.5, .flip_vertical = 0.5", 4,
     lambda x, u: (lambda y: F.vflip(y) if u[3] < 0.5 else y)((lambda y: F.hflip(y) if u[2] < 0.5 else y)(padding(x, u, 2))), (H, W)),
    ("resize", ".height = 4, .width = 11", 0, lambda x, u: F.resize(x, [4, 11], InterpolationMode.BILINEAR, antialias=True), (4, 11)),
    ("crop", ".crop = 0.2", 4, lambda x, u: crop(x, u, 0.2, 4 / 3, H, W), (H, W)),
    ("crop_and_resize", ".crop = 0.5, .crop_aspect = 2, .height = 3, .width = 9", 4, lambda x, u: crop(x, u, 0.5, 2, 3, 9), (3, 9)),
    ("rotation", ".rotation = 60", 5, lambda x, u: affine(x, u, rotation=60), (H, W)),
    ("translation", ".translation = 0.4", 5, lambda x, u: affine(x, u, translation=0.4), (H, W)),
    ("zoom", ".zoom = 2", 5, lambda x, u: affine(x, u, zoom=2), (H, W)),
    ("affine", ".rotation = 30, .translation = 0.2, .zoom = 1.5, .shear = 20", 5,
     lambda x, u: affine(x, u, 30, 0.2, 1.5, 20), (H, W)),
    ("brightness", ".brightness = 0.7", 1, lambda x, u: F.adjust_brightness(x, factor(u[0], 0.7)), (H, W)),
    ("contrast", ".contrast = 1.5", 1, lambda x, u: F.adjust_contrast(x, factor(u[0], 1.5)), (H, W)),
    ("saturation", ".saturation = 0.9", 1, lambda x, u: F.adjust_saturation(x, factor(u[0], 0.9)), (H, W)),
    ("hue", ".hue = 0.5", 1, lambda x, u: F.adjust_hue(x, between(u[0], -0.5, 0.5)), (H, W)),
    ("colours", ".brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1", 4,
     lambda x, u: F.adjust_hue(F.adjust_saturation(F.adjust_contrast(F.adjust_brightness(
         x, factor(u[0], 0.4)), factor(u[1], 0.4)), factor(u[2], 0.4)), between(u[3], -0.1, 0.1)), (H, W)),
    ("erase", ".erase = 0.7", 5, lambda x, u: erase(x, u, 0.7, 0.02, 1 / 3, 10 / 3, 0.0), (H, W)),
    ("cutout", ".erase = 1, .erase_least = 0.25, .erase_most = 0.25, .erase_aspect = 1, .fill = 0.5", 5,
     lambda x, u: erase(x, u, 1, 0.25, 0.25, 1, 0.5), (H, W)),
]


def as_c(values):
    return ", ".join(f"{float(v):.9g}" + ("" if "." in f"{float(v):.9g}" or "e" in f"{float(v):.9g}" else ".0") + "f" for v in values)


def main():
    out = [f"/* tests/goldens/augment.h: made by tests/goldens/make_augment.py with torchvision {torchvision.__version__.split('+')[0]}. */",
           "// clang-format off",
           f"enum {{ IMAGES = {N}, CHANNELS = {C}, HEIGHT = {H}, WIDTH = {W} }};",
           f"static const float images[] = {{ {as_c(images.flatten())} }};",
           "static const struct augment_golden {", "    const char *name;", "    gd_augment_options options;",
           "    int columns, height, width;", f"    float draws[{N} * 5], expected[{N} * {C} * 60];", "} augment_goldens[] = {"]
    for name, options, columns, change, size in CASES:
        draws = [[next(source) for _ in range(columns)] for _ in range(N)]
        found = torch.stack([change(x, u) for x, u in zip(images, draws)])
        assert found.shape == (N, C, *size), (name, found.shape)
        flat = [d for row in draws for d in row] or [0]
        out.append(f'    {{ "{name}", {{ GD_AUGMENT_DEFAULTS, {options} }}, {columns}, {size[0]}, {size[1]},\n'
                   f"    {{ {as_c(flat)} }},\n    {{ {as_c(found.flatten())} }} }},")
    out += ["};", "// clang-format on"]
    pathlib.Path(__file__).with_name("augment.h").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
