"""Writes tests/goldens/images.h: PNG files of every depth, kind and order of rows, and the pixels they mean; with a folder as argument,
the files too (the corpus of tests/fuzz/fuzz_png.c).

    python3 tests/goldens/make_images.py [tests/fuzz/corpus/png]     (Pillow 13.0.0)

The files are encoded here, by the PNG specification (W3C, third edition). The pixels: a sample of d bits is value * 255 / (2^d - 1),
rounded; palettes are looked up; alpha is dropped. Where no sample has 16 bits, Pillow's Image.open(file).convert("RGB") must say the same.
"""
import io
import pathlib
import struct
import sys
import warnings
import zlib

from PIL import Image

warnings.simplefilter("ignore")  # Pillow would rather have transparency kept
SIZE = 5  # every pass of Adam7 has pixels
SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
KINDS = [(GREY, 1), (GREY, 2), (GREY, 4), (GREY, 8), (GREY, 16), (RGB, 8), (RGB, 16), (PALETTE, 1), (PALETTE, 2), (PALETTE, 4),
         (PALETTE, 8), (GREY_ALPHA, 8), (GREY_ALPHA, 16), (RGBA, 8), (RGBA, 16)]
NAMES = {GREY: "grey", RGB: "rgb", PALETTE: "palette", GREY_ALPHA: "grey_alpha", RGBA: "rgba"}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]  # x, y, steps


def sample(x, y, channel, kind, depth):
    """Numbers without a pattern, 0 and the largest among them."""
    values = (1 << depth) - (1 if kind == PALETTE and depth > 1 else 0)  # a palette that is not full
    return {(0, 0): 0, (4, 4): values - 1}.get((x, y), (x * 7919 + y * 104729 + channel * 1299709 + x * y * 31) % values)


def colour(index):
    return (index * 37 % 256, (255 - index * 11) % 256, index * 101 % 256)


def pack(samples, depth):
    """A row of samples as bytes."""
    if depth == 16:
        return b"".join(struct.pack(">H", s) for s in samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def encode(kind, depth, interlaced):
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = b""
    for x0, y0, dx, dy in passes:
        for y in range(y0, SIZE, dy):
            line = [sample(x, y, c, kind, depth) for x in range(x0, SIZE, dx) for c in range(CHANNELS[kind])]
            rows += b"\0" + pack(line, depth) if line else b""
    data = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", SIZE, SIZE, depth, kind, 0, 0, interlaced))
    data += chunk(b"gAMA", struct.pack(">I", 45455))
    if kind == PALETTE:
        count = (1 << depth) - (depth > 1)
        data += chunk(b"PLTE", b"".join(bytes(colour(i)) for i in range(count))) + chunk(b"tRNS", b"\x80")
    data += chunk(b"tEXt", b"Comment\0x")
    return data + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def meaning(kind, depth):
    def byte(value):
        return (value * 255 * 2 + (1 << depth) - 1) // (2 * ((1 << depth) - 1))
    found = []
    for y in range(SIZE):
        for x in range(SIZE):
            s = [sample(x, y, c, kind, depth) for c in range(CHANNELS[kind])]
            if kind == PALETTE:
                found += colour(s[0])
            else:
                found += [byte(v) for v in (s[:3] if kind in (RGB, RGBA) else s[:1] * 3)]
    return bytes(found)


def as_c(data):
    lines = [", ".join(str(b) for b in data[i:i + 24]) for i in range(0, len(data), 24)]
    return ",\n      ".join(lines)


def main(folder=None):
    out = ["/* tests/goldens/images.h: made by tests/goldens/make_images.py, which says how. */", "// clang-format off",
           "static const struct png_golden {", "    const char *name;", "    int size;", "    unsigned char file[1100], pixels[5 * 5 * 3];",
           "} png_goldens[] = {"]
    for kind, depth in KINDS:
        for interlaced in (0, 1):
            data, pixels = encode(kind, depth, interlaced), meaning(kind, depth)
            if depth < 16:
                assert Image.open(io.BytesIO(data)).convert("RGB").tobytes() == pixels, (kind, depth)
            name = f"{NAMES[kind]}_{depth}{'_interlaced' if interlaced else ''}"
            out.append(f'    {{ "{name}", {len(data)},\n    {{ {as_c(data)} }},\n    {{ {as_c(pixels)} }} }},')
            if folder:
                (pathlib.Path(folder) / name).write_bytes(data)
    out += ["};", "// clang-format on"]
    pathlib.Path(__file__).with_name("images.h").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
