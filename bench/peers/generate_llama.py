"""The work of bench_generate in llama.cpp, through llama-cpp-python built for this machine.

    python3 generate_llama.py token|prefill MODEL THREADS SECONDS PROMPT LONGEST LOGITS

MODEL is the GGUF file we wrote. Prints the lines of bench/side.h, the first LOGITS logits behind the prompt to compare. "token": a token
after PROMPT others, over and over, the sequence begun anew at LONGEST; "prefill": LONGEST tokens at once, and the logits behind the last.
Exit status 3: there is no llama-cpp-python.
"""
import sys
import time

import problem

try:
    import llama_cpp
except ImportError:
    sys.exit(3)

MODE, MODEL = sys.argv[1], sys.argv[2]
THREADS, SECONDS, PROMPT, LONGEST, LOGITS = int(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:8])

problem.use_processors(THREADS)
model = llama_cpp.Llama(MODEL, n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)
VOCABULARY = model.n_vocab()


def token(i):
    """As bench_generate.c gives them."""
    return (i * 7919 + i // 5 * 31) % VOCABULARY


def logits():
    """Of the last token: evaluation is over once they can be read."""
    return llama_cpp.llama_get_logits_ith(model.ctx, -1)


def begin(count):
    model.reset()
    model.eval([token(i) for i in range(count)])
    return logits()


def a_token():
    if model.n_tokens >= LONGEST:
        begin(PROMPT)
    start = time.perf_counter()
    model.eval([token(model.n_tokens)])
    logits()
    return time.perf_counter() - start


def a_prompt():
    start = time.perf_counter()
    begin(LONGEST)
    return time.perf_counter() - start


first = [float(v) for v in begin(PROMPT if MODE == "token" else LONGEST)[:LOGITS]]
sample = a_token if MODE == "token" else a_prompt
seconds, spread = problem.sampled(sample, SECONDS)
print("name llama.cpp", llama_cpp.__version__)
print(f"spread {spread:.4g}\ntoken {MODE} {seconds:.9g}", *(f"{v:.9g}" for v in first), flush=True)
problem.await_turns(sample)
