"""The work of bench_data in PyTorch and torchvision: images to augmented batches by a DataLoader.

    python3 data_torch.py files|cifar FOLDER BATCH SECONDS

Prints "name NAME", "how TEXT", "spread X" and "step loader SECONDS MEAN": seconds an image, and the mean of the first 64 images as they
are. Tried are transforms on images of Pillow and, of torchvision.transforms.v2, on tensors of bytes, with two workers and, for images in
memory, with none. Exit status 3: there is no PyTorch or no torchvision.
"""
import gzip
import pathlib
import sys
import time

import torch_peer
import torch

try:
    import numpy
    import PIL
    import torchvision
    from torchvision import io, transforms
    from torchvision.transforms import v2
except ImportError:
    sys.exit(3)

WHAT, FOLDER, BATCH, SECONDS = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
THREADS, CHECKED = 2, 64
SIZE = 64 if WHAT == "files" else 32


def changes(of):
    """The random changes, of torchvision.transforms or of its v2."""
    return [of.RandomCrop(SIZE, padding=4), of.RandomHorizontalFlip(), of.ColorJitter(0.4, 0.4, 0.4)]


class Files(torch.utils.data.Dataset):
    """Photographs of folders, in the order of their names."""

    def __init__(self, pillow, augmented=True):
        self.paths = [(str(path), label) for label, folder in enumerate(sorted(p for p in FOLDER.iterdir() if p.is_dir()))
                      for path in sorted(folder.iterdir()) if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
        self.pillow = pillow
        of = transforms if pillow else v2
        ending = [transforms.ToTensor()] if pillow else [v2.ToDtype(torch.float32, scale=True)]
        resize = of.Resize((SIZE, SIZE), **({} if pillow else {"antialias": True}))
        self.transform = of.Compose([resize, *(changes(of) if augmented else []), *ending])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path, label = self.paths[i]
        image = PIL.Image.open(path).convert("RGB") if self.pillow else io.decode_image(path, mode=io.ImageReadMode.RGB)
        return self.transform(image), label


class Cifar(torch.utils.data.Dataset):
    """The records of CIFAR-10's binary files, in memory."""

    def __init__(self, pillow, augmented=True):
        found = [path for path in sorted(FOLDER.glob("data_batch_*.bin*"))]
        data = b"".join(gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes() for path in found)
        records = numpy.frombuffer(data, numpy.uint8).reshape(-1, 3073)
        self.labels, images = records[:, 0].astype(numpy.int64), records[:, 1:].reshape(-1, 3, 32, 32)
        self.images = images.transpose(0, 2, 3, 1).copy() if pillow else torch.from_numpy(images.copy())
        self.pillow = pillow
        of = transforms if pillow else v2
        ending = [transforms.ToTensor()] if pillow else [v2.ToDtype(torch.float32, scale=True)]
        self.transform = of.Compose([*(changes(of) if augmented else []), *ending])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(PIL.Image.fromarray(self.images[i]) if self.pillow else self.images[i]), self.labels[i]


MAKE = Files if WHAT == "files" else Cifar


def single_threaded(_):
    torch.set_num_threads(1)


def images_a_second(pillow, workers):
    """(images a second, spread) over epochs, the first of which, when workers start, does not count."""
    options = {"num_workers": workers, "persistent_workers": True, "prefetch_factor": 4, "worker_init_fn": single_threaded} if workers else {}
    loader = torch.utils.data.DataLoader(MAKE(pillow), BATCH, shuffle=True, drop_last=True, **options)
    rates, begin = [], time.perf_counter()
    while len(rates) < 4 or time.perf_counter() - begin < SECONDS / 3:
        start, count = time.perf_counter(), 0
        for images, _ in loader:
            count += len(images)
        rates.append(count / (time.perf_counter() - start))
    rates = sorted(rates[1:])
    middle, last = rates[len(rates) // 2], len(rates) - 1
    return middle, (rates[3 * last // 4] - rates[last // 4]) / middle


def main():
    torch_peer.start(THREADS)
    print(f"name PyTorch {torch_peer.version()} DataLoader, torchvision {torchvision.__version__.split('+')[0]}")
    best = None
    for pillow in (True, False):
        for workers in (2, 0) if WHAT == "cifar" else (2,):
            rate = images_a_second(pillow, workers)
            how = f"{'images of Pillow' if pillow else 'v2, tensors'}, {workers} workers"
            print(f"note PyTorch DataLoader, {how}: {rate[0]:.0f} images/s", flush=True)
            if best is None or rate[0] > best[0][0]:
                best = rate, how
    plain = MAKE(False, augmented=False)
    mean = torch.stack([plain[i][0] for i in range(CHECKED)]).double().mean().item()
    print(f"how {best[1]}\nspread {best[0][1]}\nstep loader {1 / best[0][0]:.9f} {mean:.9f}")


main()
