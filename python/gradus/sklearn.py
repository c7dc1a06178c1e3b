"""Networks as scikit-learn's estimators: in pipelines and grid searches, cloned and pickled.

    from gradus.sklearn import MLPClassifier
    make_pipeline(StandardScaler(), MLPClassifier(random_state=0)).fit(X, y)

MLPClassifier and MLPRegressor have the parameters of scikit-learn's, Classifier and Regressor train any gd.nn.Module. Up to eight
updates of the weights are one call of the library. Numbers are float32. fit() restarts gradus's random streams (gd.seed) by a number
drawn from random_state.
"""
from __future__ import annotations

import copy
import warnings

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

import gradus as gd
from gradus import nn, optim

_STEPS = 8  # in one call of the library
_ROWS = 256  # always as many in a call that predicts: one plan, and a row's bits do not depend on its neighbours
_ACTIVATIONS = {"identity": nn.Identity, "logistic": nn.Sigmoid, "tanh": nn.Tanh, "relu": nn.ReLU}
_OPTIMIZERS = {name.lower(): getattr(optim, name) for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta",
                                                              "Lion", "LAMB")}


class _Estimator(BaseEstimator):
    """What all have in common: training, and the network's outputs. Subclasses say how a network, its optimizer and its loss are made."""

    def fit(self, X, y, sample_weight=None):
        """Train on rows X and their targets y; sample_weight: how much each row counts, in its batch. With warm_start=True a second
        call goes on from the weights and the optimizer's state of the first."""
        self._check()
        goes_on = getattr(self, "warm_start", False) and hasattr(self, "module_")
        known = getattr(self, "classes_", None)
        X, y, weight = self._rows(X, y, sample_weight, reset=not goes_on)
        if goes_on and known is not None and not np.array_equal(known, self.classes_):
            found, self.classes_ = self.classes_, known
            raise ValueError(f"warm_start=True goes on with the classes {known}, and y has {found}")
        self._random = check_random_state(self.random_state)
        held = None
        if self.early_stopping:
            stratify = y if isinstance(self, ClassifierMixin) else None
            parts = train_test_split(X, y, weight, test_size=self.validation_fraction, random_state=self._random, stratify=stratify)
            X, X_held, y, y_held, weight, weight_held = parts
            held = X_held, y_held, weight_held
        self._begin(X, goes_on)
        self._train(X, y, weight if sample_weight is not None else None, held, self.max_iter)
        return self

    def _partial_fit(self, X, y, sample_weight, classes=None):
        self._check()
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True: it sees a part of the data")
        goes_on = hasattr(self, "module_")
        X, y, weight = self._rows(X, y, sample_weight, reset=not goes_on, classes=classes)
        if not goes_on:
            self._random = check_random_state(self.random_state)
        self._begin(X, goes_on)
        self._train(X, y, weight if sample_weight is not None else None, None, 1, warns=False)
        return self

    def _rows(self, X, y, sample_weight, reset, classes=None):
        X, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=isinstance(self, RegressorMixin), reset=reset)
        X, y = self._targets(X, y) if classes is None else self._targets(X, y, classes)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float32, ensure_non_negative=True)
        if len(weight) and not weight.any():
            raise ValueError("sample_weight is 0 for all rows")
        return X, y, weight

    def _begin(self, X, goes_on):
        """The network and its optimizer, new ones or those there are."""
        gd.seed(int(self._random.randint(2 ** 31 - 1)))
        if not goes_on:
            self.module_ = self._build(X.shape[1], self.n_outputs_)
            self._forward = gd.compile(self.module_.forward, detached=True)
            self.loss_curve_, self.t_, self.n_iter_ = [], 0, 0
            self._made = self._saved = None

    def _check(self):
        if self.max_iter < 1 or self.n_iter_no_change < 1:
            raise ValueError("max_iter and n_iter_no_change are 1 or more")
        if self.batch_size != "auto" and self.batch_size < 1:
            raise ValueError('batch_size is "auto" or 1 or more')

    def __getstate__(self):
        """The optimizer by its state: it and its compiled step are made again when they are needed."""
        state = dict(super().__getstate__())
        made = state.pop("_made", None)
        if made is not None:
            state["_saved"] = made[0].state_dict()
        state["_made"] = None
        return state

    def _update(self, size):
        """(the optimizer, a compiled function of rows and their order that updates the weights for every `size` rows)"""
        if self._made is None:
            optimizer = self._optimizer(size)
            if self._saved is not None:
                optimizer.load_state_dict(self._saved)

            @gd.compile
            def steps(x, target, weight, order, size):
                """The sum of the rows' losses, and of their weights."""
                total = rows = 0.0
                for i in range(0, len(order), size):
                    chosen = order[i:i + size]
                    taken = None if weight is None else gd.take(weight, chosen, 0)
                    loss = optimizer.minimize(self._weighted(self.module_(gd.take(x, chosen, 0)), gd.take(target, chosen, 0), taken))
                    count = gd.tensor(float(len(chosen))) if taken is None else taken.sum()
                    total, rows = total + loss * count, rows + count
                return total, rows
            self._made = optimizer, steps
        return self._made

    def _weighted(self, output, target, weight):
        """The mean of the rows' losses, by their weights."""
        if weight is None:
            return self._loss(output, target)
        each = gd.vmap(lambda output, target: self._loss(output.unsqueeze(0), target.unsqueeze(0)))(output, target)
        return (each * weight).sum() / gd.maximum(weight.sum(), 1e-30)

    def _train(self, X, y, weight, held, passes, warns=True):
        rows, x, target = len(X), gd.asarray(X), gd.asarray(y)
        weight = None if weight is None else gd.asarray(weight)
        size = min(200 if self.batch_size == "auto" else self.batch_size, rows)
        optimizer, steps = self._update(size)
        if warns:  # fit: a curve of its own
            self.loss_curve_, self.n_iter_ = [], 0
        self.validation_scores_ = [] if held else None
        best, best_state, waited, call, losses = np.inf, None, 0, size * _STEPS, self.loss_curve_
        for _ in range(passes):
            self.n_iter_ += 1
            self.module_.train()
            order = gd.permutation(rows) if self.shuffle else gd.arange(rows)
            sums = [steps(x, target, weight, order[i:i + call], size) for i in range(0, rows, call)]
            self.t_ += rows
            self.loss_ = sum(s.item() for s, _ in sums) / sum(n.item() for _, n in sums)
            losses.append(self.loss_)
            result = self.loss_
            if held:
                self.module_.eval()
                self.validation_scores_.append(self._score(*held))
                result = -self.validation_scores_[-1]
            if self.verbose:
                print(f"iteration {self.n_iter_}  loss {self.loss_:.6f}" + (f"  validation score {-result:.4f}" if held else ""))
            waited = waited + 1 if result > best - self.tol else 0
            if result < best:
                best = result
                if held:
                    best_state = {path: gd.copy(t) for path, t in self.module_.state_dict().items()}
            self._adjust(optimizer, self.t_)
            if waited >= self.n_iter_no_change and not self._slower(optimizer):
                break
            waited = 0 if waited >= self.n_iter_no_change else waited
        else:
            if warns:
                warnings.warn(f"max_iter, {self.max_iter}, was reached while the loss still improved", ConvergenceWarning, stacklevel=3)
        if best_state is not None:
            self.module_.load_state_dict(best_state)
        self.module_.eval()
        self.best_loss_, self.best_validation_score_ = (None, -best) if held else (min(losses), None)

    def _adjust(self, optimizer, seen):
        """Called after every pass over the data."""

    def _slower(self, optimizer):
        """Whether training goes on with a smaller learning rate where it would end."""
        return False

    def _outputs(self, X):
        """Of the network, a row for each row of X."""
        given, made = len(X), []
        for i in range(0, given, _ROWS):
            block = X[i:i + _ROWS]
            if len(block) < _ROWS:
                block = np.concatenate([block, np.zeros((_ROWS - len(block), X.shape[1]), np.float32)])
            made.append(self._forward(block).numpy())
        return np.concatenate(made)[:given]

    def _checked(self, X):
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float32, reset=False)


class _Classifier(ClassifierMixin, _Estimator):
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """One pass over these rows. classes: all there will be; the first call needs them, later ones may leave them out."""
        if classes is None and not hasattr(self, "classes_"):
            raise ValueError("the first call of partial_fit needs classes, all that there will be")
        return self._partial_fit(X, y, sample_weight, self.classes_ if classes is None else classes)

    def _targets(self, X, y, classes=None):
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        found, y = np.unique(y, return_inverse=True)
        if classes is not None:
            found, there = np.unique(classes), found
            unknown = np.setdiff1d(there, found)
            if len(unknown):
                raise ValueError(f"y has classes that are not among {found}: {unknown}")
            if hasattr(self, "classes_") and not np.array_equal(self.classes_, found):
                raise ValueError(f"classes {found} are not those of the first call, {self.classes_}")
            y = np.searchsorted(found, there)[y]
        self.classes_, self.n_outputs_ = found, len(found)
        return X, y.astype(np.int64)

    def _loss(self, output, target):
        return gd.cross_entropy(output, target)

    def _score(self, X, y, weight):
        return float(np.average(self._outputs(X).argmax(1) == y, weights=weight))

    def decision_function(self, X):
        """The logarithms of the classes' odds: [rows, classes], of two classes [rows]."""
        z = self._outputs(self._checked(X)).astype(np.float64)
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict_proba(self, X):
        z = self._outputs(self._checked(X)).astype(np.float64)
        e = np.exp(z - z.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def predict_log_proba(self, X):
        return np.log(self.predict_proba(X))

    def predict(self, X):
        X = self._checked(X)
        return self.classes_[self._outputs(X).argmax(1)]


class _Regressor(RegressorMixin, _Estimator):
    def _targets(self, X, y):
        self._one = y.ndim == 1 or y.shape[1] == 1
        if self._one:
            y = column_or_1d(y, warn=True)
        outputs = 1 if self._one else y.shape[1]
        if hasattr(self, "module_") and (getattr(self, "warm_start", False)) and outputs != self.n_outputs_:
            raise ValueError(f"warm_start=True goes on with {self.n_outputs_} targets, and y has {outputs}")
        self.n_outputs_ = outputs
        return X, np.ascontiguousarray(y, np.float32).reshape(len(y), -1)

    def _loss(self, output, target):
        return gd.mse(output, target) * 0.5

    def partial_fit(self, X, y, sample_weight=None):
        """One pass over these rows."""
        return self._partial_fit(X, y, sample_weight)

    def _score(self, X, y, weight):
        rest = ((self._outputs(X) - y) ** 2 * weight[:, None]).sum()
        return 1 - float(rest / max(((y - np.average(y, 0, weight)) ** 2 * weight[:, None]).sum(), 1e-12))

    def predict(self, X):
        y = self._outputs(self._checked(X)).astype(np.float64)
        return y[:, 0] if self._one else y

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


# ---- any network

class _General:
    def __init__(self, model=None, *, loss=None, optimizer="adam", lr=1e-3, weight_decay=0.0, batch_size="auto", max_iter=200, shuffle=True,
                 random_state=None, tol=1e-4, n_iter_no_change=10, early_stopping=False, validation_fraction=0.1, verbose=False,
                 warm_start=False):
        self.model, self.loss, self.optimizer, self.lr, self.weight_decay = model, loss, optimizer, lr, weight_decay
        self.batch_size, self.max_iter, self.shuffle, self.random_state, self.tol = batch_size, max_iter, shuffle, random_state, tol
        self.n_iter_no_change, self.early_stopping, self.validation_fraction = n_iter_no_change, early_stopping, validation_fraction
        self.verbose, self.warm_start = verbose, warm_start

    def _build(self, features, outputs):
        if self.model is None:
            return nn.Linear(features, outputs)
        return copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else self.model(features, outputs)

    def _optimizer(self, size):
        if callable(self.optimizer):
            return self.optimizer(self.module_)
        if self.optimizer not in _OPTIMIZERS:
            raise ValueError(f"optimizer {self.optimizer!r}: one of {', '.join(_OPTIMIZERS)}, or a function of the module")
        return _OPTIMIZERS[self.optimizer](self.module_, lr=self.lr, **({"weight_decay": self.weight_decay} if self.weight_decay else {}))

    def _loss(self, output, target):
        return super()._loss(output, target) if self.loss is None else self.loss(output, target)


class Classifier(_General, _Classifier):
    """A network as a classifier. model: a function (features, classes) -> gd.nn.Module, or a Module, which is copied; without one, a
    linear layer. Its outputs are logits. loss: of (outputs, class numbers), gd.cross_entropy. optimizer: the name of one in gd.optim,
    with lr and weight_decay, or a function of the module. The rest as of MLPClassifier."""


class Regressor(_General, _Regressor):
    """A network as a regressor. model: a function (features, outputs) -> gd.nn.Module, or a Module, which is copied. loss: of
    (outputs, targets), both [rows, outputs]; half the mean squared error. The rest as of Classifier."""


# ---- multilayer perceptrons, with scikit-learn's parameters

class _Perceptron:
    def __init__(self, hidden_layer_sizes=(100,), activation="relu", *, solver="adam", alpha=1e-4, batch_size="auto",
                 learning_rate="constant", learning_rate_init=1e-3, power_t=0.5, max_iter=200, shuffle=True, random_state=None, tol=1e-4,
                 verbose=False, warm_start=False, momentum=0.9, nesterovs_momentum=True, early_stopping=False, validation_fraction=0.1,
                 beta_1=0.9, beta_2=0.999, epsilon=1e-8, n_iter_no_change=10):
        self.hidden_layer_sizes, self.activation, self.solver, self.alpha = hidden_layer_sizes, activation, solver, alpha
        self.batch_size, self.learning_rate, self.learning_rate_init, self.power_t = batch_size, learning_rate, learning_rate_init, power_t
        self.max_iter, self.shuffle, self.random_state, self.tol, self.verbose = max_iter, shuffle, random_state, tol, verbose
        self.momentum, self.nesterovs_momentum, self.early_stopping = momentum, nesterovs_momentum, early_stopping
        self.validation_fraction, self.beta_1, self.beta_2, self.epsilon = validation_fraction, beta_1, beta_2, epsilon
        self.n_iter_no_change, self.warm_start = n_iter_no_change, warm_start

    def _check(self):
        super()._check()
        if any(width < 1 for width in np.atleast_1d(self.hidden_layer_sizes)):
            raise ValueError(f"hidden_layer_sizes are 1 or more, not {self.hidden_layer_sizes}")
        for name, known in (("activation", _ACTIVATIONS), ("solver", ("adam", "sgd", "lbfgs")),
                            ("learning_rate", ("constant", "invscaling", "adaptive"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} {getattr(self, name)!r}: one of {', '.join(known)}")

    def _build(self, features, outputs):
        layers, before = [], features
        for width in map(int, np.atleast_1d(self.hidden_layer_sizes)):
            layers += [nn.Linear(before, width), _ACTIVATIONS[self.activation]()]
            before = width
        return nn.Sequential(*layers, nn.Linear(before, outputs))

    def _optimizer(self, size):
        decay = {"lr": self.learning_rate_init, "weight_decay": self.alpha / size}  # as scikit-learn's: the penalty is the batch's
        if self.solver == "adam":
            made = optim.Adam(self.module_, beta1=self.beta_1, beta2=self.beta_2, epsilon=self.epsilon, **decay)
        else:
            made = optim.SGD(self.module_, momentum=self.momentum, nesterov=self.nesterovs_momentum and self.momentum > 0, **decay)
        made.group("*.bias", weight_decay=0.0)
        return made

    def _train(self, X, y, weight, held, passes, warns=True):
        if self.solver == "lbfgs":
            self._minimize(gd.asarray(X), gd.asarray(y), None if weight is None else gd.asarray(weight))
        else:
            super()._train(X, y, weight, held, passes, warns)

    def _minimize(self, x, target, weight):
        """L-BFGS on all rows at once, until the loss, with the penalty, falls no more: by less than float32 can tell, in two iterations."""
        optimizer = optim.LBFGS(self.module_, max_iterations=1, tolerance_gradient=self.tol)
        penalized = [layer.weight for layer in self._linear]
        share = self.alpha / 2 / float(len(x) if weight is None else weight.sum())

        def loss():
            return self._weighted(self.module_(x), target, weight) + share * sum(w.square().sum() for w in penalized)
        whole, best, waited, self.n_iter_ = gd.compile(loss), np.inf, 0, 0
        while waited < 2 and self.n_iter_ < self.max_iter:
            before = optimizer.step(whole)
            waited = waited + 1 if before > best * (1 - 1e-6) else 0
            best, self.n_iter_ = min(best, before), self.n_iter_ + 1
            if self.verbose:
                print(f"iteration {self.n_iter_}  loss {before:.6f}")
        if waited < 2:
            warnings.warn(f"max_iter, {self.max_iter}, was reached while the loss still improved", ConvergenceWarning, stacklevel=4)
        self.module_.eval()
        self.loss_, self.t_ = float(loss()), self.n_iter_ * len(x)
        self.best_loss_ = self.validation_scores_ = self.best_validation_score_ = None

    def _partial_fit(self, X, y, sample_weight, classes=None):
        if self.solver == "lbfgs":
            raise ValueError('partial_fit is for solver="adam" and "sgd", which see a part of the data at a time')
        return super()._partial_fit(X, y, sample_weight, classes)

    def _adjust(self, optimizer, seen):
        if self.solver == "sgd" and self.learning_rate == "invscaling":
            optimizer.lr = self.learning_rate_init / (seen + 1) ** self.power_t

    def _slower(self, optimizer):
        if self.solver != "sgd" or self.learning_rate != "adaptive" or optimizer.lr <= 1e-6:
            return False
        optimizer.lr = optimizer.lr / 5
        return True

    @property
    def _linear(self):
        check_is_fitted(self)
        return [layer for layer in self.module_ if isinstance(layer, nn.Linear)]

    @property
    def coefs_(self):
        """The weights of the layers, [in, out]."""
        return [layer.weight.numpy() for layer in self._linear]

    @property
    def intercepts_(self):
        return [layer.bias.numpy() for layer in self._linear]

    @property
    def n_layers_(self):
        return len(self._linear) + 1


class MLPClassifier(_Perceptron, _Classifier):
    """A multilayer perceptron with the parameters of sklearn.neural_network.MLPClassifier. Its last layer has an output for each class.
    loss_ is without the penalty alpha."""


class MLPRegressor(_Perceptron, _Regressor):
    """A multilayer perceptron with the parameters of sklearn.neural_network.MLPRegressor."""


__all__ = ["Classifier", "MLPClassifier", "MLPRegressor", "Regressor"]
