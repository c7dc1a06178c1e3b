"""The work of bench_char_gpt and bench_gpt2_124m in PyTorch.

    python3 gpt_torch.py eager|compile|eager-bf16|compile-bf16|generate|compile_generate WEIGHTS THREADS SECONDS HEADS BATCH TIME PROMPT

WEIGHTS is the safetensors file we wrote; sizes come from its shapes. Prints the lines of bench/side.h: "step" with the first losses to
compare, or "token" with the first logits. Where PyTorch has several good ways to do the same, all are tried and the fastest counts: a
token eagerly with a cache that grows (cat) or has its full length from the start (static), compiled with the latter. Exit status 3:
there is no PyTorch.
"""
import sys

import torch_peer
import torch
import torch.nn.functional as F

import problem
from gpt_models import GPT, LONGEST, batch_of, number, read_weights

NAME, WEIGHTS = sys.argv[1], sys.argv[2]
MODE, precision = torch_peer.precision(NAME)
THREADS, SECONDS, HEADS, BATCH, TIME, PROMPT = int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:9])


# ---- training ----


def make_step(weights, options=None, **optimizer_options):
    model = GPT(weights, HEADS)
    vocabulary = model.wte.shape[0]
    x, y = batch_of(vocabulary, BATCH, TIME)

    def loss_of():
        with precision():
            return F.cross_entropy(model(x).reshape(-1, vocabulary), y)

    if options is not None:
        loss_of = torch.compile(loss_of, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, **optimizer_options)

    def step():
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(weights):
    if MODE == "eager":
        ways = {"fused": lambda: make_step(weights, fused=True)}
    else:
        ways = {f"{name}, fused": lambda o=o: make_step(weights, o, fused=True) for name, o in torch_peer.compile_ways().items()}
    torch_peer.run_training(NAME, ways, 4, 1, SECONDS)


# ---- generating ----


def growing(model, vocabulary):
    """A function for the next token, and the logits after the prompt."""
    state = {}

    def begin():
        state["pasts"], state["length"] = [[] for _ in model.blocks], PROMPT
        return model(torch.tensor([[number(i, vocabulary) for i in range(PROMPT)]]), state["pasts"])

    def step():
        if state["length"] >= LONGEST:
            begin()
        model(torch.tensor([[number(state["length"], vocabulary)]]), state["pasts"], state["length"])
        state["length"] += 1

    return step, begin()[0, -1, :8].tolist()


def static(model, vocabulary, options=None):
    width = model.wte.shape[1]
    cache = lambda: torch.zeros(1, HEADS, LONGEST, width // HEADS)
    caches = [(cache(), cache()) for _ in model.blocks]
    next_token = model.static if options is None else torch.compile(model.static, **options)
    prompt = torch.tensor([[number(i, vocabulary) for i in range(PROMPT)]])
    first = model.static(prompt, caches, torch.arange(PROMPT))[0, -1, :8].tolist()
    length = PROMPT

    def step():
        nonlocal length
        if length >= LONGEST:
            model.static(prompt, caches, torch.arange(PROMPT))
            length = PROMPT
        next_token(torch.tensor([[number(length, vocabulary)]]), caches, torch.tensor([length]))
        length += 1

    return step, first


def generate(weights):
    model = GPT(weights, HEADS).eval()
    with torch.inference_mode() if MODE == "generate" else torch.no_grad():
        print_token(model)


def print_token(model):
    vocabulary = model.wte.shape[0]
    if MODE == "generate":
        ways = {"cache grows": lambda: growing(model, vocabulary), "static cache": lambda: static(model, vocabulary)}
    else:
        options = torch_peer.compile_ways(inference=True)
        ways = {f"static cache, {name}": lambda o=o: static(model, vocabulary, o) for name, o in options.items()}

    def time_of(made):
        step, first = made
        return (*problem.median_seconds(step, lambda: None, 8, SECONDS), first)

    best = torch_peer.fastest(ways, time_of, MODE)
    if best is None:
        sys.exit(3)
    name, (seconds, spread, first), (step, _) = best
    print(f"how {name}\nspread {spread:.4g}\ntoken {MODE[:15]} {seconds:.9g}", *(f"{v:.9g}" for v in first), flush=True)
    problem.await_turns(problem.chunk_of(step, lambda: None, 8))


compiles = MODE.startswith("compile")
torch_peer.start(THREADS, compiles)
print("name PyTorch", torch_peer.version(), "compile" if compiles else "eager", *NAME.split("-")[1:], flush=True)
(generate if MODE.endswith("generate") else train)(read_weights(WEIGHTS))
