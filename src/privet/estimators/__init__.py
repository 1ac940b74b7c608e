"""Scikit-learn estimators, which train a simulated federation in one process.

PrivetClassifier(partition=3).fit(X, y)              # columns spread evenly over 3 parties
PrivetRegressor().fit([X_bank, X_telecom, X_shop], y)  # one table per party
"""

from privet.estimators.base import FederatedEstimator
from privet.estimators.estimators import PrivetClassifier, PrivetRegressor

__all__ = ["FederatedEstimator", "PrivetClassifier", "PrivetRegressor"]
