"""The cases of bench_compile in PyTorch, eager and by torch.compile: lines "name NAME" and "us CASE US VALUE".

    python3 compile_torch.py

The optimizer is torch.optim.Adam; under torch.compile its step is compiled too. Exit status 3: there is no PyTorch.
"""
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)
import compile_cases as cases


def network(sizes, residual):
    p = [torch.from_numpy(v).requires_grad_() for v in cases.parameters(sizes)]
    x, y = torch.from_numpy(cases.numbers((cases.BATCH, sizes[0]), 17, 1)), torch.from_numpy(cases.labels(sizes[-1]))
    optimizer = torch.optim.Adam(p, lr=1e-3)

    def loss_of(p, x, y):
        a = F.relu(x @ p[0] + p[1])
        b = F.relu(a @ p[2] + p[3])
        return F.cross_entropy((a + b if residual else b) @ p[4] + p[5], y)

    def make(wrap):
        forward, update = wrap(loss_of), wrap(optimizer.step)

        def step():
            loss = forward(p, x, y)
            loss.backward()
            update()
            optimizer.zero_grad(set_to_none=True)
            return loss

        return step

    return make


def block():
    x = torch.from_numpy(cases.numbers((256, 256), 1, 1)).requires_grad_()
    w = torch.from_numpy(cases.numbers((256, 256), 17, 1))

    def loss_of(x, w):
        centred = x - x.mean(-1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        y = y * 0.5 * (torch.erf(y * 0.70710678) + 1)
        e = torch.exp(y - y.amax(-1, keepdim=True).detach())
        return (e / e.sum(-1, keepdim=True) * w).sum()

    def make(wrap):
        forward = wrap(loss_of)

        def step():
            x.grad = None
            loss = forward(x, w)
            loss.backward()
            return loss

        return step

    return make


def chain():
    x = torch.from_numpy(cases.numbers((1 << 24,), 17, 1))

    def body(x):
        return F.relu(torch.abs((x * 1.01 + 0.5) * x - 0.25) * 0.5 + x)

    def make(wrap):
        f = wrap(body)
        return lambda: f(x)

    return make


def main():
    torch.set_num_threads(1)
    version = torch.__version__.split("+")[0]
    for name, wrap in (("PyTorch eager", lambda f: f), ("torch.compile", torch.compile)):
        print(f"name {name} {version}")
        makers = {key: (lambda v=v: network(*v)) for key, v in cases.NETWORKS.items()} | {"block": block, "chain": chain}
        for case, maker in makers.items():
            try:
                step = maker()(wrap)
                first = step()
                value = (first if first.ndim == 0 else first[12345]).item()
                print(f"us {case} {cases.microseconds(step):.2f} {value:.7g}", flush=True)
            except Exception as problem:  # no C++ compiler, for instance: the case is left out
                print(f"{name}, {case}: {problem}", file=sys.stderr)


main()
