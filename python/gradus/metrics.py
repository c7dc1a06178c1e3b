"""How good a model is, over any number of batches: objects that batches are added to. Definitions are scikit-learn's."""
from ._objects import Confusion, Ranking, Regression, Running

__all__ = ["Confusion", "Ranking", "Regression", "Running"]
