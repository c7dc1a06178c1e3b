"""The Python package against suites that others wrote: what `tools/run-tests python-conformance` runs.

    array-api-tests   the Python array API standard's own tests, of the commit below, cloned into build/
    tests/conformance scikit-learn's array API dispatch, DLPack exchange with what is installed of NumPy, PyTorch and JAX, GGUF files
                      and llama.cpp (llama-cpp-python, which PyPI has as source: building it takes minutes; where it cannot be, they are skipped)

In the environment: MAX_EXAMPLES (20): how many examples hypothesis draws for a test; ARRAY_API_TESTS and ARRAY_API: other places (or copies
on this machine) to clone the suite and the standard from. tests/conformance/array_api_expected_failures.txt names the tests that are not
to pass, each with its reason: they count as skipped, and one of them that passes counts as failed.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = BUILD / "conformance-venv"
PYTHON = VENV / "bin" / "python"
SUITE = BUILD / "array-api-tests"
EXPECTED = ROOT / "tests" / "conformance" / "array_api_expected_failures.txt"
PACKAGES = ["scikit-build-core>=0.11", "numpy", "pytest", "pytest-json-report", "hypothesis>=6.151", "ndindex>=1.8", "scikit-learn>=1.6",
            "array-api-compat"]
# AMX is left out: llama.cpp's kernels for it ended by a segmentation fault on a machine that has it.
LLAMA_CPP, LLAMA_CPP_OPTIONS = "llama-cpp-python==0.3.36", "-DGGML_NATIVE=ON -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF"
# (place, where it comes from, where else it may be, the commit): tag 2026.02.26 and the standard it was written for
CLONES = [(SUITE, "https://github.com/data-apis/array-api-tests", "ARRAY_API_TESTS", "41379d15d26d67a1e66c840e775d41a8a7fb1516"),
          (SUITE / "array-api", "https://github.com/data-apis/array-api", "ARRAY_API", "5f847a3858875c682ae901aa22b0413bf24be9da")]
STANDARD = "2024.12"


def run(words, **options):
    """Runs `words`; what a failing command said is printed. Returns (succeeded, output)."""
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          **options)
    if done.returncode != 0:
        print(done.stdout.rstrip()[-20000:])
        print(f"{' '.join(map(str, words))}: exit status {done.returncode}", flush=True)
    return done.returncode == 0, done.stdout


def install():
    """A virtual environment with the package and what the suites need."""
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not PYTHON.is_file() and not run([sys.executable, "-m", "venv", VENV])[0]:
        return False
    if not run([*pip, LLAMA_CPP], env={**os.environ, "CMAKE_ARGS": LLAMA_CPP_OPTIONS})[0]:
        print(f"python-conformance: {LLAMA_CPP} cannot be built here; its tests are skipped")
    return run([*pip, *PACKAGES])[0] and run([*pip, "--no-build-isolation", "--force-reinstall", "--no-deps", ROOT])[0]


def clone():
    """The suite and the standard, each at its commit."""
    for place, origin, variable, commit in CLONES:
        here = run(["git", "-C", place, "cat-file", "-e", f"{commit}^{{commit}}"])[0] if (place / ".git").exists() else False
        if not here:
            shutil.rmtree(place, ignore_errors=True)
            if not run(["git", "clone", "--quiet", "--no-checkout", os.environ.get(variable, origin), place])[0]:
                return False
        if not run(["git", "-C", place, "checkout", "--quiet", "--force", commit])[0]:
            return False
    return True


def expected_failures():
    """[(the test's id, or "*" and a part of it, reason)]"""
    rows = []
    for line in EXPECTED.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            test, mark, reason = line.partition("  # ")
            if not mark or not reason.strip():
                raise SystemExit(f"{EXPECTED}: {test}: which reason?")
            rows.append((test.strip(), reason.strip()))
    return rows


def write_expected(environment):
    """The same in the form that the suite reads: one id a line. Ids of no test are told."""
    _, output = run([PYTHON, "-m", "pytest", "--collect-only", "-q", f"--rootdir={SUITE}", "-p", "no:cacheprovider", "array_api_tests"], cwd=SUITE,
                    env=environment)
    tests = [line for line in output.splitlines() if "::" in line]
    lines = []
    for pattern, _ in expected_failures():
        part = pattern[1:] if pattern.startswith("*") else None
        found = [t for t in tests if (part in t if part else t == pattern or t.split("[")[0] == pattern)]
        if not found:
            print(f"{EXPECTED.name}: no test is {pattern}")
        lines += found
    path = BUILD / "array-api-xfails.txt"
    path.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")
    return path


def counts(report, succeeded):
    """(passed, failed, skipped) of a junit report; those that were expected to fail are skipped."""
    if not report.is_file():
        return 0, 1, 0
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    ran, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    failed = min(ran, int(suite.get("failures")) + int(suite.get("errors")))
    return ran - skipped - failed, max(failed, int(not succeeded)), skipped


def pytest(name, *arguments, **options):
    report = BUILD / f"{name}.xml"
    report.unlink(missing_ok=True)
    succeeded, _ = run([PYTHON, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments], **options)
    passed, failed, skipped = counts(report, succeeded)
    print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return passed, failed, skipped


def array_api():
    environment = {**os.environ, "ARRAY_API_TESTS_MODULE": "gradus", "ARRAY_API_TESTS_VERSION": STANDARD,
                   "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128"}
    # Ids are relative to the root, for which pytest would take this project's.
    return pytest("array-api-tests", "array_api_tests", f"--rootdir={SUITE}", "-o", "xfail_strict=true", "--disable-deadline", "--derandomize",
                  "--max-examples", os.environ.get("MAX_EXAMPLES", "20"), "--xfails-file", write_expected(environment), "-W",
                  "ignore::pytest.PytestWarning", cwd=SUITE, env=environment)


def conformance():
    """(passed, failed, skipped) of everything."""
    if not install():
        return 0, 1, 0
    if not clone():
        print("python-conformance: the suite cannot be cloned; ARRAY_API_TESTS and ARRAY_API may name other places (see --help)")
        return 0, 1, 0
    parts = [array_api(), pytest("conformance", ROOT / "tests" / "conformance", cwd=ROOT, env={**os.environ, "SCIPY_ARRAY_API": "1"})]
    return tuple(map(sum, zip(*parts)))


if __name__ == "__main__":
    print(conformance())
