"""The cases of bench_compile in PyTorch, eager and by torch.compile: lines "name NAME", "how CASE WAY" and
"us CASE US SPREAD VALUE".

    python3 compile_torch.py

The optimizer is torch.optim.Adam, fused or foreach when eager; under torch.compile its step is compiled too, or the fused one called.
Of all ways the fastest counts. Exit status 3: there is no PyTorch.
"""
import torch_peer
import torch
import torch.nn.functional as F

import compile_cases as cases


def network(sizes, residual, adam):
    p = [torch.from_numpy(v).requires_grad_() for v in cases.parameters(sizes)]
    x, y = torch.from_numpy(cases.numbers((cases.BATCH, sizes[0]), 17, 1)), torch.from_numpy(cases.labels(sizes[-1]))
    optimizer = torch.optim.Adam(p, lr=1e-3, **{adam: True})

    def loss_of(p, x, y):
        a = F.relu(x @ p[0] + p[1])
        b = F.relu(a @ p[2] + p[3])
        return F.cross_entropy((a + b if residual else b) @ p[4] + p[5], y)

    def make(wrap):
        forward, update = wrap(loss_of), optimizer.step if adam == "fused" else wrap(optimizer.step)

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


def ways_of(case, options):
    """Ways to run a case: `options` of torch.compile by their names, or None for eager."""
    wraps = {"": lambda f: f} if options is None else {name: lambda f, o=o: torch.compile(f, **o) for name, o in options.items()}
    if case in cases.NETWORKS:
        makers = {adam: lambda adam=adam: network(*cases.NETWORKS[case], adam) for adam in ("fused", "foreach")}
    else:
        makers = {"": block if case == "block" else chain}
    return {", ".join(filter(None, (way, name))) or "as it is": lambda m=m, w=w: m()(w)
            for way, w in wraps.items() for name, m in makers.items()}


def time_of(step):
    first = step()
    value = (first if first.ndim == 0 else first[12345]).item()
    return (*cases.timing(step, 0.17 if torch_peer.QUICK else 0.5), value)


def main():
    torch_peer.start(1, compiles=True)
    for name, options in (("PyTorch eager", None), ("torch.compile", torch_peer.compile_ways(small=True))):
        print(f"name {name} {torch_peer.version()}")
        for case in (*cases.NETWORKS, "block", "chain"):
            best = torch_peer.fastest(ways_of(case, options), time_of, case)
            if best is not None:
                way, (seconds, spread, value), _ = best
                print(f"how {case} {way}\nus {case} {seconds * 1e6:.2f} {spread:.4g} {value:.7g}", flush=True)


main()
