"""scikit-learn's array API dispatch: its estimators compute with our tensors, through gd as their namespace, and give what they give of
NumPy's arrays."""
import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
pytest.importorskip("array_api_compat")

from sklearn import config_context  # noqa: E402
from sklearn.datasets import make_classification, make_regression  # noqa: E402
from sklearn.metrics import accuracy_score, mean_absolute_error, mean_squared_error, r2_score  # noqa: E402
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler  # noqa: E402

import gradus as gd  # noqa: E402

X = make_classification(60, 5, random_state=3)[0].astype(np.float64)


def both(estimator, x=X):
    """What the estimator makes of an array and of a tensor."""
    expected = estimator.fit_transform(x)
    with config_context(array_api_dispatch=True):
        got = estimator.fit_transform(gd.asarray(x))
        assert isinstance(got, gd.Tensor) and got.dtype == gd.float64
        back = estimator.inverse_transform(got) if hasattr(estimator, "inverse_transform") else None
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-9, atol=1e-12)
    return got, back


@pytest.mark.parametrize("make", [StandardScaler, MinMaxScaler, MaxAbsScaler], ids=lambda c: c.__name__)
def test_scalers(make):
    estimator = make()
    _, back = both(estimator)
    assert isinstance(back, gd.Tensor)
    np.testing.assert_allclose(np.asarray(back), X, rtol=1e-9, atol=1e-12)
    learned = next(v for k, v in vars(estimator).items() if k.endswith("_") and k[0] != "_" and hasattr(v, "shape") and getattr(v, "ndim", 0))
    assert isinstance(learned, gd.Tensor), "the estimator holds our tensors"


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_normalizer(norm):
    both(Normalizer(norm=norm))


def test_metrics():
    truth, guess = np.array([0, 1, 2, 1, 0]), np.array([0, 1, 1, 1, 2])
    a, b = make_regression(40, 3, random_state=1)[0][:, :2].T
    with config_context(array_api_dispatch=True):
        assert accuracy_score(gd.asarray(truth), gd.asarray(guess)) == pytest.approx(accuracy_score(truth, guess))
        for metric in (mean_squared_error, mean_absolute_error, r2_score):
            assert metric(gd.asarray(a), gd.asarray(b)) == pytest.approx(metric(a, b), rel=1e-9)
